"""The replay stage: windows and late records of each chunk, and the quarantine, into the staging tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.replay.aggregates import overflow_in_words
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, PANE
from spark_jobs.replay.engine import FIRED_COLUMNS, Replay
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.difference import identity_of
from spark_jobs.runs.job import Job
from spark_jobs.runs.start import keep_reasons
from spark_jobs.sources import quarantined
from spark_jobs.spark.failures import AggregateOverflowError
from spark_jobs.spark.parallel import run_parallel


def prepare_staging(job: Job, replay: Replay) -> None:
    """Make the tables that processes fill side by side, chunk by chunk."""
    first = job.plan.chunks[0]
    job.staging.prepare(published_windows(replay.windows(first)).schema)
    if job.is_faithful:
        job.staging.prepare(_published_late(_late_of_chunk(job, replay, first)).schema, StagedPart.LATE)


def stage_chunk(job: Job, replay: Replay, number: int) -> None:
    """Stage the windows and the late records of chunk `number`, counted from 1, side by side."""
    chunk, of = job.plan.chunks[number - 1], len(job.plan.chunks)
    # The frames are made one after the other: of sessions, both come from one replay.
    frames = [(StagedPart.WINDOWS, published_windows(replay.windows(chunk)))]
    if job.is_faithful:
        frames.append((StagedPart.LATE, _published_late(_late_of_chunk(job, replay, chunk))))
    with job.stage("windows", f"{number} of {of}: {format_instant(chunk.start)} to {format_instant(chunk.end)}"):
        distinct_by = {StagedPart.WINDOWS: aggregated_by(job.spec)}
        writes = (
            partial(job.staging.write, number, rows, part, distinct_by=distinct_by.get(part, ()))
            for part, rows in frames
        )
        with _overflow_named(replay):
            run_parallel(job.spark, *writes)


@contextmanager
def _overflow_named(replay: Replay) -> Iterator[None]:
    """Name the aggregate, the window and the key where a sum overflows: Spark names none of them."""
    try:
        yield
    except AggregateOverflowError as problem:
        found = overflow_in_words(replay.entering, replay.spec)
        if found is None:
            raise
        raise AggregateOverflowError(found, problem.where, problem.hint) from problem


def aggregated_by(spec: ReplaySpec) -> tuple[str, ...]:
    """The columns by which one aggregation makes all windows of a chunk; none where it is not one aggregation."""
    identity = identity_of(spec)
    return () if PANE in identity else identity


def _late_of_chunk(job: Job, replay: Replay, chunk: TimeRange) -> DataFrame:
    is_last = chunk == job.plan.chunks[-1]
    # Records just behind the range can still have missed its last windows.
    reach = 0 if replay.merges or not is_last else replay.spec.aligned_windows.longest
    late = replay.late(TimeRange(chunk.start, chunk.end + reach), job.plan.span)
    if late is None:
        raise ValueError("a run of complete values alone has no late records")
    return late


def stage_parallel(job: Job, replay: Replay, parts: Sequence[tuple[StagedPart, Callable[[], DataFrame]]]) -> None:
    """Stage what the engine gives, side by side; the chunks are numbered from 1 in the order of `parts`."""
    columns = {StagedPart.WINDOWS: published_windows, StagedPart.LATE: _published_late}

    def stage(number: int, part: StagedPart, rows_of: Callable[[], DataFrame]) -> None:
        rows = rows_of()
        job.staging.write(number, columns[part](rows) if part in columns else rows, part)

    with _overflow_named(replay):
        run_parallel(job.spark, *(partial(stage, number, *one) for number, one in enumerate(parts, 1)))


def stage_quarantine(job: Job, records: DataFrame) -> None:
    """Stage the records that cannot be used."""
    if job.plan.quarantined:
        with job.stage("quarantine", f"{job.plan.quarantined} records"):
            job.staging.write(0, quarantined(records), StagedPart.QUARANTINE)
            keep_reasons(job, job.staging.rows(StagedPart.QUARANTINE))


def published_windows(windows: DataFrame) -> DataFrame:
    """The engine's windows in the published table's columns: timestamps in UTC, the close as `closed_at`."""
    fired = [c for c in FIRED_COLUMNS if c in windows.columns]
    rest = [c for c in windows.columns if c not in (START, END, *fired)]
    closed_at = (
        F.when(F.col(FIRED_COLUMNS[0]) < F.lit(NEVER), F.timestamp_millis(FIRED_COLUMNS[0]))
        if fired
        else F.lit(None).cast("timestamp")
    )
    return windows.select(
        F.timestamp_millis(START).alias("window_start"),
        F.timestamp_millis(END).alias("window_end"),
        *rest,
        closed_at.alias("closed_at"),
    )


def _published_late(late: DataFrame) -> DataFrame:
    instants = {ARRIVAL: "arrival", EVENT_TIME: "event_time", START: "window_start", END: "window_end"}
    renamed = {"rw_partition": "partition", "rw_offset": "offset", "rw_sequence": "sequence"}
    columns = []
    for name in late.columns:
        if name in instants:
            columns.append(F.timestamp_millis(name).alias(instants[name]))
        else:
            columns.append(F.col(name).alias(renamed.get(name, name)))
    placed = late.select(*columns)
    return placed.withColumn("range_start", F.coalesce("window_start", "event_time"))
