"""For `test_run_lives`: what a reader of the tables sees who knows Iceberg alone, and rows to be staged."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from spark_jobs.lakehouse.publication import REVISIONS
from spark_jobs.lakehouse.published_state import RUN_ID
from spark_jobs.lakehouse.side_tables import Side
from spark_jobs.lakehouse.tables import Tables
from tests.faults.lives import Cell, ModelRun, Row, Value
from tests.runs.small_runs import MINUTE, T0

_STAMP = pa.timestamp("us", "UTC")


class Reader:
    """The tables of one pipeline as they are now."""

    def __init__(self, tables: Tables) -> None:
        home = os.environ["REWINDOW_HOME"]
        self._catalog = SqlCatalog("rewindow", uri=f"sqlite:///{home}/catalog.db", warehouse=f"{home}/warehouse")
        self._tables = tables
        self._known: dict[tuple[int, int], tuple[dict[str, Any], ...]] = {}
        self.windows: Table | None = None
        self.late: Table | None = None
        self.runs: dict[str, dict[str, Any]] = {}
        self.staging: set[str] = set()

    def look(self) -> None:
        """Read again."""
        self.windows, self.late = self._load(self._tables.windows), self._load(self._tables.late)
        namespace, name = self._tables.windows.removeprefix("rewindow.").rsplit(".", 1)
        tables = {table for _, table in self._catalog.list_tables(namespace)}
        staged = {table for table in tables if table.startswith(f"{name}__staging")}
        self.staging = {table.removesuffix("__late").removesuffix("__quarantine") for table in staged}
        runs = self._load(self._tables.runs)
        rows = () if runs is None else self._of(runs)
        self.runs = {row["run_id"]: row for row in rows}

    def _load(self, name: str) -> Table | None:
        identifier = name.removeprefix("rewindow.")
        return self._catalog.load_table(identifier) if self._catalog.table_exists(identifier) else None

    def _of(self, table: Table, snapshot: int | None = None) -> tuple[dict[str, Any], ...]:
        at, snapshot = snapshot, snapshot or table.metadata.current_snapshot_id
        if snapshot is None:
            return ()
        # A column that somebody drops is gone from the rows of all snapshots.
        key = (snapshot, table.metadata.current_schema_id)
        if key not in self._known:
            self._known[key] = tuple(table.scan(snapshot_id=at).to_arrow().to_pylist())
        return self._known[key]

    def new_snapshots(self, head: int | None) -> list[tuple[int, str]]:
        """The snapshots behind `head` in the history of the windows, the oldest first, each with its run."""
        found, table = [], self.windows
        snapshot = None if table is None else table.current_snapshot()
        while table is not None and snapshot is not None and snapshot.snapshot_id != head:
            summary = snapshot.summary.additional_properties if snapshot.summary else {}
            found.append((snapshot.snapshot_id, summary.get(RUN_ID, "")))
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        return found[::-1]

    def current(self) -> list[tuple[Cell, Row]]:
        """What readers see of each window, in order."""
        rows = () if self.windows is None else self._of(self.windows)
        return sorted(((_cell(row), (_value(row), row["run_id"], row["revision"])) for row in rows), key=repr)

    def lives(self) -> dict[Cell, list[dict[str, Any]]]:
        """All revisions of each window, the first one first."""
        snapshot = None if self.windows is None else self.windows.snapshot_by_name(REVISIONS)
        rows = () if self.windows is None or snapshot is None else self._of(self.windows, snapshot.snapshot_id)
        found: dict[Cell, list[dict[str, Any]]] = {}
        for row in sorted(rows, key=lambda row: row["revision"]):
            found.setdefault(_cell(row), []).append(row)
        return found

    def named_late(self) -> str | None:
        """The snapshot of the late records that the windows name."""
        return None if self.windows is None else self.windows.properties.get(Side.LATE.property)

    def late_records(self) -> list[tuple[int, Cell]]:
        """The late records that the windows name: offset and window."""
        named = self.named_late()
        if named is None or self.late is None or self.late.snapshot_by_id(int(named)) is None:
            return []
        return sorted((row["offset"], _cell(row)) for row in self._of(self.late, int(named)))

    def branches(self) -> set[str]:
        """What a process that publishes has made and not dropped."""
        tables = [table for table in (self.windows, self.late) if table is not None]
        return {name for table in tables for name in table.refs()} - {"main", REVISIONS, "published"}


def _cell(row: dict[str, Any]) -> Cell:
    start = row["window_start"].replace(tzinfo=UTC).timestamp() * 1000
    return row["k"], round((start - T0) / MINUTE)


def _value(row: dict[str, Any]) -> Value:
    return row["n"], row["records_dropped"], row.get("total")


def _start(window: int) -> datetime:
    return datetime.fromtimestamp((T0 + window * MINUTE) / 1000, UTC)


def windows_of(run: ModelRun) -> pa.Table:
    """The windows that a run stages."""
    cells, values = list(run.windows), list(run.windows.values())
    counts = [pa.array([value[i] for value in values], pa.int64()) for i in range(3)]
    zeros = pa.array([0] * len(cells))
    return pa.table(
        {
            "window_start": pa.array([_start(w) for _, w in cells], _STAMP),
            "window_end": pa.array([_start(w + 1) for _, w in cells], _STAMP),
            "k": pa.array([k for k, _ in cells], pa.string()),
            "n": counts[0],
            "total": counts[2],
            "pane": zeros.cast(pa.int32()),
            "state": pa.array(["closed"] * len(cells), pa.string()),
            "records_on_time": counts[0],
            "records_late": zeros.cast(pa.int64()),
            "records_dropped": counts[1],
        }
    )


def late_of(run: ModelRun) -> pa.Table:
    """The late records that a run stages."""
    cells = list(run.late.values())
    starts = pa.array([_start(w) for _, w in cells], _STAMP)
    return pa.table(
        {
            "partition": pa.array([0] * len(cells), pa.int32()),
            "offset": pa.array(list(run.late), pa.int64()),
            "k": pa.array([k for k, _ in cells], pa.string()),
            "windows_missed": pa.array([1] * len(cells), pa.int32()),
            "window_start": starts,
            "range_start": starts,
        }
    )
