"""Do: carry out a plan, stage by stage, and publish its tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.policy import Policy
from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.tables import Tables, create_tables
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, record_position
from spark_jobs.replay.engine import History, Replay, SavedTimeline, asks_for_old_closes
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.simulation import can_continue
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.replay.timeline import Timeline
from spark_jobs.runs.plan import Plan, read_planned
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.stages import (
    GateCheck,
    Job,
    ReportCollector,
    RunResult,
    Staged,
    begin,
    chosen_run_id,
    late_of_chunk,
    save_timeline,
    settle_staged,
    stage_late,
    stage_quarantine,
    stage_windows,
    topic_id_of,
    verified,
)
from spark_jobs.runs.store import STAGED, RunStore
from spark_jobs.sources import arrived_since, good, reading
from spark_jobs.spark.parallel import run_parallel


@dataclass(frozen=True, slots=True)
class EndPolicy:
    """How a run ends.

    `policy` overrides the definition's. With `ends_as` (`dry_run` or
    `compared_only`) it tells what would change and throws what it staged away. `checks` is the gate.
    With `in_stages` another process publishes.
    """

    policy: Policy | None = None
    ends_as: str = ""
    in_stages: bool = False
    checks: GateCheck | None = None
    watcher: ReportCollector | None = None


def execute(
    spark: SparkSession,
    pipeline: Pipeline,
    plan: Plan,
    progress: Progress,
    *,
    panes: Panes | None = None,
    records: DataFrame | None = None,
    run_id: str | None = None,
    kind: str = "backfill",
    reason: str = "",
    manner: EndPolicy | None = None,
    store: RunStore | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Carry out `plan` in this process: timeline, windows and late records chunk by chunk into staging, then publish.

    `records` are the plan's, where the caller has read them already (`planned_records`). A `run_id` that has been
    published already changes nothing. What publishing would change is in `changes`, what became of the run in
    `decision`.

    Raises HistoryError where a record breaks a rule (before anything is written), CatalogError where the tables cannot
    be written or another run has published the same range meanwhile (the published tables stay as they were).
    """
    started, manner = now(), manner or EndPolicy()
    job = job_of(
        spark,
        pipeline,
        plan,
        progress,
        chosen_run_id(pipeline, run_id, started),
        kind,
        panes=panes,
        store=store,
        in_stages=manner.in_stages,
        now=now,
        clock=clock,
    )
    if records is None:
        records = read_planned(spark, pipeline, plan)
    history = History(good(records), plan.event_times, plan.processing_time_end)
    if not prepare(job, history, started, is_new=run_id is None):
        return job.result
    staged = Staged(job.facts.head(), plan.span, replaces=True)
    with job.watched():
        begin(job, reason, started)
        job.folder.write(STAGED, staged.to_dict())
        with opened_replay(job, history) as replay:
            make_timeline(job, replay)
            stage_quarantine(job, records)
            for number in range(1, len(plan.chunks) + 1):
                stage_chunk(job, replay, number)
            end_run(job, staged, history.records, replay.timeline if job.is_faithful else None, manner)
    return job.result


def end_run(job: Job, staged: Staged, records: DataFrame, timeline: Timeline | None, manner: EndPolicy) -> None:
    """Verify what is staged, and let policy, gate and difference decide what becomes of it."""
    policy = manner.policy or job.pipeline.publish.policy
    with verified(job, staged, records, timeline, manner.checks, manner.watcher) as difference:
        job.result.decision = settle_staged(
            job, staged, policy, job.pipeline.publish.share, difference, ends_as=manner.ends_as
        )


def job_of(
    spark: SparkSession,
    pipeline: Pipeline,
    plan: Plan,
    progress: Progress,
    run_id: str,
    kind: str,
    *,
    panes: Panes | None = None,
    store: RunStore | None = None,
    in_stages: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> Job:
    """What the stages of a run share."""
    spec = spec_of(pipeline, [p.partition for p in plan.partitions], mode=Mode(plan.mode), panes=panes)
    result = RunResult(run_id, Tables.of(pipeline), plan.records, plan.quarantined)
    folder = (store or RunStore.configured()).folder(run_id)
    return Job(spark, pipeline, plan, spec, kind, progress, result, folder, now, clock, in_stages)


def prepare(job: Job, history: History, started: datetime, *, is_new: bool = False) -> bool:
    """Refuse what breaks a rule, and make the tables. False: the run has been published already (unless `is_new`)."""
    check_quarantine(job.pipeline, job.plan)
    refuse_missing_event_time(job.pipeline, job.plan, history)
    create_tables(job.spark, job.result.tables)
    job.ledger.settle(started)
    if not is_new and job.ledger.is_published(job.result.run_id):
        job.result.note = "this run has been published already; nothing was done"
        return False
    return True


@contextmanager
def opened_replay(job: Job, history: History, saved: SavedTimeline | None = None) -> Iterator[Replay]:
    """The replay of a plan; its timeline is `saved`, or goes on from an earlier run's, or is made from the start."""
    carried = None
    if saved is None:
        carried = carried_state(job.spark, job.result.tables, job.plan, job.spec, history.records)
    job.result.continued_from = carried.run_id if carried else None
    with (
        Replay(
            history,
            job.spec,
            state=carried and carried.state,
            timeline_records=carried and carried.records,
            saved=saved,
        ) as replay,
        reading(job.plan.pipeline),
    ):
        yield replay


def make_timeline(job: Job, replay: Replay, *beside: Callable[[], Any]) -> None:
    """The first stage after the plan: when the watermark passed what. What is called `beside` it does not wait."""
    if not job.is_faithful:
        run_parallel(job.spark, *beside)
        return
    with job.stage("timeline", job.plan.watermark):
        run_parallel(job.spark, lambda: replay.timeline, *beside)
        job.result.watermark_note = replay.timeline.note
        save_timeline(job, replay.timeline)


def stage_chunk(job: Job, replay: Replay, number: int) -> None:
    """Stage the windows and the late records of chunk `number`, counted from 1."""
    chunk = job.plan.chunks[number - 1]
    stage_windows(job, replay, number, len(job.plan.chunks), chunk)
    if job.is_faithful:
        stage_late(job, number, late_of_chunk(job, replay, chunk))


def check_quarantine(pipeline: Pipeline, plan: Plan) -> None:
    quarantine = pipeline.quarantine
    if quarantine.threshold.is_exceeded(plan.quarantined, plan.records):
        raise HistoryError(
            f"{plan.quarantined} of {plan.records} records cannot be used, more than the quarantine allows",
            pipeline.source_of(("quarantine",)) or pipeline.name,
            "See the reasons with `rewindow plan --quarantined`, mend the definition or raise quarantine.threshold.",
        )


def refuse_missing_event_time(pipeline: Pipeline, plan: Plan, history: History) -> None:
    if pipeline.event_time.missing != "fail" or not plan.missing_event_times:
        return
    missing = history.records.where(F.col(EVENT_TIME).isNull())
    first = missing.select(F.min(F.struct(ARRIVAL, "rw_partition", "rw_offset"))).collect()[0][0]
    raise HistoryError(
        f"{plan.missing_event_times} records have no event time, and event_time.missing is `fail`, as in Flink",
        f"{pipeline.name}, first at partition {first[1]}, offset {first[2]}",
        "Choose `missing: quarantine` or `missing: drop`, or mend event_time.expression.",
    )


@dataclass(frozen=True, slots=True)
class Carried:
    """The timeline state of an earlier run, and the records after its as-of vector."""

    run_id: str
    state: dict
    records: DataFrame


def carried_state(
    spark: SparkSession, tables: Tables, plan: Plan, spec: ReplaySpec, records: DataFrame
) -> Carried | None:
    """The nearest earlier state from which the timeline of this range can go on; None: read from the start.

    It must be of the same definition and of an earlier as-of vector, and its watermark must not have
    reached the range: closes before it cannot be told any more. Who asks for them always reads from the start.
    """
    if asks_for_old_closes(spec) or spec.restarts:
        return None
    rows = (
        spark.table(tables.timeline_state)
        .where((F.col("pipeline") == plan.pipeline) & (F.col("definition_hash") == plan.definition_hash))
        .where(F.col("watermark_below") < F.lit(plan.span.start))
        .orderBy(F.desc("processing_time_end"), F.desc("saved_at"))
        .select("run_id", "as_of", "state", F.unix_millis("processing_time_end").alias("until"))
        .collect()
    )
    for row in rows:
        earlier = all(p in plan.as_of and end <= plan.as_of[p] for p, end in row["as_of"].items())
        if not earlier or row["until"] > plan.processing_time_end:
            continue
        rest = arrived_since(records, row["as_of"])
        state = json.loads(row["state"])
        if state.get("topic_id") != topic_id_of(plan):  # a topic that was made again: another log
            continue
        if state["kind"] == "simulation":
            first = rest.agg(F.min(record_position(rest).as_struct())).collect()[0][0]
            if first is not None and not can_continue(state, spec.strategy, tuple(first)):
                continue
        return Carried(row["run_id"], state, rest)
    return None
