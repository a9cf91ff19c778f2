"""Recovery: what became of runs whose process is gone, found out from the published table and written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.errors import RewindowError, RunStateError
from spark_jobs.lakehouse.few_rows import may_have
from spark_jobs.lakehouse.ledger import Ledger, LedgerRow
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import Tables, branch_of
from spark_jobs.runs.life.documents import Outcome
from spark_jobs.runs.life.lifecycle import HEARTBEAT, Event, RunLife, show_life, sign_of_row
from spark_jobs.runs.life.processes import STAGES_PROCESS, Sign
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.work.progress import NoProgress, Progress
from spark_jobs.spark.gateway import jvm, loaded_iceberg_table

_OPEN_STATUSES = tuple(
    status.value
    for status in (
        RunStatus.RUNNING, RunStatus.PUBLISHING, RunStatus.STAGED, RunStatus.AWAITING_APPROVAL, RunStatus.GATE_FAILED,
    )
)  # fmt: skip
OPEN = f"status IN {_OPEN_STATUSES} OR (status = 'failed' AND process = '{STAGES_PROCESS}') OR finished_at IS NULL"
"""A condition on the ledger: a process may work on the run, or it waits for a person or its next stage."""


def recover(
    spark: SparkSession,
    tables: Tables,
    now: datetime,
    store: RunStore | None = None,
    *,
    progress: Progress | None = None,
    heartbeat: timedelta = HEARTBEAT,
) -> list[str]:
    """Clear up runs whose process is gone, or that have waited too long; the ids of the abandoned ones.

    A run whose commit is in the published table's history is published. Of any other one the staging, the branches
    are dropped. The ledger and the outcome say so. A process of another host that may be gone is watched first, for
    some times of `heartbeat`: that host's clock may be another one.
    """
    ledger = Ledger(spark, tables)
    if not may_have_open_runs(spark, tables):
        return []
    open_runs = [row.asDict() for row in ledger.runs().where(OPEN).collect()]
    signs = {row["run_id"]: sign_of_row(row, now) for row in open_runs}
    silent = [row for row in open_runs if signs[row["run_id"]] is Sign.SILENT]
    if silent:
        watched = ", ".join(f"{row['run_id']} on {str(row['process']).partition('/')[0]}" for row in silent)
        with (progress or NoProgress()).stage("watch", f"whether a process works on {watched}"):
            signs |= dict.fromkeys(show_life(ledger, [row["run_id"] for row in silent], heartbeat), Sign.ALIVE)
    gone = [row for row in open_runs if signs[row["run_id"]] is not Sign.ALIVE]
    _repair_waiting(store, [row for row in open_runs if row not in gone], now)
    return settle(spark, tables, gone, now, store) if gone else []


def settle(
    spark: SparkSession, tables: Tables, runs: Iterable[LedgerRow], now: datetime, store: RunStore | None = None
) -> list[str]:
    """Write down what became of runs that nobody carries on, and drop what they have left; the ids of the abandoned."""
    ledger = Ledger(spark, tables)
    table = PublishedTable(spark, tables.windows)
    is_there = spark.catalog.tableExists(tables.windows)
    published = table.published_runs() if is_there else set()
    abandoned = []
    for row in runs:
        run_id = row["run_id"]
        staging = Staging(spark, tables.staging(run_id, row["attempt"]))
        life = RunLife(ledger, run_id, row["attempt"], now=lambda: now)
        with suppress(RunStateError):  # another process has changed the run meanwhile
            if run_id in published:
                table.follow()
                _clear(table, staging, row)
                _write_outcome(store, run_id, RunStatus.PUBLISHED, now)
                if row["status"] != RunStatus.PUBLISHED:
                    place = {"table_id": table.now().table_id, "sequence": table.sequence_of(run_id)}
                    life.apply(Event.RECOVER, _same(row), finished_at=row["finished_at"] or now, **place)
                continue
            status = RunStatus(row["status"])
            if not status.has_ended or (status is RunStatus.FAILED and row["process"] == STAGES_PROCESS):
                life.apply(Event.ABANDON, _same(row), finished_at=None)
                abandoned.append(run_id)
            _clear(table if is_there else None, staging, row)
            _write_outcome(store, run_id, RunStatus.ABANDONED if run_id in abandoned else status, now)
            life.set(finished_at=now)
    return abandoned


def may_have_open_runs(spark: SparkSession, tables: Tables) -> bool:
    """False where no file of the ledger can hold an open run. Mostly so, and known without a Spark job."""
    expressions = jvm(spark).org.apache.iceberg.expressions.Expressions
    is_open = expressions.isNull("finished_at")
    for status in _OPEN_STATUSES:
        is_open = getattr(expressions, "or")(is_open, expressions.equal("status", status))
    is_failed = expressions.equal("status", RunStatus.FAILED.value), expressions.equal("process", STAGES_PROCESS)
    is_open = getattr(expressions, "or")(is_open, getattr(expressions, "and")(*is_failed))
    return may_have(loaded_iceberg_table(spark, tables.runs), is_open)


def _repair_waiting(store: RunStore | None, rows: list[dict[str, Any]], now: datetime) -> None:
    """Make the outcomes of runs that wait say so, where the process ended before it could."""
    for row in rows:
        status, seen = RunStatus(row["status"]), row["heartbeat_at"]
        if status.waits and seen is not None and now - seen.astimezone(UTC) > HEARTBEAT:
            _write_outcome(store, row["run_id"], status, now)


def _same(row: LedgerRow) -> Any:
    """A guard: the run is still as it was seen."""

    def guard(now: LedgerRow | None) -> None:
        if now is None or any(now[name] != row[name] for name in ("status", "attempt", "claim", "process")):
            raise RunStateError("the run has changed meanwhile", row["run_id"])

    return guard


def _clear(table: PublishedTable | None, staging: Staging, row: LedgerRow) -> None:
    staging.drop()
    if table is not None and row["claim"]:
        table.drop_branches(branch_of(row["run_id"], row["claim"]))


def _write_outcome(store: RunStore | None, run_id: str, status: RunStatus, now: datetime) -> None:
    """Make the outcome say what the ledger says."""
    with suppress(RewindowError):
        folder = (store or RunStore.configured()).folder(run_id)
        try:
            before: Mapping[str, Any] = outcome.to_dict() if (outcome := Outcome.read(folder)) else {}
        except RewindowError:
            before = {}
        if before.get("status") == status.value or (not before and not folder.documents()):
            return
        if before.get("status") == RunStatus.UNCHANGED and status is RunStatus.PUBLISHED:
            return
        said = status.value.replace("_", " ")
        message, hint = _TEXTS.get(status, (f"the run is {said}; the process ended before it could say so", ""))
        outcome = Outcome.model_validate({**before, "run_id": run_id, "status": status.value})
        outcome.model_copy(update={"message": message, "hint": hint, "finished_at": now.isoformat()}).write(folder)


_TEXTS = {
    RunStatus.PUBLISHED: ("the run was published; the process that published it ended before it could say so", ""),
    RunStatus.ABANDONED: (
        "the run was given up: its process is gone, or it waited too long; what it had staged is dropped",
        "Start the run again; the published windows are as they were.",
    ),
}
