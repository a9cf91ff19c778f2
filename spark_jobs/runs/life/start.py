"""Begin a run: refuse what breaks a rule, make the tables, and enter the run into the ledger and its folder.

Before a run builds on the published table it is looked at: is it as the last publication left it, and whose is it?
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs import __version__
from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError, DefinitionError, HistoryError, RunStateError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.ledger import Ledger, LedgerRow
from spark_jobs.lakehouse.publication import TableAt
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.staging import StagedPart, Staging
from spark_jobs.lakehouse.tables import Tables, create_tables, start_bounds
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME
from spark_jobs.replay.engine import History
from spark_jobs.runs.life.documents import (
    Approval,
    Outcome,
    Quarantine,
    Request,
    Requested,
    StagedRange,
)
from spark_jobs.runs.life.lifecycle import Event
from spark_jobs.runs.life.recovery import recover
from spark_jobs.runs.life.status import RunKind, RunStatus
from spark_jobs.runs.life.store import DEFINITION, RunFolder
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.kept_batches import keep_batches
from spark_jobs.runs.planning.plan import check_plan, read_planned
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.job import Job
from spark_jobs.runs.work.quarantine import reasons_of
from spark_jobs.sources import quarantined

if TYPE_CHECKING:
    from spark_jobs.runs.work.job import Job


PUBLISHED_ALREADY = "this run has been published already; nothing was done"

_FIRST = -62_135_596_800_000
_LAST = 253_402_300_799_999
"""The first and last epoch ms that Python's datetime has."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Why a run is started, what was requested, and by whom.

    None and empty where the run's request was written before, as in Airflow.
    """

    reason: str = ""
    requested: Requested | None = None
    person: str = ""


def prepare(job: Job, history: History, started: datetime, *, is_new: bool = False) -> bool:
    """Refuse what breaks a rule, make the tables and clear up killed runs. False: the run is published already.

    `is_new`: the run's id was drawn just now, so that no run has it. Raises DefinitionError for a plan that does not
    cover its range, HistoryError for records that break a rule, RunStateError for a run id of another pipeline.
    """
    check_plan(job.plan, job.pipeline)
    check_quarantine(job)
    refuse_missing_event_time(job.pipeline, job.plan, history)
    create_tables(job.spark, job.result.tables)
    if job.kind is not RunKind.RECONCILE:  # a reconciliation has kept them before it was planned
        keep_batches(job.spark, job.pipeline)
    recover(job.spark, job.result.tables, started, progress=job.progress)
    if is_new:
        job.ledger.assume_new(job.result.run_id)
    elif is_published(job.ledger, job.folder, job.pipeline):
        job.result.note = PUBLISHED_ALREADY
        return False
    return True


def is_published(ledger: Ledger, folder: RunFolder, pipeline: Pipeline) -> bool:
    """Whether the folder's run is published already. Raises as `refuse_run_of_another`."""
    row = ledger.row(folder.run_id)
    refuse_run_of_another(folder, pipeline, row)
    return row is not None and row["status"] == RunStatus.PUBLISHED


def refuse_known_run_of_another(spark: SparkSession, folder: RunFolder, pipeline: Pipeline) -> None:
    """`refuse_run_of_another` by the folder and the ledger, where there is one yet: before a run is planned."""
    tables = Tables.of(pipeline)
    row = Ledger(spark, tables).row(folder.run_id) if spark.catalog.tableExists(tables.runs) else None
    refuse_run_of_another(folder, pipeline, row)


def refuse_run_of_another(folder: RunFolder, pipeline: Pipeline, row: LedgerRow | None = None) -> None:
    """Raises RunStateError where the folder's run is one of another pipeline, or writes to another table.

    `row`: the run's in the ledger; None: there is none, or it is not known yet.
    """
    request, known = Request.read(folder), row or {}
    others = {known.get("pipeline"), None if request is None else request.pipeline} - {None, pipeline.name}
    whose = f"pipeline {', '.join(sorted(map(str, others)))}" if others else ""
    if not others and known.get("output") not in (None, Tables.of(pipeline).windows):
        whose = f"table {known['output']}"
    if whose:
        raise RunStateError(
            f"this run id is of a run of {whose}",
            folder.run_id,
            f"Give the run of {pipeline.name} another one (--run-id), or none: then one is chosen.",
        )


def full_range(job: Job) -> StagedRange:
    """What a run over the plan's whole range stages, from the published table as it is now.

    Raises as `with_scope`.
    """
    numbers = tuple(range(1, len(job.plan.chunks) + 1))
    expected = {StagedPart.WINDOWS.value: numbers}
    if job.is_faithful:
        expected[StagedPart.LATE.value] = numbers
    if job.plan.quarantined:
        expected[StagedPart.QUARANTINE.value] = (0,)
    reach, base = job.plan.span, job.published_table.now()
    return with_scope(
        job, StagedRange(**from_table(base), reach=reach, replaces=True, attempt=job.attempt, expected=expected)
    )


def begin(job: Job, asked: Asked, started: datetime) -> None:
    """Enter a new attempt of the run into the ledger, and write the run's first documents.

    Raises RunStateError where another process works on the run, or where it is published.
    """
    before: list[str | None] = []

    def remember(row: Any) -> None:
        before[:] = [] if row is None else [row["attempt"]]

    job.life.apply(Event.BEGIN, remember, **first_row(job, asked.reason, started))
    for attempt in before:
        if attempt != job.attempt:
            Staging(job.spark, job.result.tables.staging(job.result.run_id, attempt)).drop()
    if Request.read(job.folder) is None:
        document = Request.of(
            job.result.run_id, job.pipeline, job.kind, asked.reason, started, asked.requested, asked.person
        )
        document.write(job.folder)
        job.folder.write_text(DEFINITION, job.pipeline.text)
    for document in (Outcome.FILE, Approval.FILE, Verdicts.FILE):  # of an attempt before this one
        job.folder.remove(document)
    job.plan.write(job.folder)


def first_row(job: Job, reason: str, started: datetime) -> dict[str, Any]:
    """The run's row in the ledger when it begins."""
    plan = job.plan
    return {
        "pipeline": job.pipeline.name,
        "kind": job.kind.value,
        "definition_hash": plan.definition_hash,
        "definition": job.pipeline.to_canonical_json(),
        "range_start": instant(plan.span.start),
        "range_end": instant(plan.span.end),
        "as_of": plan.as_of,
        "processing_time_end": instant(plan.processing_time_end),
        "mode": plan.mode.value,
        "panes": job.spec.panes.value,
        "fidelity": plan.fidelity,
        "fidelity_reasons": list(plan.fidelity_reasons),
        "reason": reason or None,
        "whole": plan.is_whole,
        "rewindow_version": __version__,
        "started_at": started,
        "finished_at": None,
        "attempt": job.attempt,
        "claim": None,
        "evidence": None,
        "person": None,
    }


def instant(milliseconds: int) -> datetime:
    """Epoch ms as an instant. Raises HistoryError for a time that the ledger cannot hold: years 1 to 9999."""
    if not _FIRST <= milliseconds <= _LAST:
        raise HistoryError(
            f"an arrival or an event time of {milliseconds} ms lies beyond the years 1 to 9999",
            hint="Correct the unit (`arrival_unit`, `event_time.unit`), or leave such records out with a filter.",
        )
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)


def check_quarantine(job: Job) -> None:
    """Raises HistoryError where more records are in quarantine than the definition allows.

    The report of a run of Airflow says why they are there; on the command line another command does.
    """
    pipeline, plan = job.pipeline, job.plan
    if pipeline.quarantine.threshold.is_exceeded(plan.quarantined, plan.records):
        if Request.read(job.folder) is not None:
            keep_reasons(job, quarantined(read_planned(job.spark, pipeline, plan)))
            plan.write(job.folder)
        raise HistoryError(
            f"{plan.quarantined} of {plan.records} records cannot be used, more than the quarantine allows",
            pipeline.source_of(("quarantine",)) or pipeline.name,
            f"See the reasons with `rewindow plan {pipeline.name} --quarantined`, fix the definition or raise "
            "quarantine.threshold.",
        )


def keep_reasons(job: Job, rows: DataFrame) -> None:
    """Write down why records are in quarantine, for the report. `rows`: they, with the columns of the quarantine."""
    Quarantine(reasons=reasons_of(rows)).write(job.folder)


def refuse_missing_event_time(pipeline: Pipeline, plan: Plan, history: History) -> None:
    """Raises HistoryError for a record without an event time where the definition says `fail`."""
    if pipeline.event_time.missing != "fail" or not plan.missing_event_times:
        return
    missing = history.records.where(F.col(EVENT_TIME).isNull())
    first = missing.select(F.min(F.struct(ARRIVAL, "rw_partition", "rw_offset"))).collect()[0][0]
    raise HistoryError(
        f"{plan.missing_event_times} records have no event time, and event_time.missing is `fail`, as in Flink",
        f"{pipeline.name}, first at partition {first[1]}, offset {first[2]}",
        "Choose `missing: quarantine` or `missing: drop`, or fix event_time.expression.",
    )


ANOTHER_PROGRAM = "another program has changed the published table"


def foreign_change(spark: SparkSession, tables: Tables, last: Row) -> str | None:
    """What another program has done to the published tables since the run `last` was published; None: nothing."""
    table = PublishedTable(spark, tables.windows)
    now = table.now()
    if now.table_id is None:
        return "it was dropped"
    if last["table_id"] not in (None, now.table_id) or (last["windows"] and table.is_empty() and table.state() is None):
        return "it was dropped and made anew"
    if (last["sequence"] or 0) > (now.sequence or 0):
        return f"it is an older copy: it lacks what run {last['run_id']} has published"
    return table.foreign_change()


def from_table(at: TableAt) -> dict[str, Any]:
    """The fields of `StagedRange` that say which state of the table a run started from."""
    return {"base": at.snapshot, "table_id": at.table_id, "sequence": at.sequence}


def with_scope(job: Job, staged: StagedRange) -> StagedRange:
    """What a run over a range stands for: a whole one for all that is published, wherever its windows lie.

    Raises DefinitionError where the table is another pipeline's, CatalogError where another program has changed it and
    the run is over a part of the range.
    """
    spark, tables = job.spark, job.result.tables
    last, _ = job.ledger.latest_published()
    if last is not None:
        check_owner(job.pipeline, tables, last)
    changed = None if last is None else foreign_change(spark, tables, last)
    if not job.plan.is_whole:
        if changed is not None:
            raise CatalogError(
                f"{ANOTHER_PROGRAM}: {changed}",
                tables.windows,
                "Start a run over the whole history first (`rewindow run` without a range): it compares with what is "
                "in the table, and corrects it.",
            )
        return staged
    reach = staged.reach
    if staged.base is not None:
        low, high = start_bounds(job.published_table.current())
        if low is not None and high is not None:
            reach = TimeRange(min(reach.start, low), max(reach.end, high + 1))
    if changed is not None:
        job.result.note = f"{ANOTHER_PROGRAM}: {changed}; this run has compared with what was there"
    return staged.model_copy(update={"everything": True, "reach": reach, "repairs": changed is not None})


def check_owner(pipeline: Pipeline, tables: Tables, last: Row | Mapping[str, Any]) -> None:
    """Raises DefinitionError where the run `last`, the one that was published last, is another pipeline's."""
    if last["pipeline"] in (None, pipeline.name):
        return
    raise DefinitionError(
        f"the table {tables.windows} holds the windows of the pipeline {last['pipeline']}, which has published run "
        f"{last['run_id']}",
        pipeline.source_of(("output", "table")) or pipeline.name,
        "Two pipelines cannot share a table: give this one another `output.table`.",
    )
