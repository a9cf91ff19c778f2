"""Do: carry out a plan, stage by stage, and publish its tables."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.lakehouse.facts import Facts, Publication
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import (
    Tables,
    create_tables,
)
from spark_jobs.plan import Plan, read_planned
from spark_jobs.progress import Progress
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, record_position
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.simulation import can_continue
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.sources import good, reading
from spark_jobs.stages import (
    Job,
    RunResult,
    SideRows,
    cause_of_change,
    chosen_run_id,
    fail,
    first_row,
    identity_of,
    late_of_chunks,
    publish_run,
    range_condition,
    stage_windows,
    tell_changes,
    topic_id_of,
)


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
    publish: bool = True,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Carry out `plan`: timeline, windows chunk by chunk into staging, then late records, quarantine, and publish.

    `records` are the plan's, where the caller has read them already (`planned_records`). A `run_id` that has been
    published already changes nothing. `publish=False` only tells, in `changes`, what publishing would change.

    Raises HistoryError where a record breaks a rule (before anything is written), CatalogError where the tables cannot
    be written or another run has published the same range meanwhile (the published tables stay as they were).
    """
    started = now()
    tables = Tables.of(pipeline)
    result = RunResult(chosen_run_id(pipeline, run_id, started), tables, plan.records, plan.quarantined)
    check_quarantine(pipeline, plan)
    if records is None:
        records = read_planned(spark, pipeline, plan)
    spec = spec_of(pipeline, [p.partition for p in plan.partitions], mode=Mode(plan.mode), panes=panes)
    history = History(good(records), plan.event_times, plan.processing_time_end)
    refuse_missing_event_time(pipeline, plan, history)
    create_tables(spark, tables)
    ledger = Ledger(spark, tables)
    ledger.settle(started)
    if run_id and ledger.is_published(run_id):
        result.note = "this run has been published already; nothing was done"
        return result
    staging = Staging(spark, tables.staging(result.run_id))
    facts = Facts(spark, tables.windows)
    job = Job(spark, pipeline, plan, progress, result, ledger, facts, staging, now, clock)
    carried = carried_state(spark, tables, plan, spec, history.records)
    result.continued_from = carried.run_id if carried else None
    ledger.begin(first_row(job, spec, kind, reason, started))
    try:
        with (
            Replay(
                history, spec, state=carried and carried.state, timeline_records=carried and carried.records
            ) as replay,
            reading(plan.pipeline),
        ):
            if spec.mode is not Mode.COMPLETE:
                with job.stage("timeline", plan.watermark):
                    result.watermark_note = replay.timeline.note
            base = stage_windows(job, replay, [(chunk, None) for chunk in plan.chunks])
            publication = Publication(
                run_id=result.run_id,
                span=plan.span,
                staged=staging.rows(),
                identity=identity_of(spec),
                in_scope=lambda windows: windows.where(range_condition(plan.span)),
                cause=cause_of_change(ledger.published(), plan),
                as_of=plan.as_of,
            )
            if publish:
                side = SideRows(lambda: late_of_chunks(job, replay), records, replaces=True)
                publish_run(job, replay, publication, base, side)
            else:
                tell_changes(job, publication)
    except Exception as problem:
        fail(job, problem)
        raise
    finally:
        ledger.end(result.run_id)
    return result


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
    reached the range: closes before it cannot be told any more. Sessions always read from the start.
    """
    if isinstance(spec.windows, SessionWindows) or spec.restarts:
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
        limits = " ".join(f"WHEN {int(p)} THEN {OFFSET} >= {int(end)}" for p, end in row["as_of"].items())
        rest = records.where(F.expr(f"CASE {PARTITION} {limits} ELSE TRUE END"))
        state = json.loads(row["state"])
        if state.get("topic_id") != topic_id_of(plan):  # a topic that was made again: another log
            continue
        if state["kind"] == "simulation":
            first = rest.agg(F.min(record_position(rest).as_struct())).collect()[0][0]
            if first is not None and not can_continue(state, spec.strategy, tuple(first)):
                continue
        return Carried(row["run_id"], state, rest)
    return None
