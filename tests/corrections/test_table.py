"""The loop closes: what the live job emitted is judged, corrected in its own table, and compared again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from spark_jobs.corrections.delivery import deliver, repeat, revert
from spark_jobs.corrections.due import due, scope_of
from spark_jobs.definition import Pipeline
from spark_jobs.errors import RunStateError
from spark_jobs.lakehouse.corrections import CorrectionTable, Delivery
from spark_jobs.lakehouse.delivery import DeliveryKind, DeliveryStatus
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.processes import beating
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from tests.corrections.boundaries import TABLE, boundaries_of, ended_at
from tests.corrections.small_corrections import (
    COMPARING,
    counts_of,
    defined,
    emitted_rows,
    later_records,
    published,
    with_faults,
    write_table,
)
from tests.faults.boundaries import Stopped
from tests.sampling import IN_FULL, sample

ELSEWHERE = "elsewhere/1/2:7:8"
SECTIONS = """
live:
  source: {{kind: table, table: {table}}}
  window: {{start: window_start}}
corrections: {{value: complete}}
"""


def test_a_table_is_put_right_wherever_a_process_ends_and_the_next_night_finds_it_so(spark, tmp_path) -> None:
    table = "rewindow.corrected.emitted"
    job = defined(tmp_path, "corrected_table", SECTIONS.format(table=table))
    write_table(spark, table, with_faults(emitted_rows(spark, job)))
    before = counts_of(published(spark, job))
    assert before["mismatch"] == 1 and before["missing"] == 1 and before["late_arrivals"] > 3, before
    assert_windows_wait_that_end_where_the_open_ones_begin(spark, job)
    rows = spark.table(table).count()
    with ended_at(TABLE, "after _merge"), pytest.raises(Stopped):
        deliver(spark, job)
    done = deliver(spark, job)
    assert len(done.resumed) == 1 and not done.rows, "each revision once"
    for boundary in sample(["after prepare"], boundaries_of(TABLE)):
        with ended_at(TABLE, boundary), pytest.raises(Stopped):
            repeat(spark, job)
        deliver(spark, job)
    ledger = CorrectionTable(spark, Tables.of(job).corrections, tuple(job.keys))
    assert {d.status for d in ledger.deliveries()} == {DeliveryStatus.DELIVERED}
    first = ledger.deliveries()[0]
    assert spark.table(table).count() == rows + ledger.of(first.id).where("NOT existed").count()
    if IN_FULL:
        assert_another_host_is_watched(spark, job, ledger)
    # The next night compares what was corrected again: it is right, but where more late records have come since.
    later_records(tmp_path)
    night = reconcile(spark, job, NoProgress(), end_policy=COMPARING)
    assert night.continued_from is not None, night.note
    corrected = ledger.of(first.id).select("k", "window_start").distinct()
    verdicts = spark.table(Tables.of(job).verdicts).where("valid_to IS NULL")
    left = verdicts.join(corrected, ["k", "window_start"], "left_semi")
    again = {(r["verdict"], r["label"]) for r in left.collect()}
    assert again <= {("late_arrivals", "corrected")} and left.count() < ledger.of(first.id).count()
    assert deliver(spark, job).rows["upsert"] >= left.count(), "new revisions are due"
    # Another process has delivered since this one looked: it prepares nothing.
    head = ledger.head()
    assert revert(spark, job).rows["upsert"] > 3
    with pytest.raises(RunStateError, match="another process"):
        ledger.prepare(ledger.of(first.id), replace(first, id="late", number=9, kind=DeliveryKind.REPEAT), head)


def assert_another_host_is_watched(spark: SparkSession, job: Pipeline, ledger: CorrectionTable) -> None:
    """Whether a process of another host delivers is seen by its signs of life, whatever its clock says."""
    with ended_at(TABLE, "after prepare"), pytest.raises(Stopped):
        repeat(spark, job)
    for clock in (timedelta(hours=-1), timedelta(days=2)):
        at = datetime.now(UTC) + clock
        spark.sql(
            f"UPDATE {ledger.table} SET process = '{ELSEWHERE}', prepared_at = :at WHERE status = 'prepared'",
            args={"at": at},
        )
        waiting = ledger.deliveries()[-1]

        def beat(waiting: Delivery = waiting, clock: timedelta = clock) -> bool:
            return ledger.show_life(waiting, ELSEWHERE, datetime.now(UTC) + clock)

        with (
            beating(beat, "elsewhere", timedelta(seconds=0.3)),
            pytest.raises(RunStateError, match="another process delivers corrections now"),
        ):
            deliver(spark, job, heartbeat=timedelta(seconds=6))
    assert deliver(spark, job, heartbeat=timedelta(seconds=0.4)).resumed == (waiting.id,), "silent: it is gone"
    assert not beat(), "whoever was replaced gives no sign of life any more"


def assert_windows_wait_that_end_where_the_open_ones_begin(spark: SparkSession, job: Pipeline) -> None:
    """`final_before` is an instant before which windows must end; one that ends at it may still be open."""
    comparisons = Tables.of(job).comparisons
    (known,) = {row["final_before"] for row in spark.table(comparisons).collect()}

    def ends() -> list[datetime]:
        found = due(scope_of(spark, job))
        return [] if found is None else sorted(row["window_end"] for row in found.collect())

    def compared_up_to(instant: datetime) -> None:
        spark.sql(f"UPDATE {comparisons} SET final_before = :at", args={"at": instant})

    everything = ends()
    last = everything[-1]
    compared_up_to(last)
    assert ends() == [end for end in everything if end < last]
    compared_up_to(known)
    assert ends() == everything
