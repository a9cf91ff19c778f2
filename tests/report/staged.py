"""A staged run and its evidence, as the verify stage sees it: real replay, real tables, nothing published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.publication import Publication
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, create_tables, starts_within
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.spec import Mode
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.planning.plan import make_plan, read_planned
from spark_jobs.runs.work.computing import published_windows
from spark_jobs.runs.work.difference import identity_of
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.sources import good
from spark_jobs.spark.cached import CachedFrames

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


@contextmanager
def staged_run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    kind: RunKind = RunKind.BACKFILL,
    cause: str = "backfill",
    mode: Mode = Mode.BOTH,
    as_of: Mapping[int, int] | None = None,
    publish: bool = False,
    **plan_options,
) -> Iterator[StagedRun]:
    """The evidence of a run of `pipeline`. `publish`: publish it when the block ends."""
    plan = make_plan(spark, pipeline, mode=mode, as_of=as_of, **plan_options)
    spec = spec_of(pipeline, [p.partition for p in plan.partitions], mode=mode)
    records = good(read_planned(spark, pipeline, plan))
    tables = Tables.of(pipeline)
    create_tables(spark, tables)
    facts, held = PublishedTable(spark, tables.windows), CachedFrames()
    with Replay(History(records, plan.event_times, plan.processing_time_end), spec) as replay:
        staged = published_windows(replay.windows(plan.chunks[0]))
        for chunk in plan.chunks[1:]:
            staged = staged.unionByName(published_windows(replay.windows(chunk)))
        staged = held.keep(staged)
        facts.prepare(staged.schema)
        publication = Publication(
            run_id="a-run", span=plan.span, staged=staged, identity=identity_of(spec),
            in_scope=lambda windows: windows.where(starts_within(plan.span)),
            cause=lambda: F.lit(cause), as_of=plan.as_of, branch="publishing_a_run", rivals=list,
        )  # fmt: skip
        late = None
        if mode is not Mode.COMPLETE:
            reach = 0 if replay.merges else spec.aligned_windows.longest
            rows = replay.late(type(plan.span)(plan.span.start, plan.span.end + reach), plan.span)
            instants = {ARRIVAL: "arrival", EVENT_TIME: "event_time"}
            late = rows.select(
                F.col("rw_partition").alias("partition"), F.col("rw_offset").alias("offset"),
                *(F.timestamp_millis(c).alias(name) for c, name in instants.items()), "windows_missed", "side_output",
                "missed_by",
            )  # fmt: skip
        try:
            yield StagedRun(
                spark=spark, pipeline=pipeline, plan=plan, spec=spec, kind=kind, run_id="a-run",
                identity=identity_of(spec), staged=staged, changes=held.keep(facts.changes(publication, WHEN)),
                before=facts.current(), late=late, records=records,
                timeline=None if mode is Mode.COMPLETE else replay.timeline,
            )  # fmt: skip
            if publish:
                facts.publish(publication, facts.head(), WHEN)
        finally:
            held.release()
