"""The table `runs` (the ledger): one row a run. What it says is true; documents and reports follow it.

A row is changed by compare-and-set: the change is decided on the row as it is, and committed only if no other process
has changed that row since. Iceberg checks that: the commit is validated against the snapshot that was read.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from spark_jobs.errors import CatalogError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.commits import is_conflict, retried
from spark_jobs.lakehouse.few_rows import Rows, arrow_rows, found, replaced
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, Tables, guarded, literal
from spark_jobs.spark.cached import viewed
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, loaded_iceberg_table
from spark_jobs.spark.snapshots import rows_at, snapshots_back

LedgerRow = Mapping[str, Any]
"""A row of the table `runs`, by column; times without a zone are local time, as Spark gives them."""

_WRITE = "rewindow.write"
"""A property of the snapshot of each change of a row: it names the change."""
_COMES = "rw_comes"
"""Whether a row is to be written; else it stands for those that go."""
_PUBLISHED_COLUMNS = ("run_id", "whole", "range_start", "range_end", "finished_at")


@dataclass(frozen=True, slots=True)
class _Known:
    """A row, None where there is none, and the snapshot of the table that it was read at; None: an empty table."""

    row: LedgerRow | None
    snapshot: int | None


@dataclass(frozen=True, slots=True)
class PublishedRanges:
    """What is known of published ranges, latest first. `latest`: the run that was published last."""

    latest: str | None
    ranges: Sequence[tuple[TimeRange, str]]


class Ledger:
    """The runs of one output table."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._tables = tables
        self._known: dict[str, _Known] = {}
        self._lock = threading.RLock()

    def row(self, run_id: str) -> LedgerRow | None:
        """A run's row as it is now; None where there is none."""
        return self._read(run_id).row

    def change(self, run_id: str, decide: Callable[[LedgerRow | None], Mapping[str, Any]]) -> LedgerRow:
        """Set the columns that `decide` returns for the row as it is now (None: there is none); the row afterwards.

        `decide` is called again where another process has changed the row meanwhile, and raises to refuse the change.
        Raises CatalogError where the table cannot be written.
        """
        with self._lock:
            retrying = Retrying(
                stop=stop_after_attempt(10),
                wait=wait_random_exponential(0.05, max=2),
                retry=retry_if_exception(lambda problem: isinstance(problem, _RowHasChanged)),
                reraise=True,
            )
            known = self._known.pop(run_id, None)
            for attempt in retrying:
                with attempt:
                    if known is None or attempt.retry_state.attempt_number > 1:
                        known = self._read(run_id)
                    row = {"run_id": run_id, "output": self._tables.windows, **(known.row or {})}
                    row |= dict(decide(known.row))
                    self._known[run_id] = self._replace(run_id, known, row)
            return self._known[run_id].row or {}

    def assume_new(self, run_id: str) -> None:
        """The caller drew this run id just now: no run has it, so its row need not be read."""
        with self._lock:
            self._known[run_id] = _Known(None, self._snapshot())

    def rivals(self, run_id: str, span: TimeRange | None, since: datetime, sequence: int | None) -> list[str]:
        """The runs but `run_id` that were published after `sequence`, with a range that overlaps `span` (None: any).

        By name. Where `sequence` is None, the time `since` counts. A run that was killed while it published may be
        published too.
        """
        rows = self.runs().where("status IN ('published', 'publishing')").where(F.col("run_id") != run_id)
        is_later = F.col("finished_at") >= F.lit(since)
        if sequence is not None:
            is_later = F.coalesce(F.col("sequence") > F.lit(sequence), is_later)
        rows = rows.where(is_later | (F.col("status") == "publishing"))
        if span is not None:
            low, high = (F.timestamp_millis(F.lit(at)) for at in (span.start, span.end))
            rows = rows.where((F.col("range_start") < high) & (F.col("range_end") > low))
        return sorted(row[0] for row in rows.select("run_id").collect())

    def put_rows(self, table: str, run_id: str, rows: Rows) -> None:
        """Write a run's few rows into a table with a column `run_id`, in the place of those that it has there."""

        def row_level(iceberg: JavaObject) -> None:  # one commit: nobody sees the table without rows of the run
            frame = self._spark.createDataFrame(arrow_rows(self._spark, iceberg, rows))
            names = [f"`{name}`" for name in frame.columns]
            goes = self._spark.range(1).select(F.lit(False).alias(_COMES))
            source = frame.withColumn(_COMES, F.lit(True)).unionByName(goes, allowMissingColumns=True)
            values = ", ".join(f"s.{name}" for name in names)
            with viewed(source) as view:
                self._spark.sql(
                    f"MERGE INTO {table} t USING {view} s ON NOT s.{_COMES} AND t.run_id = {literal(run_id)} "
                    f"WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.{_COMES} "
                    f"THEN INSERT ({', '.join(names)}) VALUES ({values})"
                )

        def overwrite() -> None:
            iceberg = loaded_iceberg_table(self._spark, table)
            try:
                if not replaced(self._spark, iceberg, run_id, rows):
                    row_level(iceberg)
            except JAVA_ERRORS as problem:
                if not _shares_a_file(problem):
                    raise
                row_level(iceberg)

        self._write(overwrite, table)

    def delete_rows(self, table: str, run_id: str) -> None:
        """Remove a run's rows from a side table."""
        self._delete(table, f"run_id = {literal(run_id)}")

    def runs(self) -> DataFrame:
        """The runs of this output table."""
        return self._spark.table(self._tables.runs).where(F.col("output") == F.lit(self._tables.windows))

    def published(self) -> list[LedgerRow]:
        """The published runs back to the latest one that covers the whole history, latest first.

        Columns: run_id, whole, range_start, range_end, finished_at. Earlier runs are left out: a later run has
        confirmed or changed every window of theirs.
        """
        rows = self.published_runs().withColumn("ended", self._order())
        latest_whole = F.max(F.when(F.col("whole"), F.col("ended"))).over(Window.partitionBy())
        rows = rows.withColumn("from", latest_whole).where("`from` IS NULL OR ended >= `from`")
        return [row.asDict() for row in rows.orderBy(F.desc("ended")).select(*_PUBLISHED_COLUMNS).collect()]

    def published_ranges(self, within: TimeRange, finding: Column, but: str) -> PublishedRanges:
        """The ranges of the published runs back to the latest one that covers the whole history.

        Those that overlap `within`. `finding`: a text for each run, from its columns; of the runs over one range the
        latest one's counts. So there are no more rows than different ranges, however many runs there are. `but`: the
        run that is not the latest one, see `PublishedRanges.latest`.
        """
        rows = self.published_runs()
        ended = self._order()
        of_range = rows.select(
            *(F.unix_millis(name).alias(name) for name in ("range_start", "range_end")),
            ended.alias("ended"),
            finding.alias("finding"),
            F.when(F.col("whole"), ended).alias("whole"),
            F.when(F.col("run_id") != but, ended).alias("other"),
        )
        last = [
            F.max_by("finding", "ended").alias("finding"),
            *(F.max(c).alias(c) for c in ("ended", "whole", "other")),
        ]
        # One job in one task: nothing is shuffled. Of the runs over one range only the latest one matters from here on.
        of_range = of_range.coalesce(1).groupBy("range_start", "range_end").agg(*last)
        everything = Window.partitionBy()
        of_range = of_range.withColumns({c: F.max(c).over(everything) for c in ("whole", "other")})
        overlaps = (F.col("range_start") < F.lit(within.end)) & (F.col("range_end") > F.lit(within.start))
        is_seen = F.coalesce(F.col("ended") >= F.col("whole"), F.lit(True))
        of_range = of_range.withColumn("counts", overlaps & is_seen)
        first = F.row_number().over(everything.orderBy("range_start")) == 1  # says `other`, also where nothing overlaps
        found = of_range.withColumn("first", first).where("counts OR first").orderBy(F.desc("ended")).collect()
        ranges = [(TimeRange(r["range_start"], r["range_end"]), r["finding"]) for r in found if r["counts"]]
        latest = found[0]["other"] if found else None
        return PublishedRanges(latest and latest["run_id"], ranges)

    def latest_published(self, where: Column | None = None) -> tuple[Row | None, Row | None]:
        """The run that was published last, and the last one for which `where` holds; None: there is none."""
        everything, order = F.struct(*RUNS_SCHEMA.names), self._order()
        found = self.published_runs().agg(
            F.max_by(everything, order), F.max_by(everything, F.when(F.lit(True) if where is None else where, order))
        )
        last, chosen = found.collect()[0]
        return last, chosen

    def _order(self) -> Column:
        """A value by which published runs are ordered as the table's own history has them, whatever clocks say.

        First those of a table that was dropped since; then by the sequence number of the commit, a run that changed
        nothing behind the one that it confirmed.
        """
        now = self._table_id()
        is_of_table = F.col("table_id").isNull() if now is None else F.coalesce(F.col("table_id") == now, F.lit(True))
        return F.struct(
            is_of_table,
            F.coalesce("sequence", F.lit(-1)),
            F.size(F.coalesce("changes", F.create_map())) == 0,
            "finished_at",
            "run_id",
        )

    def _table_id(self) -> str | None:
        """The id of the table of windows as it is now."""
        there = self._spark.catalog.tableExists(self._tables.windows)
        return str(loaded_iceberg_table(self._spark, self._tables.windows).uuid()) if there else None

    def published_runs(self) -> DataFrame:
        """The published runs of this output table."""
        return self.runs().where("status = 'published'")

    def _read(self, run_id: str) -> _Known:
        iceberg = self._table()
        current = iceberg.currentSnapshot()
        if current is None:
            return _Known(None, None)
        snapshot = current.snapshotId()
        rows = found(self._spark, iceberg, run_id, snapshot)
        if rows is None:
            table = rows_at(self._spark, self._tables.runs, snapshot)
            rows = [row.asDict() for row in table.where(F.col("run_id") == run_id).collect()]
        if not rows:
            return _Known(None, snapshot)
        empty = dict.fromkeys(RUNS_SCHEMA.names)  # what was written before a column was added lacks that column
        return _Known(empty | rows[0], snapshot)

    def _replace(self, run_id: str, known: _Known, row: LedgerRow) -> _Known:
        """Write `row` in the place of the run's, if no other process has changed that one since it was read."""
        runs, name, iceberg = self._tables.runs, secrets.token_hex(8), self._table()

        def overwrite() -> None:
            properties = {_WRITE: name}
            try:
                if not replaced(self._spark, iceberg, run_id, [row], since=known.snapshot, properties=properties):
                    self._merge(run_id, known, arrow_rows(self._spark, iceberg, [row]))
            except JAVA_ERRORS as problem:
                if _shares_a_file(problem):
                    self._merge(run_id, known, arrow_rows(self._spark, iceberg, [row]))
                elif is_conflict(problem):
                    raise _RowHasChanged(runs) from problem
                else:
                    raise

        guarded("cannot write", runs, overwrite)
        written = _snapshot_of(iceberg, name)
        if written is not None:
            return _Known(row, written)
        read = self._read(run_id)  # after a merge: Spark gives its snapshot no name
        if read.row is None or any(read.row[c] != row.get(c) for c in ("status", "attempt", "claim")):
            raise _RowHasChanged(runs)
        return read

    def _merge(self, run_id: str, known: _Known, row: pa.Table) -> None:
        """Replaces a run's row, where `maintain` has put the rows of several runs into one file."""
        runs, frame = self._tables.runs, self._spark.createDataFrame(row)
        expected = known.row or {}
        same = " AND ".join(f"t.{c} <=> {literal(expected.get(c))}" for c in ("status", "attempt", "claim"))
        sets = ", ".join(f"{c} = s.{c}" for c in frame.columns)
        matched = f"WHEN MATCHED AND {same} THEN UPDATE SET {sets}" if known.row else ""
        added = "" if known.row else "WHEN NOT MATCHED THEN INSERT *"
        try:
            with viewed(frame) as view:
                on = f"t.run_id = {literal(run_id)}"
                self._spark.sql(f"MERGE INTO {runs} t USING {view} s ON {on} {matched} {added}")
        except JAVA_ERRORS as problem:
            if is_conflict(problem):
                raise _RowHasChanged(runs) from problem
            raise

    def _snapshot(self) -> int | None:
        snapshot = self._table().currentSnapshot()
        return None if snapshot is None else snapshot.snapshotId()

    def _table(self) -> JavaObject:
        """Iceberg's own handle of the table, as it is now."""
        return loaded_iceberg_table(self._spark, self._tables.runs)

    def _delete(self, table: str, where: str) -> None:
        if not self._spark.table(table).where(where).isEmpty():
            self._write(lambda: self._spark.sql(f"DELETE FROM {table} WHERE {where}"), table)

    def _write(self, action: Callable[[], Any], table: str) -> None:
        """Runs write to the same tables at the same time: whoever comes second tries again."""
        guarded("cannot write", table, lambda: retried(action))


def _snapshot_of(table: JavaObject, write: str) -> int | None:
    """The snapshot that a write of that name has made; None where it has made none by that name."""
    written = (s.snapshotId() for s in snapshots_back(table) if s.summary().get(_WRITE) == write)
    return next(written, None)


class _RowHasChanged(CatalogError):
    def __init__(self, table: str) -> None:
        super().__init__("another process keeps changing this run", table, "Try again in a minute.")


def _shares_a_file(problem: Exception) -> bool:
    return "some, but not all, rows match" in str(problem)
