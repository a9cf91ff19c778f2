"""The table `runs`: one row a run, and what became of it.

`running`, then `publishing`, then `published`; or `failed`, or `abandoned`: killed before it published. A kill leaves
one of the first two behind: `settle` tells what really happened from the published table, and clears what was staged.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, Tables, guarded, row_frame

_TRIES = 6
_ACTIVE: set[str] = set()
"""The runs that this process is carrying out now."""
STALE = timedelta(hours=24)
"""A run of another machine that has been silent for so long counts as killed."""
STAGED_PROCESS = "stages"
"""The `process` of a run whose stages are applications of their own: between them it has no process."""
STALE_IN_STAGES = timedelta(days=7)
"""Such a run may wait for a person; after so long it counts as killed."""


class Ledger:
    """The runs of one output table."""

    def __init__(self, spark: SparkSession, tables: Tables) -> None:
        self._spark = spark
        self._tables = tables
        self._written: dict[str, dict[str, Any]] = {}

    def begin(self, row: Mapping[str, Any]) -> None:
        """Write a run's first row, status `running`. `row` maps columns of `runs` to values.

        A run that begins again (its first stage was repeated) takes the place of what it wrote before.
        """
        run_id = row["run_id"]
        values = {"status": "running", "output": self._tables.windows, "process": this_process(), **row}
        _ACTIVE.add(run_id)
        self.put_rows(self._tables.runs, run_id, self._row(values))
        self._written[run_id] = values

    def _row(self, values: Mapping[str, Any]) -> DataFrame:
        return row_frame(self._spark, tuple(values.get(name) for name in RUNS_SCHEMA.names), RUNS_SCHEMA)

    def update(self, run_id: str, **values: Any) -> None:
        """Set columns of the run's row. A row that this process has begun is not read for it."""
        runs = self._tables.runs

        def new() -> DataFrame:
            return row_frame(self._spark, tuple(values.values()), StructType([RUNS_SCHEMA[name] for name in values]))

        def row_level() -> None:
            new().withColumn("rw_run", F.lit(run_id)).createOrReplaceTempView("rw_ledger")
            sets = ", ".join(f"{name} = s.{name}" for name in values)
            merge = f"MERGE INTO {runs} t USING rw_ledger s ON t.run_id = s.rw_run"
            try:
                self._spark.sql(f"{merge} WHEN MATCHED THEN UPDATE SET {sets}")
            finally:
                self._spark.catalog.dropTempView("rw_ledger")

        table = self._spark.table(runs)
        if run_id in self._written:
            self._written[run_id] |= values
            row = self._row(self._written[run_id])
        else:
            row = table.where(F.col("run_id") == run_id).drop(*values).crossJoin(new())
        self._overwrite(runs, run_id, row.select(*table.columns), row_level)

    def put_rows(self, table: str, run_id: str, rows: DataFrame) -> None:
        """Write a run's rows into a table with a column `run_id`, in the place of those that it has there."""

        def row_level() -> None:
            self._spark.sql(f"DELETE FROM {table} WHERE run_id = '{_quoted(run_id)}'")
            rows.writeTo(table).append()

        self._overwrite(table, run_id, rows, row_level)

    def _overwrite(self, table: str, run_id: str, rows: DataFrame, row_level: Callable[[], Any]) -> None:
        """Put `rows` in the place of the run's, in one commit.

        A run's rows lie in files of their own until `maintain` puts files together; then they change `row_level`.
        """

        def overwrite() -> None:
            try:
                rows.writeTo(table).overwrite(F.col("run_id") == run_id)
            except (PySparkException, Py4JJavaError) as problem:
                if "some, but not all, rows match" not in str(problem):
                    raise
                row_level()

        self._write(overwrite, table)

    def end(self, run_id: str) -> None:
        """This process has nothing more to do with the run."""
        _ACTIVE.discard(run_id)

    def runs(self) -> DataFrame:
        """The runs of this output table."""
        return self._spark.table(self._tables.runs).where(F.col("output") == F.lit(self._tables.windows))

    def published(self) -> list[Any]:
        """The published runs, latest first."""
        rows = self.runs().where("status = 'published'").collect()
        return sorted(rows, key=lambda row: row["finished_at"] or datetime.min, reverse=True)

    def status(self, run_id: str) -> str | None:
        """What the ledger says of a run; None: nothing."""
        rows = self.runs().where(F.col("run_id") == run_id).select("status").collect()
        return rows[0][0] if rows else None

    def is_published(self, run_id: str) -> bool:
        return not self.runs().where((F.col("run_id") == run_id) & (F.col("status") == "published")).isEmpty()

    def settle(self, now: datetime) -> list[str]:
        """Tell the truth of killed runs and remove what they staged; the ids of the abandoned ones.

        What waits for a person, or for a stage to be repeated, is given up after `STALE_IN_STAGES`.
        """
        waiting = f"status IN ('staged', 'failed') AND process = '{STAGED_PROCESS}'"
        pending = self.runs().where(f"status IN ('running', 'publishing') OR {waiting}").collect()
        killed = [
            row
            for row in pending
            if row["run_id"] not in _ACTIVE and was_killed(row["process"], row["started_at"], now)
        ]
        if not killed:
            return []
        there = self._spark.catalog.tableExists(self._tables.windows)
        facts = PublishedTable(self._spark, self._tables.windows)
        done = facts.published_runs() if there else set()
        abandoned = []
        for row in killed:
            run_id = row["run_id"]
            Staging(self._spark, self._tables.staging(run_id)).drop()
            if there:
                facts.drop_branches(run_id)
            if run_id in done:
                if row["replaces"]:
                    self.delete_superseded(run_id)
                self.update(run_id, status="published", finished_at=row["finished_at"] or now)
                continue
            for table in (self._tables.late, self._tables.quarantine):
                if self._spark.catalog.tableExists(table):
                    self.delete_rows(table, run_id)
            self.update(run_id, status="abandoned", finished_at=now)
            abandoned.append(run_id)
        return abandoned

    def delete_superseded(self, run_id: str) -> None:
        """Remove the side rows that a published run's stand for: late ones of its range, quarantined ones that it read.

        Of a run that `replaces` only: a reconciliation adds to what is there.
        """
        bounds = [F.unix_millis(name) for name in ("range_start", "range_end")]
        mode, as_of, start, end = self.runs().where(F.col("run_id") == run_id).select("mode", "as_of", *bounds).head()
        of_range = f"range_start >= timestamp_millis({start}) AND range_start < timestamp_millis({end})"
        ends = " ".join(f"WHEN {int(partition)} THEN {int(offset)}" for partition, offset in (as_of or {}).items())
        was_read = f"`offset` IS NULL OR `offset` < CASE partition {ends} END" if ends else "`offset` IS NULL"
        chosen = {self._tables.late: "FALSE" if mode == "complete" else of_range, self._tables.quarantine: was_read}
        for table, where in chosen.items():
            if self._spark.catalog.tableExists(table):
                self._delete(table, f"({where}) AND run_id <> '{_quoted(run_id)}'")

    def delete_rows(self, table: str, run_id: str) -> None:
        """Remove a run's rows from a side table."""
        self._delete(table, f"run_id = '{_quoted(run_id)}'")

    def _delete(self, table: str, where: str) -> None:
        if not self._spark.table(table).where(where).isEmpty():
            self._write(lambda: self._spark.sql(f"DELETE FROM {table} WHERE {where}"), table)

    def _write(self, action: Callable[[], Any], table: str) -> None:
        """Runs write to the same tables at the same time: who comes second tries again."""

        def retried() -> None:
            for attempt in range(_TRIES):
                try:
                    action()
                    return
                except (PySparkException, Py4JJavaError) as problem:
                    if attempt == _TRIES - 1 or not _is_conflict(str(problem)):
                        raise

        guarded("cannot write", table, retried)


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _is_conflict(text: str) -> bool:
    return "CommitFailedException" in text or "ValidationException" in text


def this_process() -> str:
    """`host:pid:start`, which no other process has."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_started(pid) or ''}"


def was_killed(process: str | None, started_at: datetime | None, now: datetime) -> bool:
    """Whether the process of a pending run is gone; of another machine's only its silence is known."""
    if process == STAGED_PROCESS:
        return _is_older(started_at, now, STALE_IN_STAGES)
    host, pid, start = (process or "::").rsplit(":", 2)
    if host == socket.gethostname() and pid.isdigit():
        if int(pid) == os.getpid():
            return True
        return _started(int(pid)) != start if Path("/proc").is_dir() else not _is_alive(int(pid))
    return _is_older(started_at, now, STALE)


def _is_older(started_at: datetime | None, now: datetime, limit: timedelta) -> bool:
    if started_at is None:
        return True
    begun = started_at if started_at.tzinfo else started_at.replace(tzinfo=now.tzinfo)
    return now - begun > limit


def _started(pid: int) -> str | None:
    """When the process started, in the kernel's own clock; None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
