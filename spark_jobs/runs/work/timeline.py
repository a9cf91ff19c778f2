"""The timeline stage: when the watermark passed which value, made once and kept for the stages that follow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import DAY
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.columns import ARRIVAL, record_position
from spark_jobs.replay.engine import History, Replay, SavedTimeline, needs_old_closes
from spark_jobs.replay.flink.inversion import is_past_carried, is_past_discoveries
from spark_jobs.replay.flink.simulation import can_continue
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.rounding import with_bounds
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Timeline
from spark_jobs.runs.life.documents import Duplicates, TimelineDocument
from spark_jobs.runs.life.store import STEPS
from spark_jobs.runs.night.evidence import Beside
from spark_jobs.runs.night.looked_up import LOOKUP, kept_lookup
from spark_jobs.runs.night.stored import reading_in
from spark_jobs.runs.night.taken import ReadBefore
from spark_jobs.runs.planning.plan import open_planned
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.job import Job
from spark_jobs.sources import Sign, arrived_since, reading
from spark_jobs.spark.parallel import run_parallel


@contextmanager
def opened_replay(
    job: Job, history: History, saved: SavedTimeline | None = None, *, goes_on: bool = False
) -> Iterator[Replay]:
    """The replay of a plan; its timeline is `saved`, or goes on from an earlier run's, or is made from the start.

    `goes_on`: another process of the run has found its duplicates.
    """
    carried = None
    is_found = goes_on and job.pipeline.deduplicate is not None and job.staging.has(StagedPart.DUPLICATES)
    if saved is None:
        carried = carried_state(job.spark, job.pipeline, job.result.tables, job.plan, job.spec, history.records)
    job.result.continued_from = carried.run_id if carried else None
    with (
        Replay(
            history,
            with_bounds(job.spec, history.records),
            state=carried and carried.state,
            timeline_records=carried and carried.records,
            saved=saved,
            set_aside=job.staging.rows(StagedPart.DUPLICATES) if is_found else None,
        ) as replay,
        reading(job.plan.pipeline),
    ):
        yield replay


def make_timeline(job: Job, replay: Replay, *beside: Callable[[], Any]) -> None:
    """Make the timeline, and keep it; then count the duplicates. The functions `beside` run beside the timeline."""
    if not job.is_faithful:
        run_parallel(job.spark, *beside)
    else:
        with job.stage("timeline", job.plan.watermark):
            run_parallel(job.spark, lambda: replay.timeline, *beside)
            job.result.watermark_note = replay.timeline.note
            _save(job, replay.timeline)
    if job.pipeline.deduplicate is not None:
        with job.stage("duplicates", f"by {', '.join(job.pipeline.deduplicate.by)}"):
            Duplicates(records=replay.duplicates or 0).write(job.folder)
            if job.in_stages and replay.set_aside is not None:
                job.staging.write(0, replay.set_aside, StagedPart.DUPLICATES)


def _save(job: Job, timeline: Timeline) -> None:
    """Keep the timeline for the stages that follow."""
    steps = timeline.steps
    TimelineDocument(**timeline.to_document(), steps=steps is not None).write(job.folder)
    if steps is not None:
        job.folder.write_bytes(STEPS, steps.to_bytes())
    elif job.in_stages:
        job.staging.write(0, timeline.rows(job.spark), StagedPart.TIMELINE)


def saved_timeline(job: Job) -> SavedTimeline | None:
    """The timeline that an earlier stage of the run has kept; None where there is none."""
    document = TimelineDocument.read(job.folder)
    if document is None:
        return None
    if document.steps:
        return SavedTimeline(document.timeline(), InMemoryTimeline.from_bytes(job.folder.read_bytes(STEPS) or b""))
    return SavedTimeline(document.timeline(), job.staging.rows(StagedPart.TIMELINE))


@dataclass(frozen=True, slots=True)
class Carried:
    """The timeline state of an earlier run, and the records after its end offsets."""

    run_id: str
    state: dict[str, Any]
    records: DataFrame


def carried_state(
    spark: SparkSession, pipeline: Pipeline, tables: Tables, plan: Plan, spec: ReplaySpec, records: DataFrame
) -> Carried | None:
    """The nearest earlier state from which the timeline of this range can go on; None: read from the start.

    It must be of the same definition, of the same rows of a lookup (a filter may use them) and of earlier end offsets,
    and its watermark must not have reached the range: closes before it are not known any more. A replay that needs
    them always reads from the start.
    """
    if needs_old_closes(spec) or spec.restarts:
        return None
    closed_to = spec.windows.closed_until
    rows = (
        spark.table(tables.timeline_state)
        .where((F.col("pipeline") == plan.pipeline) & (F.col("definition_hash") == plan.definition_hash))
        .where(F.col("watermark_below") < F.lit(plan.span.start + DAY))  # no clock is a day away from UTC
        .orderBy(F.desc("processing_time_end"), F.desc("saved_at"))
        .select("run_id", "as_of", "state", "watermark_below", F.unix_millis("processing_time_end").alias("until"))
        .collect()
    )
    for row in rows:
        earlier = all(p in plan.as_of and end <= plan.as_of[p] for p, end in row["as_of"].items())
        is_below = closed_to(row["watermark_below"] + 1) <= plan.span.start
        if not earlier or not is_below or row["until"] > plan.processing_time_end:
            continue
        rest = arrived_since(records, row["as_of"])
        state = json.loads(row["state"])
        if state.get(LOOKUP) != kept_lookup(plan.lookup).get(LOOKUP):
            continue
        before = ReadBefore(row["run_id"], reading_in(state))
        if Beside(spark, pipeline, open_planned(spark, pipeline, plan), before).evidence().sign is not Sign.SAME:
            continue
        if state["kind"] == "simulation":
            first = rest.agg(F.min(record_position(rest).as_struct())).collect()[0][0]
            if first is not None and not can_continue(state, spec.strategy, tuple(first)):
                continue
        elif not is_past_discoveries(state, spec.strategy):
            continue
        elif state["kind"] == "inversion":
            first = rest.agg(F.min(ARRIVAL)).collect()[0][0]
            if not is_past_carried(state, first):
                continue
        return Carried(row["run_id"], state, rest)
    return None
