"""The relation that a query of a Flink SQL script reads: one table behind views, subqueries and a window function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_jobs.project.flink_deduplication import Numbered, numbered, refuse_other_rows
from spark_jobs.project.flink_doubts import doubts
from spark_jobs.project.flink_parser import FlinkParser, SqlNode, column_sql
from spark_jobs.project.flink_script import Located, NoCounterpartError, Remark, Script, SourceTable

METADATA = {key: column_sql(key) for key in ("timestamp", "partition", "offset", "topic", "headers")}
"""The metadata of a topic's record that a definition knows, as Spark SQL."""


@dataclass(frozen=True, slots=True)
class Relation:
    """What a query reads: a table, its columns in Spark SQL, conditions, and a window function if there is one.

    `numbered`: a column with ROW_NUMBER(), before a condition takes its first rows; `first`: afterwards. `remarks`:
    what of the views on the way is not, or not surely, the same in Spark.
    """

    table: SourceTable
    columns: Mapping[str, str]
    conditions: tuple[str, ...] = ()
    window: SqlNode | None = None
    numbered: Numbered | None = None
    first: Numbered | None = None
    remarks: tuple[Remark, ...] = ()


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
        case "TABLE_REF":
            return _with_options(inner(node.operands[0]), node.operands[1])
        case "SELECT":
            return _selected(node, inner, parser)
        case "OTHER_FUNCTION" if node.operator in ("TUMBLE", "HOP", "CUMULATE", "SESSION"):
            data = argument(node, 0, "DATA")
            relation = inner(data)
            if relation.window is not None:
                raise NoCounterpartError(node.operator, "a window over the result of a window", node.line)
            return replace(relation, window=node)
        case "UNION":
            why = "import each table by itself, and put the inputs together by hand under `history: {kind: union}`"
            raise NoCounterpartError("UNION ALL", why, node.line)
    raise NoCounterpartError(node.kind.replace("_", " "), "a definition reads one history, without joins", node.line)


def _with_options(relation: Relation, hints: SqlNode | None) -> Relation:
    """The relation with the options of `OPTIONS` hints, which replace those of the table."""
    options = dict(relation.table.options)
    remarks = list(relation.remarks)
    for hint in hints.operands if hints is not None else []:
        assert hint is not None
        name, given = hint.operands[:2]
        if name is None or given is None or name.names[-1].upper() != "OPTIONS":
            remarks.append(hint_left_out(hint))
            continue
        texts = [text.literal for text in given.operands if text is not None]
        options |= {key: Located(text, hint.line) for key, text in zip(texts[::2], texts[1::2], strict=True)}
    return replace(relation, table=replace(relation.table, options=options), remarks=tuple(remarks))


def hint_left_out(hint: SqlNode) -> Remark:
    """A hint that is in no definition."""
    return Remark(hint.line, f"hint {hint.text}", "has no counterpart")


def argument(call: SqlNode, place: int, name: str) -> SqlNode | None:
    """The argument of a window function, by its name or its place; None if it is left out."""
    for operand in call.operands:
        if operand is not None and operand.kind == "ARGUMENT_ASSIGNMENT":
            value, key = operand.operands
            if key is not None and key.names[-1].upper() == name:
                return value
    given = [part for part in call.operands if part is not None and part.kind != "ARGUMENT_ASSIGNMENT"]
    return given[place] if place < len(given) else None


_SELECT = (
    "keywords",
    "items",
    "from",
    "where",
    "group",
    "having",
    "windows",
    "qualify",
    "order",
    "offset",
    "fetch",
    "hints",
)


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
    relation, where = filtered(relation, parts["where"])
    columns: dict[str, str] = {}
    number: Numbered | None = None
    hints = parts["hints"].operands if parts["hints"] is not None else []
    remarks = [*relation.remarks, *(hint_left_out(hint) for hint in hints if hint is not None)]
    for item in parts["items"].operands if parts["items"] is not None else []:
        assert item is not None
        if item.kind == "IDENTIFIER" and item.names[-1] == "":
            columns |= relation.columns
            continue
        source, name = (item.operands[0], item.operands[1]) if item.kind == "AS" else (item, item)
        assert source is not None and name is not None
        if name.kind != "IDENTIFIER":
            raise NoCounterpartError(item.text, "an expression without a name in a subquery", item.line)
        if source.kind == "OVER":
            if relation.first is not None or relation.window is not None or number is not None:
                raise NoCounterpartError(item.text[:60], "ROW_NUMBER() once, and before the window", item.line)
            number, found = numbered(source, name.names[-1], relation.columns, parser)
            remarks += found
            continue
        remarks += doubts(source)
        columns[name.names[-1]] = parser.spark_sql(source, relation.columns)
    conditions = relation.conditions
    if where is not None:
        remarks += doubts(where)
        conditions = (*conditions, parser.spark_sql(where, relation.columns))
    return Relation(relation.table, columns, conditions, relation.window, number, relation.first, tuple(remarks))


def filtered(relation: Relation, where: SqlNode | None) -> tuple[Relation, SqlNode | None]:
    """The relation, and what is left of a WHERE over it: none where it takes the first rows of ROW_NUMBER().

    Raises NoCounterpartError where it takes others, and for a condition behind a deduplication.
    """
    if relation.numbered is not None:
        refuse_other_rows(where, relation.numbered)
        return replace(relation, numbered=None, first=relation.numbered), None
    if relation.first is not None and where is not None:
        why = "a condition behind the deduplication: in a definition filters come before it"
        raise NoCounterpartError(f"WHERE {where.text}"[:60], why, where.line)
    return relation, where


def plain_columns(table: SourceTable) -> dict[str, str]:
    """The physical columns of a table, for `FlinkParser.spark_sql`."""
    return {
        column.name: column_sql(column.name) for column in table.columns if not (column.metadata or column.computed)
    }
