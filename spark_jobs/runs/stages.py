"""The stages of a run. Each writes one thing and can be repeated; the later ones need nothing but what is written.

`timeline` (in `spark_jobs.runs.backfill`), then `stage_windows` and `stage_late` chunk by chunk, `verify`, `publish`.
One process does them all, or each its own: what they hand on lies in staging
tables and in the run's folder (`spark_jobs.runs.store`).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property, partial
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs import __version__
from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.policy import Policy
from spark_jobs.errors import CatalogError, RewindowError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.lakehouse.ledger import STAGED_PROCESS, Ledger, this_process
from spark_jobs.lakehouse.published_table import Cause, Difference, Publication, PublishedTable
from spark_jobs.lakehouse.staging import Part, Staging
from spark_jobs.lakehouse.tables import (
    LAYOUT,
    TIMELINE_STATE_SCHEMA,
    Tables,
    aligned,
    ensure_table,
    guarded,
    row_frame,
    starts_within,
)
from spark_jobs.replay.assign import END, START, longest
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER
from spark_jobs.replay.engine import FIRED_COLUMNS, Replay, SavedTimeline
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.replay.timeline import Timeline
from spark_jobs.replay.windows import DROPPED, LATE, ON_TIME, PANE, STATE
from spark_jobs.runs.affected import AffectedWindows
from spark_jobs.runs.decision import Action, Decision, decide
from spark_jobs.runs.plan import Plan
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.request import request_record
from spark_jobs.runs.staged_run import StagedRun
from spark_jobs.runs.store import (
    APPLICATION,
    CHANGES,
    DEFINITION,
    FACTS,
    GATE,
    OUTCOME,
    PLAN,
    REQUEST,
    STEPS,
    TIMELINE,
    RunFolder,
    checked_run_id,
)
from spark_jobs.sources import QUARANTINE_SCHEMA, quarantined
from spark_jobs.spark.parallel import run_parallel

GateCheck = Callable[[StagedRun], Mapping[str, Any]]
"""What the gate is: evidence in, its document (`gate.json`) out."""

_QUARANTINE = StructType([StructField("run_id", StringType()), *QUARANTINE_SCHEMA])

ReportCollector = Callable[[StagedRun], Mapping[str, Any]]
"""What gathers the report's facts: evidence in, `facts.json` out."""


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
    decision: Decision | None = None

    @contextmanager
    def timed(self, stage: str, clock: Callable[[], float]) -> Iterator[None]:
        began = clock()
        yield
        self.timings[stage] = round(self.timings.get(stage, 0.0) + clock() - began, 3)


def chosen_run_id(pipeline: Pipeline, asked: str | None, now: datetime) -> str:
    """The run id that was asked for, or `<pipeline>-<UTC time>-<random>`. Raises DefinitionError for an odd one."""
    if asked is None:
        return f"{pipeline.name}-{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    return checked_run_id(asked)


@dataclass(frozen=True)
class Staged:
    """What a run's staged rows stand for.

    `base`: the snapshot of the published table that the run started from; None: there was no table. Of the published
    windows they stand for those with a start in `reach`, or, of a reconciliation, for those with a start in `recent`
    and the ones before that are staged as touched (`older` spans their starts). `replaces`: the late and quarantined
    rows stand for all that earlier runs wrote of the range.
    """

    base: int | None
    reach: TimeRange
    replaces: bool
    recent: TimeRange | None = None
    older: TimeRange | None = None

    def to_dict(self) -> dict[str, Any]:
        spans = {name: _pair(getattr(self, name)) for name in ("reach", "recent", "older")}
        return {"base": self.base, "replaces": self.replaces, **spans}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Staged:
        spans = {name: data[name] and TimeRange(*data[name]) for name in ("reach", "recent", "older")}
        return cls(base=data["base"], replaces=data["replaces"], **spans)


def _pair(span: TimeRange | None) -> list[int] | None:
    return span and [span.start, span.end]


@dataclass(frozen=True)
class Job:
    """One run on its way: what is to be done, and with what. `in_stages`: each stage is a process of its own."""

    spark: SparkSession
    pipeline: Pipeline
    plan: Plan
    spec: ReplaySpec
    kind: str
    progress: Progress
    result: RunResult
    folder: RunFolder
    now: Callable[[], datetime]
    clock: Callable[[], float]
    in_stages: bool = False

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.spark, self.result.tables)

    @cached_property
    def facts(self) -> PublishedTable:
        return PublishedTable(self.spark, self.result.tables.windows)

    @cached_property
    def staging(self) -> Staging:
        return Staging(self.spark, self.result.tables.staging(self.result.run_id))

    @cached_property
    def published(self) -> Sequence[Row]:
        """The runs that have been published, latest first; read once, when the run has its base (`Staged.base`).

        One that is published later, in the same range, closes the way to publishing this one.
        """
        return self.ledger.published()

    @property
    def is_faithful(self) -> bool:
        return self.spec.mode is not Mode.COMPLETE

    @contextmanager
    def stage(self, name: str, detail: str, timed_as: str = "") -> Iterator[None]:
        with self.progress.stage(name, detail), self.result.timed(timed_as or name, self.clock):
            yield

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Whatever goes wrong inside is told by the ledger and the run's folder."""
        try:
            yield
        except Exception as problem:
            fail(self, problem)
            raise
        finally:
            self.ledger.end(self.result.run_id)


def begin(job: Job, reason: str, started: datetime) -> None:
    """Write the run into its folder and into the ledger."""
    if job.folder.read(REQUEST) is None:
        job.folder.write(REQUEST, request_record(job.result.run_id, job.pipeline, job.kind, reason, started))
        job.folder.write_text(DEFINITION, job.pipeline.text)
    job.folder.write_text(PLAN, job.plan.to_json())
    job.ledger.begin(first_row(job, reason, started))


def fail(job: Job, problem: Exception) -> None:
    """Say that the run failed, as far as the catalog still answers.

    What is staged goes, unless the run is in stages: then the stage that failed can be repeated.
    """
    end(job, "failed", **problem_record(problem))
    with suppress(CatalogError):
        if job.facts.head() is not None and job.result.run_id in job.facts.published_runs():
            return  # behind its commit: what is left to do, the next run's `settle` does
        for table in (job.result.tables.late, job.result.tables.quarantine):
            if job.spark.catalog.tableExists(table):
                job.ledger.delete_rows(table, job.result.run_id)
        if not job.in_stages:
            job.staging.drop()
        job.ledger.update(job.result.run_id, status="failed", reason=str(problem)[:1000], finished_at=job.now())


def problem_record(problem: Exception) -> dict[str, Any]:
    """An error for `outcome.json`."""
    if isinstance(problem, RewindowError):
        return {"message": problem.what, "where": problem.where, "hint": problem.hint, "exit_code": problem.exit_code}
    first = next((line.strip() for line in str(problem).splitlines() if line.strip()), type(problem).__name__)
    return {"message": first[:500], "where": type(problem).__name__, "hint": "", "exit_code": 1}


def end(job: Job, status: str, **more: Any) -> None:
    """Write `outcome.json`: where the run stands."""
    result, plan = job.result, job.plan
    applications = [job.folder.read(name) or {} for name in job.folder.documents() if name.startswith(APPLICATION)]
    timings = dict(result.timings)
    for application in applications:
        if application["application_id"] != job.spark.sparkContext.applicationId:
            for stage, seconds in application.get("timings", {}).items():
                timings[stage] = round(timings.get(stage, 0.0) + seconds, 3)
    tables = {name: getattr(result.tables, name) for name in ("windows", "late", "quarantine", "runs")}
    job.folder.write(
        OUTCOME,
        {
            "run_id": result.run_id,
            "status": status,
            "counts": {n: getattr(result, n) for n in COUNTED},
            "changes": result.changes,
            "timings": timings,
            "note": result.note,
            "applications": applications,
            "tables": {**tables, "staging": job.staging.table},
            "fidelity": plan.fidelity,
            "fidelity_reasons": list(plan.fidelity_reasons),
            "version": __version__,
            "finished_at": job.now().isoformat(),
            "message": "",
            "hint": "",
            **more,
        },
    )


def identity_of(spec: ReplaySpec) -> tuple[str, ...]:
    """The published columns that tell one window from another, or one pane."""
    by_pane = spec.panes is Panes.ALL or isinstance(spec.windows, SessionWindows)
    return (*spec.keys, "window_start", "window_end", *((PANE,) if by_pane else ()))


# What is staged.


def save_timeline(job: Job, timeline: Timeline) -> None:
    """Keep the timeline for the stages that follow."""
    steps = timeline.steps
    job.folder.write(TIMELINE, {**timeline.told(), "steps": steps is not None})
    if steps is not None:
        job.folder.write_bytes(STEPS, steps.to_bytes())
    elif job.in_stages:
        job.staging.write(0, timeline.rows(job.spark), Part.TIMELINE)


def saved_timeline(job: Job) -> SavedTimeline | None:
    """What `save_timeline` kept."""
    told = job.folder.read(TIMELINE)
    if told is None:
        return None
    if told.pop("steps"):
        return SavedTimeline(told, InMemoryTimeline.from_bytes(job.folder.read_bytes(STEPS) or b""))
    return SavedTimeline(told, job.staging.rows(Part.TIMELINE))


def prepare_staging(job: Job, replay: Replay) -> None:
    """Make the tables that chunks fill side by side."""
    first = job.plan.chunks[0]
    job.staging.prepare(published_windows(replay.windows(first)).schema)
    if job.is_faithful:
        job.staging.prepare(_published_late(late_of_chunk(job, replay, first)).schema, Part.LATE)


def stage_windows(job: Job, replay: Replay, number: int, of: int, chunk: TimeRange) -> None:
    """Stage the windows with a start in `chunk`."""
    with job.stage("windows", f"{number} of {of}: {format_instant(chunk.start)} to {format_instant(chunk.end)}"):
        job.staging.write(number, published_windows(replay.windows(chunk)))


def late_of_chunk(job: Job, replay: Replay, chunk: TimeRange) -> DataFrame:
    """The late records of a chunk of the plan, for `stage_late`."""
    is_last = chunk == job.plan.chunks[-1]
    # Records just behind the range can still have missed its last windows.
    reach = 0 if replay.merges or not is_last else longest(replay.spec.windows)
    return replay.late(TimeRange(chunk.start, chunk.end + reach), job.plan.span)


def stage_late(job: Job, number: int, late: DataFrame) -> None:
    """Stage late records, in the columns of the late table."""
    with job.stage("late records", job.result.tables.late, "late"):
        job.staging.write(number, _published_late(late), Part.LATE)


def stage_parallel(job: Job, parts: Sequence[tuple[Part, Callable[[], DataFrame]]]) -> None:
    """Stage what the engine gives, windows and late records too, side by side; chunks are numbered in their order."""
    columns = {Part.WINDOWS: published_windows, Part.LATE: _published_late}

    def stage(number: int, part: Part, made: Callable[[], DataFrame]) -> None:
        rows = made()
        job.staging.write(number, columns[part](rows) if part in columns else rows, part)

    run_parallel(job.spark, *(partial(stage, number, *one) for number, one in enumerate(parts, 1)))


def stage_quarantine(job: Job, records: DataFrame) -> None:
    """Stage the records that cannot be used."""
    if job.plan.quarantined:
        with job.stage("quarantine", f"{job.plan.quarantined} records"):
            job.staging.write(0, quarantined(records), Part.QUARANTINE)


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


# What is staged is looked at.


def publication_of(job: Job, staged: Staged) -> Publication:
    """What is to be published, from what is staged."""
    spec = job.spec
    if staged.recent is None:
        in_scope = lambda windows: windows.where(starts_within(staged.reach))  # noqa: E731
    else:
        pairs = job.staging.rows(Part.TOUCHED) if staged.older else None
        touched = AffectedWindows(staged.recent, staged.older, pairs)
        in_scope = lambda windows: touched.in_scope(windows, spec.keys)  # noqa: E731
    return Publication(
        run_id=job.result.run_id,
        span=staged.reach,
        staged=job.staging.rows(),
        identity=identity_of(spec),
        in_scope=in_scope,
        cause=cache(lambda: cause_of_change(job.published, job.plan)),
        as_of=job.plan.as_of,
    )


@contextmanager
def verified(
    job: Job,
    staged: Staged,
    records: DataFrame,
    timeline: Timeline | None,
    checks: GateCheck | None = None,
    watcher: ReportCollector | None = None,
) -> Iterator[Difference]:
    """Count what is staged, set it against what is published, and ask the gate; the documents say what came out.

    Gives the difference, for `publish` in the same process. `records` are the good ones up to the as-of vector.
    """
    job.facts.prepare(job.staging.rows().schema)
    publication = publication_of(job, staged)
    before = publication.in_scope(job.facts.current())
    windows_before = job.facts.current().where(starts_within(staged.reach))
    made: list[Difference] = []

    def compared() -> dict[str, int]:
        made.append(job.facts.difference(publication, job.now()))
        return made[0].counts

    try:
        with job.stage("diff", job.result.tables.windows):
            counts, _, there = run_parallel(job.spark, compared, lambda: count_staged(job), windows_before.count)
        difference, job.result.changes = made[0], counts
        evidence = StagedRun(
            job.spark,
            job.pipeline,
            job.plan,
            job.spec,
            job.kind,
            job.result.run_id,
            publication.identity,
            publication.staged,
            difference.changes,
            before,
            job.staging.rows(Part.LATE) if job.is_faithful else None,
            records,
            timeline,
        )
        staged_windows = {name: getattr(job.result, name) for name in COUNTED}
        job.folder.write(
            CHANGES,
            {
                "counts": counts,
                "causes": difference.causes,
                **staged_windows,
                "windows_before": there,
            },
        )
        if checks is not None:
            with job.stage("gate", "expectations"):
                job.folder.write(GATE, checks(evidence))
        if watcher is not None:
            with job.stage("facts", "for the report"):
                job.folder.write(FACTS, watcher(evidence))
        yield difference
    finally:
        for difference in made:
            difference.release()


def count_staged(job: Job) -> None:
    """Count the staged windows and late records into the result."""
    result, written = job.result, job.staging.rows()
    if PANE in written.columns and STATE in written.columns:
        last = written.where(_is_last_pane(job.spec))
        counts = last.agg(
            F.expr("count(*)"),
            F.count_if(F.col(STATE) == "open"),
            F.count_if(F.col(STATE) == "all_late"),
            F.sum(ON_TIME),
            F.sum(LATE),
            F.sum(DROPPED),
        ).collect()[0]
        (
            result.windows,
            result.windows_open,
            result.windows_all_late,
            result.pairs_on_time,
            result.pairs_late,
            result.pairs_dropped,
        ) = (int(c or 0) for c in counts)
        result.records_late = job.staging.rows(Part.LATE).count()
    else:
        result.windows = written.count()


def _is_last_pane(spec: ReplaySpec) -> str:
    if spec.panes is Panes.LAST:
        return "TRUE"
    if isinstance(spec.windows, SessionWindows):
        return f"{PANE} IS NULL OR {PANE} = 0"
    return f"{PANE} IS NULL OR {PANE} = {LATE} - IF({ON_TIME} > 0, 0, 1)"


def settle_staged(
    job: Job, staged: Staged, policy: Policy, tolerance: float, difference: Difference, *, ends_as: str = ""
) -> Decision:
    """What becomes of a verified run: published, left staged for a person, or thrown away.

    It is thrown away where it was only to be compared: by `ends_as`, or by the policy `never`.
    """
    if ends_as:
        discard(job, ends_as, "nothing was to be published")
        return Decision(Action.STOP, ends_as)
    gate = job.folder.read(GATE)
    decision = decide(policy, tolerance, job.folder.read(CHANGES) or {}, gate)
    closed = gate is not None and gate["blocks"]
    if decision.action is Action.PUBLISH and not job.in_stages:
        publish(job, staged, difference)
    elif decision.action is Action.STOP and not closed:
        discard(job, "compared_only", decision.why)
    else:
        wait(job, decision, closed=closed)
    return decision


def wait(job: Job, decision: Decision, *, closed: bool) -> None:
    """Leave what is staged, for `publish` or `discard`; the ledger and the outcome say why. `closed`: the gate is."""
    status = "staged" if decision.action is Action.PUBLISH else "awaiting_approval"
    run_id = job.result.run_id
    hint = f"Look with `rewindow report {run_id}`, then `rewindow publish {run_id} --reason ...` or `rewindow discard`."
    job.ledger.update(run_id, status="staged", process=STAGED_PROCESS, **_counts(job.result))
    end(job, "gate_failed" if closed else status, message=decision.why, hint=hint, decision=decision.to_dict())


def discard(job: Job, status: str, why: str) -> None:
    """Throw away what is staged. `status`: dry_run, rejected, discarded, compared_only."""
    job.staging.drop()
    job.ledger.update(job.result.run_id, status=status.replace("_", " "), finished_at=job.now(), **_counts(job.result))
    end(job, status, message=why)


# What is staged is published.


def publish(job: Job, staged: Staged, difference: Difference | None = None, reason: str = "") -> None:
    """Side tables first, with the run's id; then the windows, in one commit; then what they replace goes.

    Published once, it changes nothing. `reason`: why it is published all the same, kept in the ledger.
    """
    result, tables, ledger = job.result, job.result.tables, job.ledger
    with job.stage("publish", tables.windows):
        if job.staging.has() and result.run_id not in job.facts.published_runs():
            told = {"status": "publishing", "process": _process(job), "replaces": staged.replaces, **_counts(result)}
            told |= {"reason": reason} if reason else {}
            run_parallel(
                job.spark,
                lambda: _write_side_rows(job),
                lambda: save_state(job),
                lambda: ledger.update(result.run_id, **told),
            )
            publication = publication_of(job, staged)
            result.changes = job.facts.publish(publication, staged.base, job.now(), difference)
        # Before the last word in the ledger: of a run that has ended nobody looks for leftovers.
        leftovers = [lambda: _drop_older_states(job), job.staging.drop]
        if staged.replaces:
            leftovers.append(lambda: ledger.delete_superseded(result.run_id))
        run_parallel(job.spark, *leftovers)
        ledger.update(result.run_id, status="published", finished_at=job.now(), **_counts(result))
    end(job, "published" if result.changes else "unchanged", message=reason)


def _process(job: Job) -> str:
    return STAGED_PROCESS if job.in_stages else this_process()


def _write_side_rows(job: Job) -> None:
    """The late and the quarantined records, once each: what an attempt before this one wrote goes."""
    tables, run_id = job.result.tables, job.result.run_id
    for part, table, empty in (
        (Part.LATE, tables.late, job.result.records_late == 0),
        (Part.QUARANTINE, tables.quarantine, False),
    ):
        there = job.spark.catalog.tableExists(table)
        if job.staging.has(part) and not (there and empty):
            rows = job.staging.rows(part).select(F.lit(run_id).alias("run_id"), "*")
            guarded("cannot make", table, lambda table=table, rows=rows: ensure_table(job.spark, table, rows.schema))
            job.ledger.put_rows(table, run_id, aligned(job.spark, table, rows))
        elif there:
            job.ledger.delete_rows(table, run_id)
        elif part is Part.QUARANTINE:
            guarded("cannot make", table, lambda: ensure_table(job.spark, tables.quarantine, _QUARANTINE))


def save_state(job: Job) -> None:
    """Keep what the watermark logic held at the end, and the timeline where it is small."""
    told = job.folder.read(TIMELINE)
    if told is None or not job.is_faithful:
        return
    spark, plan, table = job.spark, job.plan, job.result.tables.timeline_state
    state = told["state"] | {"topic_id": topic_id_of(plan)}
    row = (
        job.pipeline.name,
        plan.definition_hash,
        job.result.run_id,
        plan.as_of,
        _instant(plan.processing_time_end),
        told["watermark_below"],
        json.dumps(state),
        job.folder.read_bytes(STEPS),
        job.now(),
    )
    job.ledger.put_rows(table, job.result.run_id, row_frame(spark, row, TIMELINE_STATE_SCHEMA))


def _drop_older_states(job: Job) -> None:
    """Once a run is published, its state stands for those of earlier runs at the same as-of vector."""
    plan, table = job.plan, job.result.tables.timeline_state
    same = (
        job.spark.table(table)
        .where((F.col("pipeline") == job.pipeline.name) & (F.col("definition_hash") == plan.definition_hash))
        .where(F.col("processing_time_end") == F.lit(_instant(plan.processing_time_end)))
    )
    runs = {row["run_id"] for row in same.select("run_id", "as_of").collect() if row["as_of"] == plan.as_of}
    if job.result.run_id in runs:
        for earlier in sorted(runs - {job.result.run_id}):
            job.ledger.delete_rows(table, earlier)


def topic_id_of(plan: Plan) -> str | None:
    """The id of the plan's Kafka topic; a topic that is deleted and made again has another."""
    return plan.topic.topic_id if plan.topic is not None else None


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def first_row(job: Job, reason: str, started: datetime) -> dict[str, Any]:
    """What the ledger says of a run from its start on."""
    plan = job.plan
    return {
        "run_id": job.result.run_id,
        "pipeline": job.pipeline.name,
        "kind": job.kind,
        "process": _process(job),
        "definition_hash": plan.definition_hash,
        "definition": job.pipeline.to_canonical_json(),
        "range_start": _instant(plan.span.start),
        "range_end": _instant(plan.span.end),
        "as_of": plan.as_of,
        "processing_time_end": _instant(plan.processing_time_end),
        "mode": plan.mode,
        "panes": job.spec.panes.value,
        "fidelity": plan.fidelity,
        "fidelity_reasons": list(plan.fidelity_reasons),
        "reason": reason or None,
        "whole": plan.is_whole,
        "rewindow_version": __version__,
        "layout": LAYOUT,
        "started_at": started,
    }


COUNTED = (
    "records_read",
    "records_quarantined",
    "windows",
    "windows_open",
    "windows_all_late",
    "pairs_on_time",
    "pairs_late",
    "pairs_dropped",
    "records_late",
)
"""Fields of `RunResult` that the ledger and the run's documents hold too."""


def _counts(result: RunResult) -> dict[str, Any]:
    """What the ledger says of a run once it has ended."""
    return {name: getattr(result, name) for name in (*COUNTED, "changes", "timings")}


def cause_of_change(published: Sequence[Row], plan: Plan) -> Column:
    """The cause of a window's change, from the latest published run over its range, which has confirmed what was there.

    Else from the run that published it (`old_run_id`).

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

    column = F.lit(None).cast("string")
    for row in reversed(published):  # the latest run is asked first
        covered = (F.col("rw_start") >= F.lit(row["range_start"])) & (F.col("rw_start") < F.lit(row["range_end"]))
        column = F.when(covered, F.lit(cause(row).value)).otherwise(column)
    known = [F.lit(value) for row in published for value in (row["run_id"], cause(row).value)]
    by_run = F.create_map(*known)[F.col("old_run_id")] if known else column
    return F.coalesce(column, by_run, F.lit(Cause.BACKFILL.value))
