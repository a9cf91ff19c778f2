"""Do: carry out a plan, stage by stage, and publish its tables."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs import __version__
from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import CatalogError, HistoryError
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.lakehouse.tables import (
    RUNS_SCHEMA,
    TIMELINE_STATE_SCHEMA,
    Staging,
    Tables,
    append_rows,
    create_tables,
)
from spark_jobs.plan import Plan, read_planned
from spark_jobs.progress import Progress
from spark_jobs.replay.assign import END, START, Span, longest
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION, record_position
from spark_jobs.replay.engine import FIRED_COLUMNS, History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.simulation import can_continue
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.replay.windows import DROPPED, LATE, ON_TIME, PANE, STATE
from spark_jobs.sources import good, quarantined, reading


@dataclass(slots=True)
class RunResult:
    """What a run did. `pairs_*` count pairs of record and window; `records_late` rows of the late table."""

    run_id: str
    tables: Tables
    records_read: int = 0
    records_quarantined: int = 0
    windows: int = 0
    windows_open: int = 0
    windows_all_late: int = 0
    pairs_on_time: int = 0
    pairs_late: int = 0
    pairs_dropped: int = 0
    records_late: int = 0
    watermark_note: str = ""
    continued_from: str | None = None
    timings: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str, clock: Callable[[], float]) -> Iterator[None]:
        began = clock()
        yield
        self.timings[stage] = round(self.timings.get(stage, 0.0) + clock() - began, 3)


def new_run_id(pipeline: Pipeline, now: datetime) -> str:
    """`<pipeline>-<UTC time>-<random>`."""
    return f"{pipeline.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"


def execute(
    spark: SparkSession,
    pipeline: Pipeline,
    plan: Plan,
    progress: Progress,
    *,
    panes: Panes | None = None,
    records: DataFrame | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Carry out `plan`: timeline, windows chunk by chunk, late records, quarantine; then publish.

    `records` are the plan's, where the caller has read them already (`planned_records`).

    Raises HistoryError where a record breaks a rule (before anything is written), CatalogError where the
    tables cannot be written (the published ones stay as they were).
    """
    started = now()
    tables = Tables.of(pipeline)
    result = RunResult(new_run_id(pipeline, started), tables, plan.records, plan.quarantined)
    _check_quarantine(pipeline, plan)
    if records is None:
        records = read_planned(spark, pipeline, plan)
    spec = spec_of(pipeline, [p.partition for p in plan.partitions], mode=Mode(plan.mode), panes=panes)
    history = History(good(records), plan.event_times, plan.processing_time_end)
    _refuse_missing_event_time(pipeline, plan, history)
    create_tables(spark, tables)
    carried = carried_state(spark, tables, plan, spec, history.records)
    result.continued_from = carried.run_id if carried else None
    with (
        Replay(history, spec, state=carried and carried.state, timeline_records=carried and carried.records) as replay,
        reading(plan.pipeline),
    ):
        faithful = spec.mode is not Mode.COMPLETE
        if faithful:
            with progress.stage("timeline", plan.watermark), result.timed("timeline", clock):
                result.watermark_note = replay.timeline.note
        windows = _stage_windows(spark, replay, plan, result, progress, clock)
        staged = [windows]
        if faithful:
            staged.insert(0, _stage_late(spark, replay, plan, result, progress, clock))
        staged.insert(0, _stage_quarantine(spark, records, plan, result, progress, clock))
        with progress.stage("publish", tables.windows), result.timed("publish", clock):
            for staging in staged:
                staging.publish()
        _save_state(spark, pipeline, plan, replay, result, now())
        append_rows(tables.runs, _run_row(spark, pipeline, plan, result, spec.panes, started, now()))
    return result


def _check_quarantine(pipeline: Pipeline, plan: Plan) -> None:
    quarantine = pipeline.quarantine
    if quarantine.threshold.is_exceeded(plan.quarantined, plan.records):
        raise HistoryError(
            f"{plan.quarantined} of {plan.records} records cannot be used, more than the quarantine allows",
            pipeline.source_of(("quarantine",)) or pipeline.name,
            "See the reasons with `rewindow plan --quarantined`, mend the definition or raise quarantine.threshold.",
        )


def _refuse_missing_event_time(pipeline: Pipeline, plan: Plan, history: History) -> None:
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
    if isinstance(spec.windows, SessionWindows):
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
        if state["kind"] == "simulation":
            first = rest.agg(F.min(record_position(rest).as_struct())).collect()[0][0]
            if first is not None and not can_continue(state, spec.strategy, tuple(first)):
                continue
        return Carried(row["run_id"], state, rest)
    return None


def _range_condition(span: Span, column: str = "window_start") -> str:
    return f"{column} >= TIMESTAMP '{format_instant(span.start)}' AND {column} < TIMESTAMP '{format_instant(span.end)}'"


def published_windows(windows: DataFrame, run_id: str) -> DataFrame:
    """The engine's windows in the published table's columns: timestamps in UTC, the close as `closed_at`."""
    fired = [c for c in FIRED_COLUMNS if c in windows.columns]
    rest = [c for c in windows.columns if c not in (START, END, *fired)]
    closed_at = (
        F.when(F.col(FIRED_COLUMNS[0]) < F.lit(NEVER), F.timestamp_millis(FIRED_COLUMNS[0]))
        if fired
        else F.lit(None).cast("timestamp")
    )
    return windows.select(
        F.lit(run_id).alias("run_id"),
        F.timestamp_millis(START).alias("window_start"),
        F.timestamp_millis(END).alias("window_end"),
        *rest,
        closed_at.alias("closed_at"),
    )


def _stage_windows(
    spark: SparkSession, replay: Replay, plan: Plan, result: RunResult, progress: Progress, clock: Callable[[], float]
) -> Staging:
    staging: Staging | None = None
    for number, chunk in enumerate(plan.chunks, 1):
        label = f"{number} of {len(plan.chunks)}: {format_instant(chunk.start)} to {format_instant(chunk.end)}"
        with progress.stage("windows", label), result.timed("windows", clock):
            rows = published_windows(replay.windows(chunk), result.run_id)
            if staging is None:
                staging = Staging(spark, result.tables.windows, rows.schema, result.run_id, _range_condition(plan.span))
            staging.append(rows)
    if staging is None:
        raise CatalogError("the plan has no chunk", plan.pipeline, "Plan again.")
    written = staging.rows().where(F.col("run_id") == result.run_id)
    if PANE in written.columns and STATE in written.columns:
        last = written.where(_is_last_pane(replay))
        counts = last.agg(
            F.expr("count(*)"), F.count_if(F.col(STATE) == "open"), F.count_if(F.col(STATE) == "all_late"),
            F.sum(ON_TIME), F.sum(LATE), F.sum(DROPPED),
        ).collect()[0]  # fmt: skip
        (result.windows, result.windows_open, result.windows_all_late,
         result.pairs_on_time, result.pairs_late, result.pairs_dropped) = (int(c or 0) for c in counts)  # fmt: skip
    else:
        result.windows = written.count()
    return staging


def _is_last_pane(replay: Replay) -> str:
    if replay.spec.panes is Panes.LAST:
        return "TRUE"
    if replay.merges:
        return f"{PANE} IS NULL OR {PANE} = 0"
    return f"{PANE} IS NULL OR {PANE} = {LATE} - IF({ON_TIME} > 0, 0, 1)"


def _stage_late(
    spark: SparkSession, replay: Replay, plan: Plan, result: RunResult, progress: Progress, clock: Callable[[], float]
) -> Staging:
    staging: Staging | None = None
    with progress.stage("late records", result.tables.late), result.timed("late", clock):
        for index, chunk in enumerate(plan.chunks):
            is_last = index == len(plan.chunks) - 1
            # Records just behind the range can still have missed its last windows.
            reach = 0 if replay.merges or not is_last else longest(replay.spec.windows)
            late = replay.late(Span(chunk.start, chunk.end + reach), plan.span)
            rows = _published_late(late, result.run_id)
            if staging is None:
                staging = Staging(
                    spark, result.tables.late, rows.schema, result.run_id, _range_condition(plan.span, "range_start")
                )
            staging.append(rows)
        if staging is None:
            raise CatalogError("the plan has no chunk", plan.pipeline, "Plan again.")
        result.records_late = staging.rows().where(F.col("run_id") == result.run_id).count()
    return staging


def _published_late(late: DataFrame, run_id: str) -> DataFrame:
    instants = {ARRIVAL: "arrival", EVENT_TIME: "event_time", START: "window_start", END: "window_end"}
    renamed = {"rw_partition": "partition", "rw_offset": "offset", "rw_sequence": "sequence"}
    columns = [F.lit(run_id).alias("run_id")]
    for name in late.columns:
        if name in instants:
            columns.append(F.timestamp_millis(name).alias(instants[name]))
        else:
            columns.append(F.col(name).alias(renamed.get(name, name)))
    placed = late.select(*columns)
    return placed.withColumn("range_start", F.coalesce("window_start", "event_time"))


def _stage_quarantine(
    spark: SparkSession,
    records: DataFrame,
    plan: Plan,
    result: RunResult,
    progress: Progress,
    clock: Callable[[], float],
) -> Staging:
    with progress.stage("quarantine", f"{plan.quarantined} records"), result.timed("quarantine", clock):
        rows = quarantined(records).select(F.lit(result.run_id).alias("run_id"), "*")
        # A record that cannot be used is in no range: the table holds those of the last run.
        staging = Staging(spark, result.tables.quarantine, rows.schema, result.run_id, "TRUE")
        if plan.quarantined:
            staging.append(rows)
    return staging


def _save_state(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, replay: Replay, result: RunResult, at: datetime
) -> None:
    if replay.spec.mode is Mode.COMPLETE:
        return
    state = replay.timeline.state
    row = (
        pipeline.name, plan.definition_hash, result.run_id, plan.as_of, _instant(plan.processing_time_end),
        replay.timeline.watermark_below, json.dumps(state), at,
    )  # fmt: skip
    append_rows(result.tables.timeline_state, spark.createDataFrame([row], TIMELINE_STATE_SCHEMA))


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _run_row(
    spark: SparkSession,
    pipeline: Pipeline,
    plan: Plan,
    result: RunResult,
    panes: Panes,
    started: datetime,
    finished: datetime,
) -> DataFrame:
    row = (
        result.run_id, pipeline.name, "published", plan.definition_hash, pipeline.to_canonical_json(),
        _instant(plan.span.start), _instant(plan.span.end), plan.as_of, _instant(plan.processing_time_end), plan.mode,
        panes.value, plan.fidelity, list(plan.fidelity_reasons), result.records_read, result.records_quarantined,
        result.windows, result.windows_open, result.windows_all_late, result.pairs_on_time, result.pairs_late,
        result.pairs_dropped, result.records_late, result.timings, __version__, started, finished,
    )  # fmt: skip
    return spark.createDataFrame([row], RUNS_SCHEMA)
