"""What readers see of a pipeline: the current windows, late records and quarantined records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import BLOCK
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.columns import HISTORY_GONE
from spark_jobs.spark.parallel import run_parallel
from tests.walk.log import Place
from tests.walk.truth import Cell, Counted, Value


@dataclass(frozen=True, slots=True)
class Row:
    """One published window; a value is None where the window has none of its kind."""

    faithful: Value | None
    complete: Value | None
    counted: Counted
    is_kept: bool


@dataclass(frozen=True, slots=True)
class Published:
    """The tables of a pipeline. `twice`: windows with more than one row. A late record has the windows it missed."""

    windows: Mapping[Cell, Row] = field(default_factory=dict[Cell, Row])
    late: Mapping[Place, int] = field(default_factory=dict[Place, int])
    quarantined: Counter[Place | None] = field(default_factory=Counter[Place | None])
    twice: tuple[Cell, ...] = ()

    def without_counts(self) -> Published:
        """The same without what became of the records of each window."""
        return replace(self, windows={cell: replace(row, counted=Counted()) for cell, row in self.windows.items()})


def published(spark: SparkSession, pipeline: Pipeline) -> Published:
    """What the tables hold now."""
    tables = Tables.of(pipeline)
    windows, late, bad = run_parallel(
        spark, *(_reader(spark, name) for name in (tables.windows, tables.late, tables.quarantine))
    )
    cells = Counter(_cell(row) for row in windows)
    return Published(
        {_cell(row): _row(row) for row in windows},
        {(_number(row["partition"]), row["offset"]): row["windows_missed"] or 1 for row in late},
        Counter(None if row["offset"] is None else (_number(row["partition"]), row["offset"]) for row in bad),
        tuple(cell for cell, count in cells.items() if count > 1),
    )


def _reader(spark: SparkSession, table: str) -> Callable[[], list[dict[str, Any]]]:
    def read() -> list[dict[str, Any]]:
        if not spark.catalog.tableExists(table):
            return []
        return [row.asDict() for row in spark.table(table).collect()]

    return read


def _number(partition: int) -> int:
    """The walk's number of a partition: an input of a union has one partition."""
    return partition // BLOCK if partition >= BLOCK else partition


def _cell(row: Mapping[str, Any]) -> Cell:
    return row["g"], _ms(row["window_start"]), _ms(row["window_end"])


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def _row(row: Mapping[str, Any]) -> Row:
    return Row(
        None if row.get("n") is None or row.get("state") == "open" else (row["n"], row["total"]),
        None if row.get("n__complete") is None else (row["n__complete"], row["total__complete"]),
        Counted(*(row.get(f"records_{name}") or 0 for name in ("on_time", "late", "dropped", "not_counted"))),
        row["state"] == HISTORY_GONE,
    )
