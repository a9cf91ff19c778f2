"""What `maintain` forgets of old runs: their rows in the ledger, their timeline states and their folders.

What an open run, a revision that is kept, a published late record or the next reconciliation needs stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.ledger import Ledger, LedgerRow
from spark_jobs.lakehouse.publication import REVISIONS
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import Tables, drop_table, guarded
from spark_jobs.runs.documents import Outcome, Request
from spark_jobs.runs.recovery import OPEN
from spark_jobs.runs.store import RunStore

KEPT_STATES = 10
"""How many timeline states are kept for each definition, the latest ones."""

_AT_ONCE = 500
"""Rows that one statement deletes."""


def horizon_of(ledger: Ledger, before: datetime) -> datetime:
    """`before`, or the start of the oldest open run: it must see which runs were published since it began."""
    began = ledger.runs().where(OPEN).agg(F.unix_micros(F.min("started_at"))).collect()[0][0]
    return before if began is None else min(before, datetime.fromtimestamp(began / 1e6, UTC))


def delete_rows_of_runs(spark: SparkSession, tables: Tables, before: datetime) -> int:
    """Delete the ledger's rows of runs that ended before `before`; how many.

    The row of a run stays while a revision or a late record names the run, and while a later run needs it to find out
    what it goes on from and the cause of a change.
    """
    ledger = Ledger(spark, tables)
    old = ledger.runs().where(f"NOT ({OPEN})").where(F.col("finished_at") < F.lit(before)).select("run_id")
    for table in (f"{tables.windows}.branch_{REVISIONS}", tables.late):
        if table == tables.late and not spark.catalog.tableExists(table):
            continue
        old = old.join(spark.table(table).select("run_id").distinct(), "run_id", "left_anti")
    needed = {row["run_id"] for row in not_covered(ledger.published())}
    run_ids = sorted({row[0] for row in old.collect()} - needed)
    output = tables.windows.replace("'", "\\'")
    _delete(spark, tables.runs, run_ids, f"output = '{output}'")
    return len(run_ids)


def not_covered(published: Iterable[LedgerRow]) -> list[LedgerRow]:
    """The published runs, latest first, without those whose range later ones cover: they decide no cause any more."""
    kept: list[LedgerRow] = []
    covered: list[tuple[datetime, datetime]] = []  # apart from each other, in order
    for row in published:
        start, end = row["range_start"], row["range_end"]
        if any(low <= start and end <= high for low, high in covered):
            continue
        kept.append(row)
        apart = [one for one in covered if one[1] < start or end < one[0]]
        met = [one for one in covered if one not in apart]
        joined = (min([start, *(low for low, _ in met)]), max([end, *(high for _, high in met)]))
        covered = sorted([*apart, joined])
    return kept


def delete_states(spark: SparkSession, tables: Tables, pipeline: Pipeline, before: datetime | None) -> int:
    """Delete all but the latest timeline states of each definition, and those saved before `before`; how many.

    The state that the next reconciliation goes on from stays in any case.
    """
    needed = {row["run_id"] for row in Ledger(spark, tables).published() if row["whole"]}
    states = spark.table(tables.timeline_state).where(F.col("pipeline") == pipeline.name)
    saved_at = F.unix_micros("saved_at").alias("saved_us")
    order = (F.desc("processing_time_end"), F.desc("saved_at"))
    seen: dict[str, int] = {}
    deleted = []
    for row in states.orderBy(*order).select("definition_hash", "run_id", saved_at).collect():
        seen[row["definition_hash"]] = seen.get(row["definition_hash"], 0) + 1
        is_old = before is not None and (row["saved_us"] or 0) < before.timestamp() * 1e6
        if (is_old or seen[row["definition_hash"]] > KEPT_STATES) and row["run_id"] not in needed:
            deleted.append(row["run_id"])
    _delete(spark, tables.timeline_state, deleted, "TRUE")
    return len(deleted)


def delete_folders(store: RunStore, pipeline: Pipeline, before: datetime, needed: Iterable[str]) -> int:
    """Delete the folders of the pipeline's runs that ended before `before`, but those of `needed` runs; how many.

    A folder that cannot be read stays.
    """
    kept, deleted = set(needed), 0
    for run_id, changed_at in store.folders().items():
        if run_id in kept or (changed_at is not None and changed_at >= before.timestamp()):
            continue
        folder = store.folder(run_id)
        with suppress(RewindowError, ValueError):
            request, outcome = Request.read(folder), Outcome.read(folder)
            if request is None or request.pipeline != pipeline.name:
                continue
            ended = (outcome and outcome.finished_at) or request.requested_at
            if ended and _instant(ended) < before:
                folder.delete()
                deleted += 1
    return deleted


def drop_staging_of_nobody(spark: SparkSession, tables: Tables) -> int:
    """Drop staging tables that belong to no attempt of an open run; how many.

    A run that is killed while it begins again can leave those of its attempt before. A run is in the ledger before it
    stages anything, so the tables are listed first.
    """
    namespace, name = tables.windows.rsplit(".", 1)
    listed = spark.sql(f"SHOW TABLES IN {namespace} LIKE '{name}__staging*'").select("tableName").collect()
    rows = Ledger(spark, tables).runs().where(OPEN).select("run_id", "attempt").collect()
    owned = {tables.staging(row["run_id"], row["attempt"]).rsplit(".", 1)[1].lower() for row in rows}
    parts = sorted((part.value for part in StagedPart), reverse=True)
    dropped = 0
    for table in (row[0] for row in listed):
        suffix = next(part for part in parts if table.endswith(part))
        if table.removesuffix(suffix).lower() not in owned:
            drop_table(spark, f"{namespace}.{table}")
            dropped += 1
    return dropped


def open_runs(spark: SparkSession, tables: Tables) -> list[str]:
    """The runs that work or wait."""
    return [row[0] for row in Ledger(spark, tables).runs().where(OPEN).select("run_id").collect()]


def _delete(spark: SparkSession, table: str, run_ids: Sequence[str], where: str) -> None:
    for first in range(0, len(run_ids), _AT_ONCE):
        names = ", ".join("'" + run_id.replace("'", "\\'") + "'" for run_id in run_ids[first : first + _AT_ONCE])
        statement = f"DELETE FROM {table} WHERE {where} AND run_id IN ({names})"
        guarded("cannot write", table, lambda statement=statement: spark.sql(statement))


def _instant(text: str | datetime) -> datetime:
    at = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
