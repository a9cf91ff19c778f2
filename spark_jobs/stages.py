"""The stages of a run, each of which writes one thing: staged windows, side tables, state, the published table."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs import __version__
from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import CatalogError, DefinitionError
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.lakehouse.facts import Cause, Facts, Publication
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import (
    LAYOUT,
    TIMELINE_STATE_SCHEMA,
    Tables,
    aligned,
    append_rows,
    ensure_table,
    guarded,
)
from spark_jobs.plan import Plan
from spark_jobs.progress import Progress
from spark_jobs.replay.assign import END, START, Span, longest
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER
from spark_jobs.replay.engine import FIRED_COLUMNS, Replay
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.replay.windows import DROPPED, LATE, ON_TIME, PANE, STATE
from spark_jobs.sources import quarantined


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
    changes: dict[str, int] = field(default_factory=dict)
    note: str = ""
    watermark_note: str = ""
    continued_from: str | None = None
    timings: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str, clock: Callable[[], float]) -> Iterator[None]:
        began = clock()
        yield
        self.timings[stage] = round(self.timings.get(stage, 0.0) + clock() - began, 3)


_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,199}")


def chosen_run_id(pipeline: Pipeline, asked: str | None, now: datetime) -> str:
    """The run id that was asked for, or `<pipeline>-<UTC time>-<random>`. Raises DefinitionError for an odd one."""
    if asked is None:
        return f"{pipeline.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    if not _RUN_ID.fullmatch(asked):
        raise DefinitionError(
            f"{asked[:60]!r} is not a run id", mend="Write at most 200 letters, digits and any of _ . : + -"
        )
    return asked


@dataclass(frozen=True)
class Job:
    """One run on its way: what is to be done, and with what."""

    spark: SparkSession
    pipeline: Pipeline
    plan: Plan
    progress: Progress
    result: RunResult
    ledger: Ledger
    facts: Facts
    staging: Staging
    now: Callable[[], datetime]
    clock: Callable[[], float]

    @contextmanager
    def stage(self, name: str, detail: str, timed_as: str = "") -> Iterator[None]:
        with self.progress.stage(name, detail), self.result.timed(timed_as or name, self.clock):
            yield


def fail(job: Job, problem: Exception) -> None:
    """Say in the ledger that the run failed, if the catalog still answers."""
    with suppress(CatalogError):
        for table in (job.result.tables.late, job.result.tables.quarantine):
            if job.spark.catalog.tableExists(table):
                job.ledger.delete_rows(table, job.result.run_id)
        job.staging.drop()
        job.ledger.update(job.result.run_id, status="failed", reason=str(problem)[:1000], finished_at=job.now())


def identity_of(spec: ReplaySpec) -> tuple[str, ...]:
    """The published columns that tell one window from another, or one pane."""
    by_pane = spec.panes is Panes.ALL or isinstance(spec.windows, SessionWindows)
    return (*spec.keys, "window_start", "window_end", *((PANE,) if by_pane else ()))


@dataclass(frozen=True)
class SideRows:
    """What a run adds to the side tables. `replaces`: its rows stand for all that earlier runs wrote of the range."""

    late: Callable[[], Iterable[DataFrame]]
    quarantine: DataFrame
    replaces: bool


def publish_run(job: Job, replay: Replay, publication: Publication, base: int, side: SideRows) -> None:
    """Side tables first, with the run's id; then the windows, in one commit; then what they replace goes."""
    result, tables, ledger = job.result, job.result.tables, job.ledger
    faithful = replay.spec.mode is not Mode.COMPLETE
    if faithful:
        write_late(job, side.late())
    write_quarantine(job, side.quarantine)
    save_state(job, replay)
    ledger.update(result.run_id, status="publishing", **_counts(result))
    with job.stage("publish", tables.windows):
        result.changes = job.facts.publish(publication, base, job.now())
        if side.replaces:
            if faithful:
                _delete_superseded(job, tables.late, range_condition(job.plan.span, "range_start"))
            _delete_superseded(job, tables.quarantine, "TRUE")
        job.staging.drop()  # before the last word in the ledger: of a run that has ended nobody looks for leftovers
        ledger.update(result.run_id, status="published", finished_at=job.now(), **_counts(result))


def tell_changes(job: Job, publication: Publication) -> None:
    """Say what publishing would change, and publish nothing."""
    with job.stage("diff", job.result.tables.windows):
        found = job.facts.changes(publication, job.now()).groupBy("rw_change").count().collect()
        job.result.changes = {row[0]: row[1] for row in found}
    job.staging.drop()
    job.ledger.update(job.result.run_id, status="dry run", changes=job.result.changes, finished_at=job.now())


def _delete_superseded(job: Job, table: str, where: str) -> None:
    """Rows of earlier runs that this run's rows stand for."""
    replaced = f"({where}) AND run_id <> '{job.result.run_id}'"
    if not job.spark.table(table).where(replaced).isEmpty():
        guarded("cannot write", table, lambda: job.spark.sql(f"DELETE FROM {table} WHERE {replaced}"))


def range_condition(span: Span, column: str = "window_start") -> str:
    return f"{column} >= TIMESTAMP '{format_instant(span.start)}' AND {column} < TIMESTAMP '{format_instant(span.end)}'"


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


def stage_windows(job: Job, replay: Replay, parts: Sequence[tuple[Span, DataFrame | None]]) -> int:
    """Stage all parts, a range of windows and perhaps the only ones of it that are asked for.

    Returns the snapshot of the published table that the run started from.
    """
    plan, result = job.plan, job.result
    base = None
    for number, (chunk, only) in enumerate(parts, 1):
        label = f"{number} of {len(parts)}: {format_instant(chunk.start)} to {format_instant(chunk.end)}"
        with job.stage("windows", label):
            rows = published_windows(replay.windows(chunk, only=only))
            if base is None:
                base = job.facts.prepare(rows.schema)
            job.staging.write(number, rows)
    if base is None:
        raise CatalogError("the plan has no chunk", plan.pipeline, "Plan again.")
    written = job.staging.rows()
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
    return base


def _is_last_pane(replay: Replay) -> str:
    if replay.spec.panes is Panes.LAST:
        return "TRUE"
    if replay.merges:
        return f"{PANE} IS NULL OR {PANE} = 0"
    return f"{PANE} IS NULL OR {PANE} = {LATE} - IF({ON_TIME} > 0, 0, 1)"


def late_of_chunks(job: Job, replay: Replay) -> Iterator[DataFrame]:
    """The late records of the plan's range, chunk by chunk."""
    plan = job.plan
    for index, chunk in enumerate(plan.chunks):
        is_last = index == len(plan.chunks) - 1
        # Records just behind the range can still have missed its last windows.
        reach = 0 if replay.merges or not is_last else longest(replay.spec.windows)
        yield replay.late(Span(chunk.start, chunk.end + reach), plan.span)


def write_late(job: Job, frames: Iterable[DataFrame]) -> None:
    result = job.result
    with job.stage("late records", result.tables.late, "late"):
        for late in frames:
            _append(job, result.tables.late, _published_late(late, result.run_id))
        mine = job.spark.table(result.tables.late).where(F.col("run_id") == result.run_id)
        result.records_late = mine.count()


def _append(job: Job, table: str, rows: DataFrame) -> None:
    """Append to a side table, which is made or widened as the rows need it."""

    def append() -> None:
        ensure_table(job.spark, table, rows.schema)
        aligned(job.spark, table, rows).writeTo(table).append()

    guarded("cannot write", table, append, reads_history=True)


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


def write_quarantine(job: Job, records: DataFrame) -> None:
    """A record that cannot be used is in no range: the table holds those of the last run."""
    with job.stage("quarantine", f"{job.plan.quarantined} records"):
        rows = quarantined(records).select(F.lit(job.result.run_id).alias("run_id"), "*")
        _append(job, job.result.tables.quarantine, rows if job.plan.quarantined else rows.limit(0))


def save_state(job: Job, replay: Replay) -> None:
    """Keep what the watermark logic held at the end, and the timeline where it is small; once an as-of vector."""
    if replay.spec.mode is Mode.COMPLETE:
        return
    spark, plan, table = job.spark, job.plan, job.result.tables.timeline_state
    steps = replay.timeline.steps
    state = replay.timeline.state | {"topic_id": topic_id_of(plan)}
    row = (
        job.pipeline.name, plan.definition_hash, job.result.run_id, plan.as_of, _instant(plan.processing_time_end),
        replay.timeline.watermark_below, json.dumps(state), steps and steps.to_bytes(), job.now(),
    )  # fmt: skip
    same = (
        spark.table(table)
        .where((F.col("pipeline") == job.pipeline.name) & (F.col("definition_hash") == plan.definition_hash))
        .where(F.col("processing_time_end") == F.lit(_instant(plan.processing_time_end)))
    )
    for earlier in same.select("run_id", "as_of").collect():
        if earlier["as_of"] == plan.as_of:
            job.ledger.delete_rows(table, earlier["run_id"])
    append_rows(table, spark.createDataFrame([row], TIMELINE_STATE_SCHEMA))


def topic_id_of(plan: Plan) -> str | None:
    """The id of the plan's Kafka topic; a topic that is deleted and made again has another."""
    return plan.topic.topic_id if plan.topic is not None else None


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def first_row(job: Job, spec: ReplaySpec, kind: str, reason: str, started: datetime) -> dict[str, Any]:
    """What the ledger says of a run from its start on; `kind` is backfill or reconcile."""
    plan = job.plan
    return {
        "run_id": job.result.run_id, "pipeline": job.pipeline.name, "kind": kind,
        "definition_hash": plan.definition_hash, "definition": job.pipeline.to_canonical_json(),
        "range_start": _instant(plan.span.start), "range_end": _instant(plan.span.end), "as_of": plan.as_of,
        "processing_time_end": _instant(plan.processing_time_end), "mode": plan.mode, "panes": spec.panes.value,
        "fidelity": plan.fidelity, "fidelity_reasons": list(plan.fidelity_reasons),
        "reason": reason or None, "whole": plan.is_whole,
        "rewindow_version": __version__, "layout": LAYOUT, "started_at": started,
    }  # fmt: skip


def _counts(result: RunResult) -> dict[str, Any]:
    """What the ledger says of a run once it has ended."""
    names = (
        "records_read", "records_quarantined", "windows", "windows_open", "windows_all_late", "pairs_on_time",
        "pairs_late", "pairs_dropped", "records_late", "changes", "timings",
    )  # fmt: skip
    return {name: getattr(result, name) for name in names}


def cause_of_change(published: Sequence[Row], plan: Plan) -> Column:
    """The cause of a window's change, from the run that published what was there (`old_run_id`), or its range.

    Another definition: `logic_change`. The same one and more records: `late_arrivals`. The same one and the same
    records: `source_repair`. A range that no run has published: `backfill`.
    """

    def cause(row: Row) -> Cause:
        if row["definition_hash"] != plan.definition_hash:
            return Cause.LOGIC_CHANGE
        seen, now = row["as_of"] or {}, plan.as_of
        if seen == now:
            return Cause.SOURCE_REPAIR
        more = all(end <= now.get(partition, -1) for partition, end in seen.items())
        return Cause.LATE_ARRIVALS if more else Cause.BACKFILL

    column = F.lit(Cause.BACKFILL.value)
    for row in reversed(published):  # the latest run is asked first
        covered = (F.col("rw_start") >= F.lit(row["range_start"])) & (F.col("rw_start") < F.lit(row["range_end"]))
        column = F.when(covered, F.lit(cause(row).value)).otherwise(column)
    known = [F.lit(value) for row in published for value in (row["run_id"], cause(row).value)]
    return F.coalesce(F.create_map(*known)[F.col("old_run_id")], column) if known else column
