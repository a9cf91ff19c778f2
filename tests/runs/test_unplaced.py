"""Records without a partition or an offset go to quarantine in the night that finds them, and count there."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.tables import Tables
from tests.runs.accounts import check_account
from tests.runs.clocked_logs import ClockedLog
from tests.runs.small_runs import T0, record, run
from tests.sampling import first_of

DAY = 86_400_000
PLACES = ({"p": None}, {"o": None}, {"p": None, "o": None}, {"p": -1}, {"o": None, "a": T0 + 400 * DAY})


def unplaced(first: int) -> list[dict]:
    return [record(first + i) | place for i, place in enumerate(PLACES)]


@pytest.mark.parametrize("kind", first_of(["files", "iceberg", "union"]))
def test_a_night_finds_records_without_a_place(spark: SparkSession, tmp_path, kind: str) -> None:
    log = ClockedLog(spark, tmp_path, kind)
    log.put([record(i) for i in range(100)])
    log.night(T0 + DAY)
    log.put([*(record(i) for i in range(100, 150)), *unplaced(500)])
    night = log.night(T0 + DAY)
    assert night.continued_from is not None
    assert (night.counts.records_read, night.counts.records_quarantined) == (55, 5)
    log.assert_as_one_full_run(T0 + DAY)
    assert "nothing has arrived" in log.night(T0 + DAY).note
    log.put([*(record(i) for i in range(150, 160)), *unplaced(600)[:2]])
    night = log.night(T0 + DAY)
    assert (night.counts.records_read, night.counts.records_quarantined) == (12, 2)
    log.assert_as_one_full_run(T0 + DAY)
    assert spark.table(Tables.of(log.pipeline).quarantine).count() == 7


def test_what_a_run_over_a_part_has_put_into_quarantine_counts_in_the_next_night(spark: SparkSession, tmp_path) -> None:
    log = ClockedLog(spark, tmp_path, "files")
    log.put([record(i) for i in range(100)])
    log.night(T0 + DAY)
    log.put([*(record(i) for i in range(100, 110)), *unplaced(500)])
    run(spark, log.pipeline, start=T0, end=T0 + 60_000)
    log.put([record(i) for i in range(110, 120)])
    night = log.night(T0 + DAY)
    assert (night.counts.records_read, night.counts.records_quarantined) == (25, 5)
    check_account(night)
    log.assert_as_one_full_run(T0 + DAY)
    assert "nothing has arrived" in log.night(T0 + DAY).note


def test_a_night_with_too_many_of_them_is_refused(spark: SparkSession, tmp_path) -> None:
    log = ClockedLog(spark, tmp_path, "files", threshold="4")
    log.put([record(i) for i in range(100)])
    log.night(T0 + DAY)
    log.put([*(record(i) for i in range(100, 150)), *unplaced(500)])
    with pytest.raises(HistoryError, match="5 of 55 records cannot be used"):
        log.night(T0 + DAY)
