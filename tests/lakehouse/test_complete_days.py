"""A day is marked as complete once its windows are closed; it keeps the mark where it changes again."""

from __future__ import annotations

from datetime import date, datetime

import pytest
from pyspark.sql import functions as F

from spark_jobs.lakehouse.complete_days import complete_table
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.documents import Changes
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_runs import T0, pipeline, write

HOUR, DAY = 3_600_000, 86_400_000
MIDNIGHT = T0 // DAY * DAY + DAY
FIRST, SECOND, THIRD = (date.fromtimestamp((MIDNIGHT + n * DAY) / 1000) for n in (-1, 0, 1))


def _records(first: int, times: list[int], late: int = 0) -> list[dict]:
    """One in each partition at each of these times; they arrive then, or `late` ms later."""
    return [
        {"p": p, "o": first + i, "a": at + late, "k": "a", "t": at, "v": 1}
        for i, at in enumerate(times)
        for p in (0, 1)
    ]


def _marks(spark, defined) -> dict[date, tuple]:
    rows = spark.table(complete_table(Tables.of(defined))).collect()
    assert len({row["day"] for row in rows}) == len(rows)
    return {row["day"]: (row["is_complete"], row["version"], row["windows"]) for row in rows}


def test_a_day_is_complete_once_the_watermark_has_passed_it_and_a_late_record_makes_a_version(spark, tmp_path) -> None:
    defined = pipeline(tmp_path, "marked", end="freeze", namespace="mark_tests")
    table = complete_table(Tables.of(defined))
    # One record in the first day, none at its end; the second day has begun, and its windows are not closed.
    write(tmp_path / "data", _records(0, [MIDNIGHT - 9 * HOUR, MIDNIGHT + 5_000]), "part-0.json")
    reconcile(spark, defined, NoProgress())
    assert _marks(spark, defined) == {
        FIRST: (False, 1, 1),
        SECOND: (False, 1, 1),
    }  # 5 s into the day: the bound is 10 s

    write(tmp_path / "data", _records(2, [MIDNIGHT + 10_000, MIDNIGHT + 2 * HOUR]), "part-1.json")
    night = reconcile(spark, defined, NoProgress())
    assert _marks(spark, defined) == {FIRST: (True, 2, 1), SECOND: (False, 2, 2)}
    row = spark.table(table).where(F.col("day") == F.lit(FIRST)).collect()[0]
    assert (row["run_id"], row["as_of"]) == (night.run_id, {0: 4, 1: 4})
    since = row["complete_since"]

    late = [r | {"t": MIDNIGHT - 5 * HOUR} for r in _records(4, [MIDNIGHT + 3 * HOUR])]
    write(tmp_path / "data", late, "part-2.json")
    night = reconcile(spark, defined, NoProgress())
    assert night.continued_from is not None
    assert _marks(spark, defined)[FIRST] == (True, 3, 2)  # restated: the mark stays, the version is another
    row = spark.table(table).where(F.col("day") == F.lit(FIRST)).collect()[0]
    assert (row["run_id"], row["complete_since"]) == (night.run_id, since)
    changes = Changes.read(RunStore.configured().folder(night.run_id))
    assert changes.changed_periods == (
        datetime.fromtimestamp((MIDNIGHT - 5 * HOUR) / 1000).strftime("%Y-%m-%dT%H:00:00"),
    )

    before = spark.table(table).collect()
    execute(spark, defined, make_plan(spark, defined), NoProgress())  # nothing changes
    assert spark.table(table).collect() == before


@pytest.mark.long
def test_the_end_of_input_completes_no_day_and_complete_values_know_none(spark, tmp_path) -> None:
    write(tmp_path / "data", _records(0, [MIDNIGHT - HOUR, MIDNIGHT + 3 * HOUR]))
    flushed = pipeline(tmp_path, "flushed", namespace="mark_tests")
    execute(spark, flushed, make_plan(spark, flushed), NoProgress())
    assert {day: mark[0] for day, mark in _marks(spark, flushed).items()} == {FIRST: True, SECOND: False}
