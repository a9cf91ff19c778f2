"""Real live jobs: evidence makes every window certain, and without it the job's own timing is no mismatch."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import OFFSETS
from spark_jobs.comparison.recount import RecountContext, ends_of, records_in, taken_by_offsets
from spark_jobs.comparison.verdicts import VERDICT, Verdict
from spark_jobs.replay.columns import OFFSET, PARTITION
from tests.comparison.live_jobs import LIVE, UNEXPLAINED, compared, definition, loaded
from tests.sampling import first_of

SOLO = [
    ("solo-event-p1-1", "event-p1"), ("solo-periodic-p1-1", "periodic-p1"),
    ("solo-periodic-p1-idle-1", "periodic-p1-idle"),
]  # fmt: skip
TWO_SUBTASKS = [("solo-event-p2-1", "event-p2"), ("solo-periodic-p2-1", "periodic-p2")]
LAGGING = [("backlog-1", "event-p1"), ("backlog-1", "periodic-p2"), ("stall-1", "periodic-p1")]
OTHERS = [("windows-1", "periodic-p1-lateness"), ("windows-1", "periodic-p1-sliding")]


def recorded_late_records(context: RecountContext, rows: DataFrame) -> DataFrame:
    """`partition` and `offset` of the records that are in no emitted row according to `last_offsets`.

    They are the records of the live job's late side output. `rows` are all rows of a comparison; windows that have not
    closed are left out.
    """
    closed = rows.where(F.col(VERDICT) != Verdict.NOT_CLOSED)
    records = records_in(context, closed, ends_of(context, closed), OFFSETS)
    by_record = records.groupBy(PARTITION, OFFSET).agg(F.max(taken_by_offsets()).alias("rw_taken"))
    entered_open = records_in(context, rows.where(F.col(VERDICT) == Verdict.NOT_CLOSED), ends_of(context, rows)).select(
        PARTITION, OFFSET
    )
    late = by_record.where(~F.col("rw_taken")).join(entered_open.distinct(), [PARTITION, OFFSET], "left_anti")
    return late.select(F.col(PARTITION).alias("partition"), F.col(OFFSET).alias("offset"))


@pytest.mark.parametrize(("run", "job"), first_of([LAGGING[1], SOLO[2], *OTHERS]))
def test_with_last_offsets_every_emitted_window_and_every_late_record_is_the_jobs(spark, tmp_path, run, job) -> None:
    pipeline = loaded(tmp_path, definition(run, job, evidence=True))
    with compared(spark, pipeline) as found:
        verdicts = found.verdicts()
        assert not set(UNEXPLAINED) & set(verdicts)
        assert not {"timing", "undecided"} & set(verdicts)
        assert found.comparison.fidelity == "recorded"
        emitted = found.rows.where("emitted_rows > 0")
        assert {r[0] for r in emitted.select("verdict").distinct().collect()} == {"match", "late_arrivals"}
        ours = recorded_late_records(found.comparer.context, found.rows).collect()
        theirs = spark.read.parquet(f"{LIVE}/{run}/{job}.late.parquet").collect()
        assert sorted(map(tuple, ours)) == sorted(map(tuple, theirs))


@pytest.mark.long
def test_the_late_side_output_is_evidence_too(spark, tmp_path) -> None:
    run, job = TWO_SUBTASKS[0]
    late = f"  late_output: {{source: {{kind: files, path: {LIVE}/{run}/{job}.late.parquet, format: parquet}}}}\n"
    with compared(spark, loaded(tmp_path, definition(run, job, evidence=False, live=late))) as found:
        assert found.comparison.fidelity == "recorded"
        assert not {*UNEXPLAINED, "timing", "undecided"} & set(found.verdicts())


@pytest.mark.long
@pytest.mark.parametrize(("run", "job"), first_of([("group-1", "periodic-p1"), ("stall-1", "event-p1")]))
def test_a_row_that_came_out_late_does_not_contradict_the_log(spark, tmp_path, run, job) -> None:
    """By 170 to 750 ms after its close: more than the band is wide, and less than what counts as a lag."""
    with compared(spark, loaded(tmp_path, definition(run, job, evidence=True))) as found:
        assert not set(UNEXPLAINED) & set(found.verdicts())


@pytest.mark.long
def test_with_last_offsets_every_emitted_session_is_the_jobs(spark, tmp_path) -> None:
    pipeline = loaded(tmp_path, definition("windows-1", "periodic-p1-session", evidence=True))
    with compared(spark, pipeline) as found:
        emitted = found.rows.where("emitted_rows > 0")
        assert {r[0] for r in emitted.select("verdict").distinct().collect()} == {"match", "late_arrivals"}
        assert not set(UNEXPLAINED) & set(found.verdicts())


@pytest.mark.long
@pytest.mark.parametrize(("run", "job"), first_of(SOLO))
def test_from_the_log_alone_no_window_of_a_job_with_one_subtask_is_a_mismatch(spark, tmp_path, run, job) -> None:
    with compared(spark, loaded(tmp_path, definition(run, job, evidence=False))) as found:
        assert not set(UNEXPLAINED) & set(found.verdicts())
        assert found.comparison.band.lags == ()
        fitted = found.rows.where("verdict = 'timing'")
        assert fitted.where("fit <> 'one_cut' OR fit_keys < 1").isEmpty()


@pytest.mark.long
@pytest.mark.parametrize(("run", "job"), first_of(TWO_SUBTASKS))
def test_from_the_log_alone_at_most_two_percent_are_mismatches_with_two_subtasks(spark, tmp_path, run, job) -> None:
    with compared(spark, loaded(tmp_path, definition(run, job, evidence=False))) as found:
        verdicts = found.verdicts()
        assert sum(verdicts[v] for v in UNEXPLAINED) <= 0.02 * sum(verdicts.values())


@pytest.mark.parametrize(("run", "job"), first_of([LAGGING[0], LAGGING[2]]))
def test_backlog_and_stall_are_lag_and_not_mismatches(spark, tmp_path, run, job) -> None:
    with compared(spark, loaded(tmp_path, definition(run, job, evidence=False))) as found:
        assert found.comparison.band.lags
        assert not set(UNEXPLAINED) & set(found.verdicts())
        assert found.verdicts()["timing"] > 0
