"""What comes in time for a window that has lost its first records is not counted, and is not called late."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.small_runs import T0, pipeline, record, run, write


def on_time(i: int) -> dict:
    return record(i, k="a", t=T0 + i * 1000)


def sums(spark, defined) -> dict[str, int]:
    tables = Tables.of(defined)
    dropped = spark.table(tables.windows).agg(F.sum("records_dropped")).collect()[0][0]
    missed = spark.table(tables.late).agg(F.sum("windows_missed")).collect()[0][0]
    return {"dropped": dropped or 0, "missed": missed or 0}


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_window_over_a_cut_goes_on_without_late_records(spark, tmp_path: Path, goes_on: bool) -> None:
    defined = pipeline(tmp_path, f"not_counted_{goes_on}".lower())
    write(tmp_path / "data", [on_time(i) for i in range(130)], "old.json")
    write(tmp_path / "data", [on_time(i) for i in range(130, 150)], "some.json")
    run(spark, defined)
    (tmp_path / "data" / "old.json").unlink()  # minute 2 has lost its first ten records
    late = [on_time(i) | {"t": T0 + MINUTE + i} for i in range(170, 173)]
    write(tmp_path / "data", [on_time(i) for i in range(150, 170)] + late, "new.json")
    reconcile(spark, defined, LogProgress()) if goes_on else run(spark, defined)
    rows = spark.table(Tables.of(defined).windows).orderBy("window_start").collect()
    counted = [(r["n"], r["records_on_time"], r["records_dropped"], r["records_not_counted"], r["state"]) for r in rows]
    assert counted[2] == (30, 30, 0, 20, "history_gone")
    assert counted[1] == (60, 60, 3, 0, "history_gone")
    assert sums(spark, defined) == {"dropped": 3, "missed": 3}
