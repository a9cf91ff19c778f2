"""The deduplication of a Flink SQL script: `ROW_NUMBER() OVER (PARTITION BY ... ORDER BY ...) = 1` before a window."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.project.flink_expressions import Scope, translated
from spark_jobs.project.flink_parser import FlinkParser, SqlNode
from spark_jobs.project.flink_script import Located, NoCounterpartError, Remark, SourceTable
from spark_jobs.project.yaml_text import scalar

if TYPE_CHECKING:
    from spark_jobs.project.flink_source import EventTime, Lines

TTL = "table.exec.state.ttl"
_NOT_FIRST = "only the first row of each id has a counterpart: `= 1`, over one table, with no other condition behind it"


@dataclass(frozen=True, slots=True)
class Numbered:
    """A column with ROW_NUMBER(): `by` in Spark SQL, and the column that orders, in the script and in Spark SQL."""

    name: str
    by: tuple[str, ...]
    order: str
    order_sql: str | None
    line: int


def numbered(source: SqlNode, name: str, scope: Scope, parser: FlinkParser) -> tuple[Numbered, list[Remark]]:
    """The column `name` of a subquery, which is `source`: a function OVER a window. Raises NoCounterpartError."""
    call, window = source.operands[:2]
    if call.operator != "ROW_NUMBER" or window.type != "SqlWindow":
        raise NoCounterpartError(source.text[:60], "a function OVER a window", source.line)
    parts, orders = (window.operands[place].operands for place in (2, 3))
    if not parts or len(orders) != 1:
        raise NoCounterpartError(source.text[:60], _NOT_FIRST, source.line)
    made = [translated(part, scope, parser) for part in parts]
    remarks = [remark for one in made for remark in one.remarks]
    (one,) = orders
    if one.kind == "DESCENDING":
        raise NoCounterpartError(source.text[:60], "descending: only the first row of a time has one", source.line)
    known = one.names[-1] if one.kind == "IDENTIFIER" else one.operator
    return Numbered(name, tuple(one.sql for one in made), known, scope.columns.get(known), source.line), remarks


def refuse_other_rows(where: SqlNode, column: Numbered) -> None:
    """Raises NoCounterpartError where a query over the numbered rows takes others than the first of each id."""
    text = where.text.replace("`", "").replace(" ", "").rpartition(".")[2]
    if text not in (f"{column.name}=1", f"{column.name}<=1"):
        shown = where.text[:60] or "without WHERE"
        raise NoCounterpartError(f"ROW_NUMBER() AS {column.name}, {shown}", _NOT_FIRST, column.line)


def add_deduplication(
    lines: Lines, column: Numbered, table: SourceTable, time: EventTime, ttl: Located | None, window: str
) -> None:
    """Add `deduplicate`. Raises NoCounterpartError where the order is that of no time attribute."""
    if column.order_sql == time.elsewhere or column.order == time.column:
        kind = "row_time"
    elif column.order == "PROCTIME" or column.order in processing_times(table):
        kind = "processing_time"
    else:
        raise NoCounterpartError(f"ORDER BY {column.order}", "Top-N: it is no time attribute", column.line)
    if kind == "row_time" and window == "SESSION":
        raise NoCounterpartError(f"ORDER BY {column.order}", "a deduplication by row time before sessions", column.line)
    lines.add("deduplicate:", column.line)
    lines.add(f"  by: {'[' if column.by[1:] else ''}{', '.join(map(scalar, column.by))}{']' if column.by[1:] else ''}")
    lines.add(f"  kind: {kind}")
    if ttl is not None and ttl.text.strip().split(" ")[0].rstrip("msdhin") not in ("0", ""):
        lines.add(f"  within: {ttl.text if not ttl.text.isdigit() else f'{ttl.text} ms'}", ttl)


def processing_times(table: SourceTable) -> Iterator[str]:
    """The columns of a table that are the processing time."""
    for column in table.columns:
        if column.computed is not None and column.computed.operator == "PROCTIME":
            yield column.name
