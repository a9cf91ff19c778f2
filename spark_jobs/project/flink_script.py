"""A Flink SQL script as tables, views, settings and queries; and the relation that a query reads."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql


class NoCounterpartError(Exception):
    """A part of the script that a definition cannot express: `what` it is, `why`, and the line in the script."""

    def __init__(self, what: str, why: str, line: int) -> None:
        super().__init__(what, why, line)
        self.what, self.why, self.line = what, why, line


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
    """A table of the script, with its options, and its watermark if it has one. `left_out`: its other clauses."""

    name: str
    columns: tuple[Column, ...]
    options: Mapping[str, Located]
    watermark: SqlNode | None
    line: int
    left_out: tuple[tuple[str, int], ...] = ()

    def column(self, name: str) -> Column | None:
        """The column of this name."""
        return next((column for column in self.columns if column.name == name), None)


@dataclass(frozen=True, slots=True)
class Query:
    """A query of the script, and the table that it is inserted into."""

    sink: str | None
    select: SqlNode
    line: int


@dataclass(slots=True)
class Script:
    """What a script holds. `others`: statements that are none of these."""

    tables: dict[str, SourceTable] = field(default_factory=dict)
    views: dict[str, SqlNode] = field(default_factory=dict)
    settings: dict[str, Located] = field(default_factory=dict)
    queries: list[Query] = field(default_factory=list)
    others: list[SqlNode] = field(default_factory=list)


def read_script(statements: list[SqlNode]) -> Script:
    """Sort the statements of a script."""
    script = Script()
    for statement in statements:
        _add(script, statement)
    return script


def _add(script: Script, statement: SqlNode) -> None:
    parts = statement.operands if not statement.is_leaf else []
    match statement.type:
        case "SqlSet" if len(parts) == 2:
            key, value = statement.node.getKeyString(), statement.node.getValueString()
            script.settings[key] = Located(value, statement.line)
        case "SqlCreateTable":
            table = _table(statement)
            script.tables[table.name] = table
        case "SqlCreateView":
            query = next(part for part in parts if part is not None and part.kind in ("SELECT", "WITH", "UNION"))
            name = parts[0]
            assert name is not None
            fields = parts[1].operands if parts[1] is not None else []
            if fields:
                script.others.append(statement)
            script.views[name.names[-1]] = _without_with(script, query)
        case "SqlExecute" | "SqlStatementSet":
            for part in parts:
                if part is not None:
                    _add(script, part)
        case "RichSqlInsert":
            target, source = parts[1], parts[2]
            assert target is not None and source is not None
            script.queries.append(Query(target.names[-1], _without_with(script, source), statement.line))
        case _ if statement.kind in ("SELECT", "WITH", "ORDER_BY", "UNION"):
            script.queries.append(Query(None, _without_with(script, statement), statement.line))
        case "SqlBeginStatementSet" | "SqlEndStatementSet":
            pass
        case _:
            script.others.append(statement)


def _without_with(script: Script, query: SqlNode) -> SqlNode:
    """The query behind WITH, whose parts become views."""
    if query.kind != "WITH":
        return query
    items, body = query.operands
    assert items is not None and body is not None
    for item in items.operands:
        assert item is not None
        name, columns, inner = item.operands[:3]
        assert name is not None and inner is not None
        if columns is not None and columns.operands:
            script.others.append(item)
        script.views[name.names[-1]] = _without_with(script, inner)
    return body


def _table(statement: SqlNode) -> SourceTable:
    name, columns, watermark = statement.operands[0], [], None
    assert name is not None
    options: dict[str, Located] = {}
    left_out: list[tuple[str, int]] = []
    for part in (part for operand in statement.operands[1:] if operand is not None for part in _parts(operand)):
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
    yield from (part for part in node.operands if part is not None) if node.type == "SqlNodeList" else (node,)


def _column(part: SqlNode) -> Column:
    name = part.operands[0]
    assert name is not None
    if part.type == "SqlComputedColumn":
        return Column(name.names[-1], "", part.line, computed=part.operands[1])
    kind = part.operands[1]
    type_name = kind.text if kind is not None else ""
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


@dataclass(frozen=True, slots=True)
class Relation:
    """What a query reads: a table, its columns in Spark SQL, conditions, and a window function if there is one."""

    table: SourceTable
    columns: Mapping[str, str]
    conditions: tuple[str, ...] = ()
    window: SqlNode | None = None


def resolve(
    node: SqlNode,
    script: Script,
    parser: FlinkParser,
    base: Mapping[str, Mapping[str, str]],
    seen: tuple[str, ...] = (),
) -> Relation:
    """The relation behind FROM.

    Args:
        base: By table: its columns in Spark SQL.
        seen: The views on the way.

    Raises:
        NoCounterpartError: It is more than one table with projections, filters and one window function.
    """

    def inner(part: SqlNode | None) -> Relation:
        assert part is not None
        return resolve(part, script, parser, base, seen)

    match node.kind:
        case "IDENTIFIER":
            name = node.names[-1]
            if name in script.views and name not in seen:
                return resolve(script.views[name], script, parser, base, (*seen, name))
            if name not in script.tables:
                raise NoCounterpartError(f"table {name}", "the script has no CREATE TABLE for it", node.line)
            return Relation(script.tables[name], base[name])
        case "AS":
            if len(node.operands) > 2:
                raise NoCounterpartError(node.text, "a list of column names after AS", node.line)
            return inner(node.operands[0])
        case "EXPLICIT_TABLE" | "COLLECTION_TABLE":
            return inner(node.operands[0])
        case "SET_SEMANTICS_TABLE":
            return inner(node.operands[0])
        case "SELECT":
            return _selected(node, inner, parser)
        case "OTHER_FUNCTION" if node.operator in ("TUMBLE", "HOP", "CUMULATE", "SESSION"):
            data = argument(node, 0, "DATA")
            relation = inner(data)
            if relation.window is not None:
                raise NoCounterpartError(node.operator, "a window over the result of a window", node.line)
            return Relation(relation.table, relation.columns, relation.conditions, node)
    raise NoCounterpartError(node.kind.replace("_", " "), "a definition reads one history, without joins", node.line)


def argument(call: SqlNode, place: int, name: str) -> SqlNode | None:
    """The argument of a window function, by its name or its place; None if it is left out."""
    for operand in call.operands:
        if operand is not None and operand.kind == "ARGUMENT_ASSIGNMENT":
            value, key = operand.operands
            if key is not None and key.names[-1].upper() == name:
                return value
    given = [part for part in call.operands if part is not None and part.kind != "ARGUMENT_ASSIGNMENT"]
    return given[place] if place < len(given) else None


_SELECT = ("keywords", "items", "from", "where", "group", "having", "windows", "qualify", "order", "offset", "fetch")


def clauses(select: SqlNode) -> dict[str, SqlNode | None]:
    """The clauses of a SELECT by name; a list without an entry counts as left out."""
    found = dict(zip(_SELECT, select.operands, strict=False))
    return {
        name: None if node is not None and node.type == "SqlNodeList" and not node.operands else node
        for name, node in found.items()
    }


def _selected(node: SqlNode, inner, parser: FlinkParser) -> Relation:
    parts = clauses(node)
    for clause in ("keywords", "group", "having", "windows", "qualify", "order", "offset", "fetch"):
        if (there := parts.get(clause)) is not None:
            what = f"{clause.upper()} in a subquery"
            raise NoCounterpartError(what, "only projections and filters of one table have a counterpart", there.line)
    relation = inner(parts["from"])
    columns: dict[str, str] = {}
    for item in parts["items"].operands if parts["items"] is not None else []:
        assert item is not None
        if item.kind == "IDENTIFIER" and item.names[-1] == "":
            columns |= relation.columns
            continue
        source, name = (item.operands[0], item.operands[1]) if item.kind == "AS" else (item, item)
        assert source is not None and name is not None
        if name.kind != "IDENTIFIER":
            raise NoCounterpartError(item.text, "an expression without a name in a subquery", item.line)
        columns[name.names[-1]] = parser.spark_sql(source, relation.columns)
    conditions = relation.conditions
    if (where := parts["where"]) is not None:
        conditions = (*conditions, parser.spark_sql(where, relation.columns))
    return Relation(relation.table, columns, conditions, relation.window)


def plain_columns(table: SourceTable) -> dict[str, str]:
    """The physical columns of a table, for `FlinkParser.spark_sql`."""
    return {
        column.name: column_sql(column.name) for column in table.columns if not (column.metadata or column.computed)
    }
