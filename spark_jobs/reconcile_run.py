"""Do: the nightly reconciliation. What arrived since the last run, the windows that it touched, and no more."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import KafkaHistory
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.lakehouse.facts import Facts, Publication
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import Tables, create_tables
from spark_jobs.plan import Plan, chunks_of, make_plan
from spark_jobs.progress import Progress
from spark_jobs.reconcile.nightly import Before, Touched, arrived_since, merged, run_before, touched_windows
from spark_jobs.replay.assign import Span
from spark_jobs.replay.columns import ARRIVAL, Held, record_position
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of, windows_of
from spark_jobs.replay.simulation import can_continue
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.run import check_quarantine, execute, refuse_missing_event_time
from spark_jobs.sources import Inspection, OpenHistory, canonical, cut_at, good, inspect_history, open_history, reading
from spark_jobs.stages import (
    Job,
    RunResult,
    SideRows,
    cause_of_change,
    chosen_run_id,
    fail,
    first_row,
    identity_of,
    publish_run,
    stage_windows,
    tell_changes,
)


def reconcile(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    *,
    until: int | None = None,
    run_id: str | None = None,
    reason: str = "",
    publish: bool = True,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Bring the published windows to what has arrived before `until` (epoch ms; default: all that is there).

    The tables are then those of a full run at the same as-of vector. A first run, another definition, sessions, and a
    new partition are full runs; `result.note` says so. `publish=False` only tells what would change.

    Raises as `spark_jobs.run.execute`.
    """
    tables = Tables.of(pipeline)
    create_tables(spark, tables)
    ledger = Ledger(spark, tables)
    ledger.settle(now())
    before, why = run_before(spark, tables, pipeline)
    if before is not None and isinstance(windows_of(pipeline), SessionWindows):
        before, why = None, "sessions are read as a whole"
    if before is not None and pipeline.live is not None and pipeline.live.restarts:
        before, why = None, "the live job was restarted: its timeline is made as a whole"
    options = {"run_id": run_id, "reason": reason, "publish": publish, "now": now, "clock": clock}
    if before is None:
        return _full(spark, pipeline, progress, until, why, **options)
    opened = open_history(spark, pipeline)
    _refuse_another_topic(opened, before)
    everything = canonical(opened.frame, pipeline)
    new = _arrived_before(arrived_since(_news_of(spark, pipeline, opened, before), before.as_of), until)
    with progress.stage("new records", opened.description):
        seen = inspect_history(spark, pipeline, opened, records=new)
    if {p.partition for p in seen.partitions} - before.as_of.keys():
        return _full(spark, pipeline, progress, until, "there is a new partition", **options)
    if not seen.records:
        result = RunResult(run_id or before.run_id, tables)
        result.note = f"nothing has arrived since run {before.run_id}"
        return result
    published = _published_starts(spark, tables)
    times = Span(
        min(published.start, seen.event_times.start if seen.event_times else published.start),
        max(published.end, seen.event_times.end if seen.event_times else published.end),
    )
    known = replace(seen, partitions=merged(before, seen), event_times=times)
    plan = make_plan(spark, pipeline, opened=opened, seen=known)
    spec = spec_of(pipeline, sorted(before.as_of))
    if not _state_fits(before, spec, new):
        return _full(spark, pipeline, progress, until, "the saved watermark state is ahead of new records", **options)
    new = cut_at(new, plan.as_of)
    return _incremental(
        spark, pipeline, progress, plan, spec, before, known, cut_at(everything, plan.as_of), new, published,
        run_id=run_id, reason=reason, publish=publish, now=now, clock=clock,
    )  # fmt: skip


def _incremental(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    plan: Plan,
    spec: ReplaySpec,
    before: Before,
    seen: Inspection,
    records: DataFrame,
    new: DataFrame,
    published: Span,
    *,
    run_id: str | None,
    reason: str,
    publish: bool,
    now: Callable[[], datetime],
    clock: Callable[[], float],
) -> RunResult:
    started = now()
    tables = Tables.of(pipeline)
    result = RunResult(chosen_run_id(pipeline, run_id, started), tables, seen.records, seen.quarantined)
    result.continued_from = before.run_id
    check_quarantine(pipeline, plan)
    history = History(good(records), plan.event_times, plan.processing_time_end)
    refuse_missing_event_time(pipeline, plan, replace(history, records=good(new)))
    staging, facts, ledger = Staging(spark, tables.staging(result.run_id)), Facts(spark, tables.windows), None
    ledger = Ledger(spark, tables)
    job = Job(spark, pipeline, plan, progress, result, ledger, facts, staging, now, clock)
    ledger.begin(first_row(job, spec, "reconcile", reason, started))
    held = Held()
    try:
        with (
            Replay(history, spec, state=before.state, timeline_records=good(new), earlier=before.steps) as replay,
            reading(plan.pipeline),
        ):
            with job.stage("timeline", plan.watermark):
                result.watermark_note = replay.timeline.note
            with job.stage("touched", "windows that new records belong to"):
                touched = touched_windows(good(new), spec, before, published, held)
            base = stage_windows(job, replay, _parts(spec, touched))
            reach = Span(touched.older.start if touched.older else touched.recent.start, touched.recent.end)
            publication = Publication(
                run_id=result.run_id,
                span=reach,
                staged=staging.rows(),
                identity=identity_of(spec),
                in_scope=lambda windows: touched.in_scope(windows, spec.keys),
                cause=cause_of_change(ledger.published(), plan),
                as_of=plan.as_of,
            )
            if publish:
                late = lambda: (replay.late(chunk, plan.span, good(new)) for chunk in plan.chunks)  # noqa: E731
                publish_run(job, replay, publication, base, SideRows(late, new, replaces=False))
            else:
                tell_changes(job, publication)
    except Exception as problem:
        fail(job, problem)
        raise
    finally:
        held.release()
        ledger.end(result.run_id)
    return result


def _parts(spec: ReplaySpec, touched: Touched) -> list[tuple[Span, DataFrame | None]]:
    parts: list[tuple[Span, DataFrame | None]] = []
    if touched.older is not None:
        parts += [(chunk, touched.pairs) for chunk in chunks_of(spec.windows, touched.older)]
    if touched.recent.start < touched.recent.end:
        parts += [(chunk, None) for chunk in chunks_of(spec.windows, touched.recent)]
    return parts


def _full(
    spark: SparkSession, pipeline: Pipeline, progress: Progress, until: int | None, why: str, *, reason: str, **options
) -> RunResult:
    as_of = None
    if until is not None:
        opened = open_history(spark, pipeline)
        seen = inspect_history(
            spark, pipeline, opened, records=_arrived_before(canonical(opened.frame, pipeline), until)
        )
        as_of = {p.partition: p.end_offset for p in seen.partitions}
    with progress.stage("plan", why):
        plan = make_plan(spark, pipeline, as_of=as_of)
    result = execute(spark, pipeline, plan, progress, kind="reconcile", reason=reason or why, **options)
    result.note = result.note or f"a full run: {why}"
    return result


def _refuse_another_topic(opened: OpenHistory, before: Before) -> None:
    seen = before.state.get("topic_id")
    if opened.topic is not None and seen is not None and opened.topic.topic_id != seen:
        raise HistoryError(
            f"the topic has been made again since run {before.run_id} (id {seen}, now {opened.topic.topic_id})",
            opened.description,
            "Its offsets say other records now. Stitch the old ones from an archive, or run with another output table.",
        )


def _news_of(spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, before: Before) -> DataFrame:
    """Canonical records, of a topic only those behind the as-of vector: a broker seeks, it does not filter."""
    topic = opened.topic
    if topic is None or not isinstance(pipeline.history, KafkaHistory):
        return canonical(opened.frame, pipeline)
    seen = before.as_of
    ranges = (replace(r, start=max(r.start, min(seen.get(r.partition, r.start), r.end))) for r in topic.ranges)
    behind = replace(topic, ranges=tuple(ranges))
    return canonical(open_history(spark, pipeline, topic=behind).frame, pipeline)


def _arrived_before(records: DataFrame, until: int | None) -> DataFrame:
    return records if until is None else records.where(F.col(ARRIVAL) < F.lit(until))


def _state_fits(before: Before, spec: ReplaySpec, new: DataFrame) -> bool:
    if before.state["kind"] != "simulation":
        return True
    first = new.agg(F.min(record_position(new).as_struct())).collect()[0][0]
    return first is None or can_continue(before.state, spec.strategy, tuple(first))


def _published_starts(spark: SparkSession, tables: Tables) -> Span:
    bounds = [F.unix_millis(f("window_start")) for f in (F.min, F.max)]
    low, high = spark.table(tables.windows).agg(*bounds).collect()[0]
    return Span(low, high + 1) if low is not None else Span(0, 1)
