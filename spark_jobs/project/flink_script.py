"""A Flink SQL script as tables, views, settings and queries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from spark_jobs.project.flink_parser import SqlNode


class NoCounterpartError(Exception):
    """A part of the script that a definition cannot express: `what` it is, `why`, and the line in the script."""

    def __init__(self, what: str, why: str, line: int) -> None:
        super().__init__(what, why, line)
        self.what, self.why, self.line = what, why, line


@dataclass(frozen=True, slots=True)
class Remark:
    """A part of the script that is not, or not exactly, in the definition: its line, what it is and why."""

    line: int
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Located:
    """A text and its line in the script."""

    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of CREATE TABLE. `metadata`: a metadata column's key. `computed`: a computed column's expression."""

    name: str
    type: str
    line: int
    metadata: str | None = None
    computed: SqlNode | None = None


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the script, with its options, and its watermark if it has one. `left_out`: its other clauses.

    `files`: the files that hold the records of its topic, which are read instead; empty: the topic is read.
    """

    name: str
    columns: tuple[Column, ...]
    options: Mapping[str, Located]
    watermark: SqlNode | None
    line: int
    left_out: tuple[tuple[str, int], ...] = ()
    files: str = ""

    def column(self, name: str) -> Column | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the script, and the table that it is inserted into.

    `columns`: those of the table that INSERT names. `remarks`: the other clauses of INSERT.
    """

    sink: str | None
    select: SqlNode
    line: int
    columns: tuple[str, ...] = ()
    remarks: tuple[Remark, ...] = ()


@dataclass(slots=True)
class Script:
    """What a script holds. `others`: statements that are none of these.

    `view_columns`: the names of a view's columns, where the script lists them.
    """

    tables: dict[str, SourceTable] = field(default_factory=dict)
    views: dict[str, SqlNode] = field(default_factory=dict)
    view_columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    settings: dict[str, Located] = field(default_factory=dict)
    queries: list[Query] = field(default_factory=list)
    others: list[SqlNode] = field(default_factory=list)


def read_script(statements: list[SqlNode]) -> Script:
    """Sort the statements of a script."""
    script = Script()
    for statement in statements:
        _add(script, statement)
    return script


def inner_queries(query: SqlNode, script: Script) -> Iterator[SqlNode]:
    """The SELECTs with GROUP BY below a query, and in the views that it reads, each text once."""
    seen: set[str] = {query.text}
    waiting = query.all()[1:] if query.kind == "SELECT" else query.all()
    while waiting:
        node = waiting.pop(0)
        if node.kind == "IDENTIFIER" and node.names[-1] in script.views and node.text not in seen:
            seen.add(node.text)
            waiting += script.views[node.names[-1]].all()
        elif node.kind == "SELECT" and node.text not in seen and node.operands[4]:
            seen.add(node.text)
            yield node


def _add(script: Script, statement: SqlNode) -> None:
    parts = statement.operands
    match statement.type:
        case "SqlSet" if len(parts) == 2:
            key, value = statement.node.getKeyString(), statement.node.getValueString()
            script.settings[key] = Located(value, statement.line)
        case "SqlCreateTable":
            table = _table(statement)
            script.tables[table.name] = table
        case "SqlCreateView":
            query = next(part for part in parts if part.kind in ("SELECT", "WITH", "UNION"))
            _add_view(script, parts[0], parts[1], query)
        case "SqlExecute" | "SqlStatementSet":
            for part in filter(None, parts):
                _add(script, part)
        case "RichSqlInsert":
            script.queries += _branches(_insert(script, statement))
        case _ if statement.kind in ("SELECT", "WITH", "ORDER_BY", "UNION"):
            script.queries += _branches(Query(None, _without_with(script, statement), statement.line))
        case "SqlBeginStatementSet" | "SqlEndStatementSet":
            pass
        case _:
            script.others.append(statement)


def _branches(query: Query) -> Iterator[Query]:
    """The queries that UNION ALL puts together, or the query itself. Each writes rows of its own."""
    if query.select.operator != "UNION ALL":
        yield query
        return
    why = "each query of it is a definition of its own"
    remark = Remark(query.select.line, f"UNION ALL (query of line {query.line})", why)
    for part in _united(query.select):
        yield replace(query, select=part, line=part.line, remarks=(*query.remarks, remark))


def _united(node: SqlNode) -> Iterator[SqlNode]:
    if node.operator != "UNION ALL":
        yield node
        return
    for part in node.operands:
        yield from _united(part)


def _insert(script: Script, statement: SqlNode) -> Query:
    target, source, listed = statement.operands[1:4]
    remarks: list[Remark] = []
    if statement.node.isOverwrite():
        why = "results go to Iceberg tables, where each value that changes becomes a new revision"
        remarks.append(Remark(statement.line, "INSERT OVERWRITE", why))
    partition = " ".join(str(statement.node.getStaticPartitions().toString()).split())
    if partition:
        why = "has no counterpart: the table of results is partitioned by the window's start"
        remarks.append(Remark(statement.line, f"PARTITION ({partition})", why))
    if target.kind == "TABLE_REF":
        target, hints = target.operands
        remarks.append(Remark(hints.line, f"INSERT INTO {target.names[-1]} with hints", "they are about writing"))
    columns = tuple(column.names[-1] for column in listed.operands)
    return Query(target.names[-1], _without_with(script, source), statement.line, columns, tuple(remarks))


def _without_with(script: Script, query: SqlNode) -> SqlNode:
    """The query behind WITH, whose parts become views."""
    if query.kind != "WITH":
        return query
    items, body = query.operands
    for item in items.operands:
        name, columns, inner = item.operands[:3]
        _add_view(script, name, columns, inner)
    return body


def _add_view(script: Script, name: SqlNode, columns: SqlNode, query: SqlNode) -> None:
    script.views[name.names[-1]] = _without_with(script, query)
    script.view_columns[name.names[-1]] = tuple(column.names[-1] for column in columns.operands)


def _table(statement: SqlNode) -> SourceTable:
    name, columns, watermark = statement.operands[0], [], None
    options: dict[str, Located] = {}
    left_out: list[tuple[str, int]] = []
    for part in (part for operand in statement.operands[1:] for part in _parts(operand) if part):
        if part.type.endswith("Column"):
            columns.append(_column(part))
        elif part.type == "SqlTableOption":
            options[part.node.getKeyString()] = Located(part.node.getValueString(), part.line)
        elif part.type == "SqlWatermark":
            watermark = part
        elif part.type == "SqlTableConstraint":
            left_out.append(("PRIMARY KEY", part.line))
        else:
            left_out.append((f"PARTITIONED BY {part.text}" if part.kind == "IDENTIFIER" else part.text, part.line))
    return SourceTable(name.names[-1], tuple(columns), options, watermark, statement.line, tuple(left_out))


def _parts(node: SqlNode) -> Iterator[SqlNode]:
    yield from node.operands if node.type == "SqlNodeList" else (node,)


def _column(part: SqlNode) -> Column:
    name = part.operands[0]
    if part.type == "SqlComputedColumn":
        return Column(name.names[-1], "", part.line, computed=part.operands[1])
    kind = part.operands[1]
    type_name = kind.text
    if part.type == "SqlMetadataColumn":
        alias = part.node.getMetadataAlias()
        return Column(name.names[-1], type_name, part.line, alias.get() if alias.isPresent() else name.names[-1])
    return Column(name.names[-1], type_name, part.line)


_TYPES = (
    (r"\s+NOT NULL|\s+CHARACTER SET `[^`]*`", ""),
    (r"\b(?:VAR)?CHAR(?:\(\d+\))?|\bCHARACTER(?: VARYING)?(?:\(\d+\))?", "STRING"),
    (r"\b(?:VAR)?BINARY(?:\(\d+\))?|\bBYTES\b", "BINARY"),
    (r"\bINTEGER\b", "INT"),
    (r"\bDOUBLE PRECISION\b", "DOUBLE"),
    (r"\bTIMESTAMP(?:_LTZ)?\b(?:\(\d+\))?(?: WITH(?:OUT)? (?:LOCAL )?TIME ZONE)?", "TIMESTAMP"),
    (r"\bROW<", "STRUCT<"),
    (r"`([^`]+)` (?=[A-Z])", r"`\1`: "),
    (r"\s*([<>])\s*", r"\1"),
)


def spark_type(text: str) -> str:
    """A Flink type as Spark DDL."""
    for pattern, instead in _TYPES:
        text = re.sub(pattern, instead, text)
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", text).replace(">,", ">, ")
