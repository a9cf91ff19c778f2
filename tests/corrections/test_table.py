"""The loop closes: what the live job emitted is judged, corrected in its own table, and compared again."""

from __future__ import annotations

import pytest

from spark_jobs.comparison.compare import run_compare
from spark_jobs.corrections.delivery import deliver, repeat, revert
from spark_jobs.lakehouse.corrections import CorrectionTable
from spark_jobs.lakehouse.delivery import DeliveryStatus
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.progress import NoProgress
from tests.corrections.boundaries import TABLE, boundaries_of, ended_at
from tests.corrections.small_corrections import counts_of, defined, emitted_rows, published, with_faults, write_table
from tests.faults.boundaries import Stopped
from tests.sampling import sample

pytestmark = pytest.mark.long

SECTIONS = """
live:
  source: {{kind: table, table: {table}}}
  window: {{start: window_start}}
corrections: {{value: complete}}
"""


def test_a_table_is_put_right_wherever_a_process_ends_and_the_next_comparison_is_clean(spark, tmp_path) -> None:
    table = "rewindow.corrected.emitted"
    job = defined(tmp_path, "corrected_table", SECTIONS.format(table=table))
    write_table(spark, table, with_faults(emitted_rows(spark, job)))
    before = counts_of(published(spark, job))
    assert before["drift"] == 1 and before["missing"] == 1 and before["late_arrivals"] > 3, before
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
    after = run_compare(spark, job, NoProgress()).verdicts
    assert {name for name, count in after.items() if count} <= {"match", "not_closed"}, (before, after)
    revert(spark, job)
    assert spark.table(table).count() == rows
