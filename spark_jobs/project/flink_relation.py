"""The relation that a query of a Flink SQL script reads: one table, or several behind UNION ALL, a lookup, and views,
subqueries and a window function before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from spark_jobs.project.flink_deduplication import Numbered, numbered, refuse_other_rows
from spark_jobs.project.flink_expressions import Scope, translated
from spark_jobs.project.flink_lookup import Lookup, is_lookup, looked_up
from spark_jobs.project.flink_parser import NOTHING, FlinkParser, SqlNode, column_sql
from spark_jobs.project.flink_script import Located, NoCounterpartError, Remark, Script, SourceTable
from spark_jobs.project.flink_types import FlinkType, common, flink_type

METADATA = {key: column_sql(key) for key in ("timestamp", "partition", "offset", "topic", "headers")}
"""The metadata of a topic's record that a definition knows, as Spark SQL."""


@dataclass(frozen=True, slots=True)
class Relation:
    """What a query reads: a table, its columns in Spark SQL, conditions, and a window function if there is one.

    `window_columns`: those that the window function sees. `types`: those of the columns in Flink. `zone`: the
    session's time zone; None where the script does not set it.

    `numbered`: a column with ROW_NUMBER(), before a condition takes its first rows; `first`: afterwards. `remarks`:
    what of the views on the way is not, or not surely, the same in Spark. `inputs`: those of UNION ALL, each with the
    same columns; the table is the first one's then. `refused`: columns that a query may not name, and why. `alias`: the
    name that may stand before those of the columns.
    """

    table: SourceTable
    columns: Mapping[str, str]
    conditions: tuple[str, ...] = ()
    window: SqlNode = NOTHING
    window_columns: Mapping[str, str] = field(default_factory=dict)
    numbered: Numbered | None = None
    first: Numbered | None = None
    remarks: tuple[Remark, ...] = ()
    lookup: Lookup | None = None
    inputs: tuple[Relation, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    alias: str = ""
    types: Mapping[str, FlinkType] = field(default_factory=dict)
    zone: str | None = None

    @property
    def scope(self) -> Scope:
        """The names that an expression over the relation may use."""
        return Scope(self.columns, self.types, self.alias, self.zone)


def resolve(
    node: SqlNode,
    script: Script,
    parser: FlinkParser,
    base: Mapping[str, Scope],
    seen: tuple[str, ...] = (),
) -> Relation:
    """The relation behind FROM.

    Args:
        base: By table: its columns.
        seen: The views on the way.

    Raises:
        NoCounterpartError: It is more than tables with projections, filters, a lookup and one window function.
    """

    def inner(part: SqlNode) -> Relation:
        return resolve(part, script, parser, base, seen)

    match node.kind:
        case "IDENTIFIER":
            name = node.names[-1]
            if name in script.views and name not in seen:
                found = resolve(script.views[name], script, parser, base, (*seen, name))
                return replace(_named(found, script.view_columns.get(name, ()), node.line), alias=name)
            if name not in script.tables:
                raise NoCounterpartError(f"table {name}", "the script has no CREATE TABLE for it", node.line)
            own = base[name]
            return Relation(script.tables[name], own.columns, alias=name, types=own.types, zone=own.zone)
        case "AS":
            names = tuple(one.names[-1] for one in node.operands[2:])
            return replace(_named(inner(node.operands[0]), names, node.line), alias=node.operands[1].names[-1])
        case "EXPLICIT_TABLE" | "COLLECTION_TABLE" | "SET_SEMANTICS_TABLE":
            return inner(node.operands[0])
        case "TABLE_REF":
            return _with_options(inner(node.operands[0]), node.operands[1])
        case "SELECT":
            return _selected(node, inner, parser)
        case "OTHER_FUNCTION" if node.operator in ("TUMBLE", "HOP", "CUMULATE", "SESSION"):
            data = argument(node, 0, "DATA")
            relation = inner(data)
            if relation.window:
                raise NoCounterpartError(node.operator, "a window over the result of a window", node.line)
            return replace(relation, window=node, window_columns=relation.columns)
        case "JOIN" if is_lookup(node):
            return looked_up(node, inner(node.operands[0]), script, parser, base)
        case "UNION":
            return _united(node, inner)
    raise NoCounterpartError(node.kind.replace("_", " "), "a definition reads one history, without joins", node.line)


def _united(node: SqlNode, inner: Callable[[SqlNode], Relation]) -> Relation:
    """The relation of UNION ALL: each input has its columns under the names of the first one's."""
    if node.operator != "UNION ALL":
        raise NoCounterpartError(node.operator, "it leaves equal rows out: only UNION ALL has a counterpart", node.line)
    inputs = [each for part in node.operands for each in _inputs_of(inner(part), node.line)]
    names, *others = [[name for name in one.columns if "." not in name] for one in inputs]
    if any(len(other) != len(names) for other in others):
        raise NoCounterpartError("UNION ALL", "its tables have different numbers of columns", node.line)
    renamed = tuple(
        replace(
            one,
            columns=dict(zip(names, (one.columns[name] for name in own), strict=True)),
            types={name: one.types[old] for name, old in zip(names, own, strict=True) if old in one.types},
        )
        for one, own in zip(inputs, (names, *others), strict=True)
    )
    types = {
        name: common(one.types[name] for one in renamed) for name in names if all(name in one.types for one in renamed)
    }
    remarks = tuple(remark for one in inputs for remark in one.remarks)
    columns, zone = {name: column_sql(name) for name in names}, renamed[0].zone
    return Relation(renamed[0].table, columns, inputs=renamed, remarks=remarks, types=types, zone=zone)


def _inputs_of(relation: Relation, line: int) -> tuple[Relation, ...]:
    """The inputs that a part of UNION ALL is. Raises NoCounterpartError for what is replayed behind a union only."""
    wrong = {
        "a window": relation.window,
        "a lookup": relation.lookup,
        "ROW_NUMBER()": relation.numbered or relation.first,
        "a projection of another UNION ALL": relation.inputs
        and (relation.conditions or any(sql != column_sql(name) for name, sql in relation.columns.items())),
    }
    for what, there in wrong.items():
        if there:
            raise NoCounterpartError("UNION ALL", f"{what} in one of its tables", line)
    return relation.inputs or (relation,)


def refuse_names(relation: Relation, *nodes: SqlNode) -> None:
    """Raises NoCounterpartError where a part of a query over the relation names a column that it may not."""
    for node in nodes if relation.refused else ():
        for one in node.all():
            if one.kind == "IDENTIFIER" and (why := relation.refused.get(".".join(one.names))):
                raise NoCounterpartError(one.text, why, one.line)


def _with_options(relation: Relation, hints: SqlNode) -> Relation:
    """The relation with the options of `OPTIONS` hints, which replace those of the table."""
    options = dict(relation.table.options)
    remarks = list(relation.remarks)
    for hint in hints.operands:
        name, given = hint.operands[:2]
        if not given or name.names[-1].upper() != "OPTIONS":
            remarks.append(hint_left_out(hint))
            continue
        texts = [text.literal for text in given.operands]
        options |= {key: Located(text, hint.line) for key, text in zip(texts[::2], texts[1::2], strict=True)}
    return replace(relation, table=replace(relation.table, options=options), remarks=tuple(remarks))


def hint_left_out(hint: SqlNode) -> Remark:
    """A hint that is in no definition."""
    return Remark(hint.line, f"hint {hint.text}", "has no counterpart")


def argument(call: SqlNode, place: int, name: str) -> SqlNode:
    """The argument of a window function, by its name or its place; `NOTHING` if it is left out."""
    for operand in call.operands:
        if operand.kind == "ARGUMENT_ASSIGNMENT":
            value, key = operand.operands
            if key.names[-1].upper() == name:
                return value
    given = [part for part in call.operands if part and part.kind != "ARGUMENT_ASSIGNMENT"]
    return given[place] if place < len(given) else NOTHING


_SELECT = (
    *("keywords", "items", "from", "where", "group", "having"),
    *("windows", "qualify", "order", "offset", "fetch", "hints"),
)


def clauses(select: SqlNode) -> dict[str, SqlNode]:
    """The clauses of a SELECT by name; a list without an entry counts as left out."""
    found = dict.fromkeys(_SELECT, NOTHING) | dict(zip(_SELECT, select.operands, strict=False))
    return {name: NOTHING if node.type == "SqlNodeList" and not node.operands else node for name, node in found.items()}


def _selected(node: SqlNode, inner: Callable[[SqlNode], Relation], parser: FlinkParser) -> Relation:
    parts = clauses(node)
    for clause in ("keywords", "group", "having", "windows", "qualify", "order", "offset", "fetch"):
        if there := parts[clause]:
            what = f"{clause.upper()} in a subquery"
            raise NoCounterpartError(what, "only projections and filters of one table have a counterpart", there.line)
    relation = inner(parts["from"])
    refuse_names(relation, parts["items"], parts["where"])
    relation, where = filtered(relation, parts["where"])
    columns: dict[str, str] = {}
    types: dict[str, FlinkType] = {}
    number: Numbered | None = None
    remarks = [*relation.remarks, *map(hint_left_out, parts["hints"].operands)]
    for place, item in enumerate(parts["items"].operands):
        if item.kind == "IDENTIFIER" and item.names[-1] == "":
            own = _all_columns(relation, item.names[:-1])
            columns |= {name: relation.columns[name] for name in own}
            types |= {name: relation.types[name] for name in own if name in relation.types}
            continue
        source, named = (item.operands[0], item.operands[1]) if item.kind == "AS" else (item, item)
        name = named.names[-1] if named.kind == "IDENTIFIER" else f"EXPR${place}"  # Flink's own name
        if source.kind == "OVER":
            if relation.first is not None or relation.window or number is not None:
                raise NoCounterpartError(item.text[:60], "ROW_NUMBER() once, and before the window", item.line)
            if relation.inputs:
                raise NoCounterpartError(item.text[:60], "a deduplication behind UNION ALL", item.line)
            number, found = numbered(source, name, relation.scope, parser)
            remarks += found
            continue
        made = translated(source, relation.scope, parser)
        remarks += made.remarks
        columns[name], types[name] = made.sql, made.type
    conditions = relation.conditions
    if where:
        asked = translated(where, relation.scope, parser)
        remarks += asked.remarks
        conditions = (*conditions, asked.sql)
    return replace(
        relation,
        columns=columns,
        types=types,
        conditions=conditions,
        numbered=number,
        remarks=tuple(remarks),
        refused={},
        alias="",
    )


def _all_columns(relation: Relation, qualifier: tuple[str, ...]) -> list[str]:
    """What `*` stands for; behind an alias the columns of that one of the two sides of a lookup."""
    names = [name for name in relation.columns if "." not in name]
    if not qualifier or relation.lookup is None:
        return names
    return [name for name in names if f"{qualifier[-1]}.{name}" in relation.columns]


def _named(relation: Relation, names: tuple[str, ...], line: int) -> Relation:
    """The relation with other names for its columns, in their order; none: its own."""
    if not names:
        return relation
    own = [name for name in relation.columns if "." not in name]
    if len(own) != len(names) or relation.window or relation.numbered:
        raise NoCounterpartError(f"columns {', '.join(names)}", "names for the columns of a window", line)
    columns = {new: relation.columns[old] for new, old in zip(names, own, strict=True)}
    types = {new: relation.types[old] for new, old in zip(names, own, strict=True) if old in relation.types}
    return replace(relation, columns=columns, types=types, refused={})


def filtered(relation: Relation, where: SqlNode) -> tuple[Relation, SqlNode]:
    """The relation, and what is left of a WHERE over it: none where it takes the first rows of ROW_NUMBER().

    Raises NoCounterpartError where it takes others, and for a condition behind a deduplication.
    """
    if relation.numbered is not None:
        refuse_other_rows(where, relation.numbered)
        return replace(relation, numbered=None, first=relation.numbered), NOTHING
    if relation.first is not None and where:
        why = "a condition behind the deduplication: in a definition filters come before it"
        raise NoCounterpartError(f"WHERE {where.text}"[:60], why, where.line)
    return relation, where


def plain_columns(table: SourceTable) -> dict[str, str]:
    """The physical columns of a table in Spark SQL."""
    return {
        column.name: column_sql(column.name) for column in table.columns if not (column.metadata or column.computed)
    }


def plain_types(table: SourceTable) -> dict[str, FlinkType]:
    """The types of a table's columns that are not computed."""
    return {column.name: flink_type(column.type) for column in table.columns if column.computed is None}
