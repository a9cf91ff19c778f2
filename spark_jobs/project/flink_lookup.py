"""The lookup of a Flink SQL script: a join with `FOR SYSTEM_TIME AS OF` before a window."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from spark_jobs.project.flink_deduplication import processing_times
from spark_jobs.project.flink_expressions import Scope, translated
from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql, is_same_sql
from spark_jobs.project.flink_script import Column, NoCounterpartError, Remark, Script, SourceTable
from spark_jobs.project.flink_types import flink_type
from spark_jobs.project.yaml_text import scalar

if TYPE_CHECKING:
    from spark_jobs.project.flink_relation import Relation
    from spark_jobs.project.flink_source import Lines

_OF_RECORD = ("timestamp", "partition", "offset", "topic", "headers", "key", "value")
_LEFT = "the join's key is null where there is no row: use the column of the record that it is compared with"


@dataclass(frozen=True, slots=True)
class Lookup:
    """A join to a table as it is at a time. `on`: the table's columns, each with SQL over the record.

    `period`: the column that says the time; empty: `PROCTIME()`.
    """

    table: SourceTable
    on: Mapping[str, str]
    as_of: Literal["run", "event_time"]
    period: str
    line: int

    @property
    def valid_from(self) -> str:
        """The column with the time from which on a row is valid, of a table with versions."""
        return _time_column(self.table) or "valid_from"


def is_lookup(join: SqlNode) -> bool:
    """Whether a join's right side is a table as it is at a time."""
    right = join.operands[3]
    table = right.operands[0] if right.kind == "AS" else right
    return table.kind == "SNAPSHOT"


def looked_up(
    join: SqlNode, relation: Relation, script: Script, parser: FlinkParser, base: Mapping[str, Scope]
) -> Relation:
    """The relation with the columns of a table that it is joined to.

    Raises NoCounterpartError where it is not one table, joined by equality, or where a column would hide another.
    """
    left, _, kind, right, _, condition = join.operands
    snapshot, alias = (right.operands[0], _alias(right)) if right.kind == "AS" else (right, "")
    named, period = snapshot.operands
    if relation.inputs or relation.lookup is not None:
        what = "behind UNION ALL" if relation.inputs else "beside another one"
        raise NoCounterpartError("FOR SYSTEM_TIME AS OF", f"a lookup {what}", join.line)
    if kind.text not in ("INNER", "LEFT"):
        raise NoCounterpartError(f"{kind.text} JOIN", "a lookup is an inner join or a left one", join.line)
    table = script.tables.get(named.names[-1]) if named.kind == "IDENTIFIER" else None
    if table is None:
        raise NoCounterpartError(f"table {named.text}", "the script has no CREATE TABLE for it", named.line)
    own = {column.name: column for column in table.columns if column.metadata is None and column.computed is None}
    on = dict(_equalities(condition, _Sides(alias or table.name, own, relation.scope), parser))
    as_of = _as_of(period, relation, base)
    lookup = Lookup(table, on, as_of, period.names[-1] if period.kind == "IDENTIFIER" else "", named.line)
    added = {n: column for n, column in own.items() if n not in on and not (as_of != "run" and n == lookup.valid_from)}
    hidden = _hidden(relation, added, base, join.line)
    mine = {name: sql for name, sql in relation.columns.items() if name not in hidden}
    theirs = {name: column_sql(name) for name in added}
    refused = {f"{_alias(left)}.{name}": "the lookup's column of this name hides it" for name in hidden}
    remarks = [*relation.remarks, *_doubts(lookup, period)]
    conditions = relation.conditions
    if kind.text == "INNER":
        condition_sql, doubts = _has_row(relation, added, join.line)
        conditions, remarks = (*conditions, condition_sql), [*remarks, *doubts]
        theirs |= on
    else:
        refused |= {name: _LEFT for key in on for name in (f"{alias or table.name}.{key}", key) if name not in mine}
    columns = theirs | mine
    columns |= {f"{_alias(left)}.{name}": sql for name, sql in mine.items()}
    columns |= {f"{alias or table.name}.{name}": sql for name, sql in theirs.items()}
    kinds = {name: flink_type(column.type) for name, column in own.items() if name in theirs}
    types = kinds | {name: kind for name, kind in relation.types.items() if name in mine}
    types |= {f"{_alias(left)}.{name}": kind for name, kind in relation.types.items() if name in mine}
    types |= {f"{alias or table.name}.{name}": kind for name, kind in kinds.items()}
    return replace(
        relation,
        columns=columns,
        types=types,
        conditions=conditions,
        lookup=lookup,
        remarks=tuple(remarks),
        refused=refused,
    )


def add_lookup(lines: Lines, lookup: Lookup) -> None:
    """Add `lookup`."""
    lines.add("lookup:", lookup.line)
    lines.add(f"  table: {scalar(_iceberg_name(lookup.table) or f'lake.ref.{lookup.table.name}')}", lookup.table.line)
    lines.add("  on:")
    for name, text in lookup.on.items():
        lines.add(f"    {scalar(name)}: {scalar(text)}", lookup.line)
    lines.add(f"  as_of: {lookup.as_of}")
    if lookup.as_of == "event_time":
        lines.add(f"  valid_from: {scalar(lookup.valid_from)}", lookup.table.line)
        lines.add("  valid_to: valid_to", None, "CHECK: null, or the time from which on the row is not valid")


@dataclass(frozen=True, slots=True)
class _Sides:
    """Which side of the join a column is of: the table's, with this alias and these columns, or the record's."""

    alias: str
    own: Mapping[str, Column]
    scope: Scope

    def is_of_table(self, node: SqlNode) -> bool:
        if node.kind != "IDENTIFIER":
            return False
        *before, name = node.names
        return before[-1:] == [self.alias] if before else name in self.own and name not in self.scope.columns


def _equalities(condition: SqlNode, sides: _Sides, parser: FlinkParser) -> Iterator[tuple[str, str]]:
    """Each column of the table that is compared, and the SQL over the record that it equals."""
    if condition.kind == "AND":
        for part in condition.operands:
            yield from _equalities(part, sides, parser)
        return
    if condition.kind == "EQUALS":
        for one, other in (condition.operands, condition.operands[::-1]):
            if sides.is_of_table(one) and not any(sides.is_of_table(node) for node in other.all()):
                yield one.names[-1], translated(other, sides.scope, parser).sql
                return
    why = "a lookup compares a column of its table with an expression over the record, by `=`"
    raise NoCounterpartError(f"ON {condition.text}"[:60], why, condition.line)


def _as_of(period: SqlNode, relation: Relation, base: Mapping[str, Scope]) -> Literal["run", "event_time"]:
    if period.kind != "IDENTIFIER":
        if period.operator == "PROCTIME":
            return "run"
        raise NoCounterpartError(f"FOR SYSTEM_TIME AS OF {period.text}", "it is no time attribute", period.line)
    found, table = relation.columns.get(period.names[-1], ""), relation.table
    if is_same_sql(found, base[table.name].columns.get(_time_column(table), "")) and found:
        return "event_time"
    if "PROCTIME" in found or found.strip("`") in set(processing_times(table)):
        return "run"
    raise NoCounterpartError(f"FOR SYSTEM_TIME AS OF {period.text}", "it is no time attribute", period.line)


def _hidden(relation: Relation, added: Mapping[str, Column], base: Mapping[str, Scope], line: int) -> frozenset[str]:
    """The record's columns that columns of the table hide. Raises NoCounterpartError where an expression uses one."""
    raw = {column.name for column in relation.table.columns if column.computed is None} | {*_OF_RECORD}
    clashes = {name for name in added if name.lower() in {other.lower() for other in raw}}
    time = base[relation.table.name].columns.get(_time_column(relation.table), "")
    computed = [sql for name, sql in relation.columns.items() if sql != column_sql(name)]
    for name in sorted(clashes):
        if any(re.search(rf"(?i)\b{re.escape(name)}\b", text) for text in (*computed, *relation.conditions, time)):
            why = f"both tables have a column {name}, and that of a lookup hides the record's"
            raise NoCounterpartError("FOR SYSTEM_TIME AS OF", why, line)
    return frozenset(name for name in relation.columns if name.lower() in {clash.lower() for clash in clashes})


def _has_row(relation: Relation, added: Mapping[str, Column], line: int) -> tuple[str, list[Remark]]:
    """The condition that a record of an inner join has a row."""
    if relation.first is not None or relation.numbered is not None:
        why = "it leaves records out behind the deduplication: in a definition filters come before it"
        raise NoCounterpartError("INNER JOIN", why, line)
    if not added:
        why = "no column of the lookup's table but its key says whether there was a row"
        raise NoCounterpartError("INNER JOIN", why, line)
    sure = next((name for name, column in added.items() if "NOT NULL" in column.type), None)
    name = sure or next(iter(added))
    doubt = Remark(line, "INNER JOIN", f"CHECK: records whose row has a null in {name} are left out too")
    return f"{column_sql(name)} IS NOT NULL", [] if sure else [doubt]


def _doubts(lookup: Lookup, period: SqlNode) -> Iterator[Remark]:
    what = f"FOR SYSTEM_TIME AS OF {period.text}"
    if lookup.as_of == "run":
        why = "a run takes the rows that the table has when it is planned; the job took those of its own time"
    else:
        why = "CHECK: the Iceberg table needs `valid_from` and `valid_to`, and the watermark is the records' alone"
    yield Remark(lookup.line, what, why)
    connector = lookup.table.options.get("connector")
    if _iceberg_name(lookup.table) is None:
        shown = f"'connector' = '{connector.text}'" if connector is not None else f"table {lookup.table.name}"
        why = "CHECK lookup.table: a lookup reads an Iceberg table; copy the rows into one, and name it"
        yield Remark(connector.line if connector is not None else lookup.table.line, shown, why)


def _time_column(table: SourceTable) -> str:
    """The column of WATERMARK FOR; empty where there is none."""
    return table.watermark.operands[0].names[-1] if table.watermark is not None else ""


def _iceberg_name(table: SourceTable) -> str | None:
    options = {name: option.text for name, option in table.options.items()}
    if options.get("connector") != "iceberg" or "catalog-name" not in options:
        return None
    database = options.get("catalog-database", "default")
    return f"{options['catalog-name']}.{database}.{options.get('catalog-table', table.name)}"


def _alias(node: SqlNode) -> str:
    """The name that a query gives a part of FROM; empty where it gives none."""
    if node.kind == "AS":
        return node.operands[1].names[-1]
    return node.names[-1] if node.kind == "IDENTIFIER" else ""
