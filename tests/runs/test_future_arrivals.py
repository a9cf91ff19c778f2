"""One arrival ahead of the clock goes to quarantine; it stops no night, and no run of later records."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, plan_from_json
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.small_nights import pipeline, tables_of
from tests.runs.small_runs import T0, definition_text, record, write
from tests.sampling import sample

CASE = "tumbling, per event"
IN_2099 = int(datetime(2099, 1, 1, tzinfo=UTC).timestamp() * 1000)
_numbers = itertools.count()


@pytest.mark.long
@pytest.mark.parametrize("wrong", sample([IN_2099], [IN_2099, 2**63 - 1, -(2**63)]))
def test_a_wrong_arrival_goes_to_quarantine_and_nights_go_on(spark: SparkSession, tmp_path: Path, wrong: int) -> None:
    defined = pipeline(tmp_path, f"ahead_{next(_numbers)}", CASE)
    write(tmp_path / "data", [record(i, a=wrong) if i == 100 else record(i) for i in range(151)], "a.json")
    assert reconcile(spark, defined, LogProgress()).counts.records_quarantined == 1
    write(tmp_path / "data", [record(i) for i in range(151, 240)], "b.json")
    night = reconcile(spark, defined, LogProgress(), until=T0 + 230_000)
    assert night.continued_from is not None and "compared only" not in night.note
    last = reconcile(spark, defined, LogProgress(), until=T0 + 300_000)
    assert last.continued_from == night.run_id
    (bad,) = spark.table(Tables.of(defined).quarantine).collect()
    ahead = "arrival ahead of records behind it in its partition: 2099-01-01T00:00:00Z"
    absurd = "arrival out of [0001-01-01T00:00:00Z, 10000-01-01T00:00:00Z)"
    assert bad["reason"].startswith(ahead if wrong == IN_2099 else absurd) and bad["offset"] == 50
    fresh = pipeline(tmp_path, f"{defined.name}_full", CASE)
    plan = make_plan(spark, fresh)
    assert plan_from_json(plan.to_json()) == plan and bool(plan.clocks) is (wrong == IN_2099)
    execute(spark, fresh, plan, LogProgress())
    assert tables_of(spark, defined) == tables_of(spark, fresh)
    assert spark.table(Tables.of(fresh).quarantine).count() == 1
    older = reconcile(spark, defined, LogProgress(), until=T0 + 100_000)
    assert "has read more" in older.note


def test_arrivals_have_bounds_in_the_definition(spark: SparkSession, tmp_path: Path) -> None:
    text = definition_text("bounds", tmp_path / "data", threshold="5 %")
    plain = load_pipeline(tmp_path / "p.yaml", text=text)
    unit = "arrival_unit: ms"
    bounds = f"{unit}, arrival_earliest: '2020-09-13T12:27:00Z', arrival_latest: '2020-09-13T12:28:38Z'"
    bounded = load_pipeline(tmp_path / "p.yaml", text=text.replace(unit, bounds))
    write(tmp_path / "data", [record(i) for i in range(100)] + [record(100, a=T0 - 1)])
    assert make_plan(spark, bounded).quarantined == 3
    assert plain.definition_hash != bounded.definition_hash
    twisted = bounds.replace("12:28:38", "12:26:38")
    with pytest.raises(DefinitionError, match="is not after `arrival_earliest`"):
        load_pipeline(tmp_path / "p.yaml", text=text.replace(unit, twisted))
