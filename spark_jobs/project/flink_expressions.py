"""An expression of a Flink SQL script as Spark SQL, by what both engines were seen to give.

`files/flink_functions.json` lists functions, operators and casts by their names and the kinds of their operands, such
as `/(WHOLE, WHOLE)`. It is made from values that real Flink and Spark gave (`python -m tests.tools.flink_functions`).
What is alike is copied; `spark` is what gives in Spark what Flink gave; what differs, or is not listed, gets a CHECK.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from spark_jobs.project.flink_parser import NOTHING, FlinkParser, SqlNode, as_flink, column_of, in_place_of
from spark_jobs.project.flink_script import NoCounterpartError, Remark, spark_type
from spark_jobs.project.flink_types import LITERALS, UNKNOWN, FlinkType, Kind, common, flink_type, of_kind, whole

_FILE = Path(__file__).parent / "files" / "flink_functions.json"
_STRUCTURE = ("AS", "FILTER", "DESC", "NULLS FIRST", "NULLS LAST", "DEFAULT", "OVER", "DESCRIPTOR")
"""Operators that compute nothing: the type of the first operand is theirs."""
_OF_MANY = ("CONCAT", "CONCAT_WS", "COALESCE", "IN", "NOT IN", "GREATEST", "LEAST", "CASE", "ARRAY", "COUNT")
"""Functions of any number of operands: how many there are of a kind does not matter."""
_SAFE_PATTERN = re.compile(r"(?:yyyy|MM|dd|HH|mm|ss|SSS|[^A-Za-z'\[\]{}#+])*")
_ZONE = "ZONE"


@dataclass(frozen=True, slots=True)
class Scope:
    """The names that an expression may use: each column's Spark SQL and type, and the alias of their table.

    `zone`: the session's time zone; None where the script does not set it.
    """

    columns: Mapping[str, str]
    types: Mapping[str, FlinkType] = field(default_factory=dict)
    alias: str = ""
    zone: str | None = None

    def type_of(self, names: Sequence[str]) -> FlinkType:
        """The type behind a name."""
        found = column_of(names, self.columns, self.alias)
        return UNKNOWN if found is None else self.types.get(found[0], UNKNOWN).part(found[1])


@dataclass(frozen=True, slots=True)
class Translated:
    """An expression in Spark SQL, its type in Flink, and what of it is not, or not surely, the same."""

    sql: str
    type: FlinkType
    remarks: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What was seen of a function with operands of these kinds.

    Attributes:
        gives: The kind of Flink's result.
        spark: What Spark gives the same for, over `x0`, `x1`, ...; empty for the function itself.
        zone: Whether the session's time zone changes it.
        differs: A value for which Spark gave another result; empty where there is none.
        is_aggregate: Whether it is one.
    """

    gives: Kind
    spark: str = ""
    zone: bool = False
    differs: str = ""
    is_aggregate: bool = False


@cache
def known_functions() -> Mapping[str, Known]:
    """What is known, by signature."""
    return {signature: known_of(one) for signature, one in json.loads(_FILE.read_text()).items()}


def known_of(one: Mapping[str, Any]) -> Known:
    """What an entry of the list says."""
    return Known(Kind(one["gives"]), one.get("spark", ""), "zone" in one, one.get("differs", ""), "aggregate" in one)


def signature(name: str, kinds: Sequence[Kind]) -> str:
    """How a function with operands of these kinds is called in the list."""
    if name in _OF_MANY:
        return f"{name}({', '.join(sorted({*kinds}))}...)"
    return f"{name}({', '.join(kinds)})"


def translated(
    node: SqlNode, scope: Scope, parser: FlinkParser, known: Mapping[str, Known] | None = None
) -> Translated:
    """The expression in Spark SQL. `known`: a list in the place of the product's."""
    walk = _Walk(scope, parser, known_functions() if known is None else known)
    copy, kind = walk.translated(node)
    return Translated(parser.formatted(copy), kind, tuple(walk.remarks))


def has_aggregate(node: SqlNode) -> bool:
    """Whether an expression has an aggregate, or a function that nothing is known of, which may be one."""
    known = _are_aggregates()
    names = {one.operator.upper() for one in node.all() if not one.is_leaf} - {*_STRUCTURE, ""}
    listed = {name.partition(" ")[0] for name in known}
    return any(known.get(name) or (name.isidentifier() and name not in listed) for name in names)


@cache
def _are_aggregates() -> Mapping[str, bool]:
    """Whether each function of the list is an aggregate, by its name."""
    return {name.partition("(")[0]: one.is_aggregate for name, one in known_functions().items()}


def signatures(node: SqlNode, scope: Scope) -> dict[str, bool]:
    """The names that the list may have for a call over columns and literals, the narrowest first.

    Each with whether the call is an instance of it: a literal above zero is none of every number.
    """
    walk = _Walk(scope, None, {})
    types = [walk.type_of(one) for one in _values(node)]
    found: dict[str, bool] = {}
    for kinds in product(*(kind.kinds for kind in types)):
        name = signature(_name(node), kinds)
        is_own = all(kind in LITERALS or not {*one.narrower} & LITERALS for kind, one in zip(kinds, types, strict=True))
        found[name] = found.get(name, False) or is_own
    return found


class _Walk:
    """One way through an expression."""

    def __init__(self, scope: Scope, parser: FlinkParser | None, known: Mapping[str, Known]) -> None:
        self.scope, self.parser, self.known = scope, parser, known
        self.remarks: list[Remark] = []

    def type_of(self, node: SqlNode) -> FlinkType:
        """The type of a column or a literal."""
        if node.type == "SqlIdentifier":
            return FlinkType(Kind.STAR) if "" in node.names else self.scope.type_of(node.names)
        return _literal_type(node) if node.is_leaf else UNKNOWN

    def translated(self, node: SqlNode, around: SqlNode = NOTHING) -> tuple[Any, FlinkType]:
        """The parser's object for Spark, and its type. `around`: the FILTER around an aggregate."""
        if not node:
            return None, UNKNOWN
        if node.type == "SqlIdentifier":
            sql = None if "" in node.names else in_place_of(node.names, self.scope.columns, self.scope.alias)
            copy = node.node if sql is None else self._parsed(as_flink(sql)).node
            return copy, self.type_of(node)
        if node.is_leaf:
            return node.node, _literal_type(node)
        if node.operator == "FILTER":
            return self.translated(node.operands[0], node)
        copy, values = node.node.clone(node.node.getParserPosition()), []
        for place, operand in enumerate(node.operands):
            if operand.type == "SqlNodeList":
                inner = self._list(operand)
                copy.setOperand(place, inner[0])
                found = inner[1]
            elif operand:
                found = [self.translated(operand)]
                copy.setOperand(place, found[0][0])
            values += found if _is_value(node, place) else []
        return self._call(node, copy, values, around)

    def _list(self, node: SqlNode) -> tuple[Any, list[tuple[Any, FlinkType]]]:
        copy = node.node.clone(node.node.getParserPosition())
        values = [self.translated(one) for one in node.operands]
        for place, (one, _) in enumerate(values):
            copy.set(place, one)
        return copy, values

    def _call(
        self, node: SqlNode, copy: Any, values: list[tuple[Any, FlinkType]], around: SqlNode
    ) -> tuple[Any, FlinkType]:
        types = [kind for _, kind in values]
        if node.operator in _STRUCTURE:
            return copy, types[0] if types else UNKNOWN
        found = self._known(node, types)
        instead = found.spark if found is not None else ""
        if not instead and (target := _target(node)):
            instead = f"{node.operator}(x0 AS {target})"
        if not instead and node.operator in ("FLOOR", "CEIL") and node.operands[-1].type == "SqlIntervalQualifier":
            raise NoCounterpartError(node.text, _unknown(node, types), node.line)
        condition = self.translated(around.operands[1])[0] if around else None
        if instead:
            template = _filtered(instead, _is_distinct(node), len(values) if around else None)
            copy = self._filled(template, [*(one for one, _ in values), condition])
        elif around:
            aggregate, copy = copy, around.node.clone(around.node.getParserPosition())
            copy.setOperand(0, aggregate)
            copy.setOperand(1, condition)
        return copy, _result(node, found, types)

    def _known(self, node: SqlNode, types: Sequence[FlinkType]) -> Known | None:
        """What is known of a call; adds the remark where that is not enough."""
        names = list(_candidates(node, types))
        found = next((self.known[name] for name in names if name in self.known), None)
        text, zone = node.text, self.scope.zone
        if found is None:
            if not self._is_always_alike(node, types):
                self.remarks.append(Remark(node.line, text, f"CHECK: {_unknown(node, types)}"))
        elif found.differs:
            self.remarks.append(Remark(node.line, text, f"CHECK: {found.differs}"))
        elif found.zone and zone is None:
            why = "CHECK: Flink takes the session's time zone, which the script does not set; here it is UTC"
            self.remarks.append(Remark(node.line, text, why))
        elif found.zone and not found.spark and zone != "UTC":
            self.remarks.append(
                Remark(node.line, text, f"CHECK: Flink takes the calendar of {zone}, Spark that of UTC")
            )
        return found

    def _is_always_alike(self, node: SqlNode, types: Sequence[FlinkType]) -> bool:
        """Whether an operand's type is not known, and does not matter: all that is known of the name is alike."""
        if all(kind.kind not in (Kind.UNKNOWN, Kind.NULL) for kind in types):
            return False
        start = f"{_name(node)}("
        same = [one for name, one in self.known.items() if name.startswith(start)]
        return bool(same) and not any(one.spark or one.zone or one.differs for one in same)

    def _filled(self, template: str, operands: Sequence[Any]) -> Any:
        """A template with operands in the place of `x0`, `x1`, ..."""
        return self._replaced(self._parsed(template.replace(_ZONE, self.scope.zone or "UTC")), operands)

    def _replaced(self, node: SqlNode, operands: Sequence[Any]) -> Any:
        if node.type == "SqlIdentifier" and re.fullmatch(r"x\d+", node.names[-1]):
            return operands[int(node.names[-1][1:])]
        for place, one in enumerate(node.operands):
            if one:
                set_one = node.node.set if node.type == "SqlNodeList" else node.node.setOperand
                set_one(place, self._replaced(one, operands))
        return node.node

    def _parsed(self, sql: str) -> SqlNode:
        assert self.parser is not None
        return self.parser.expression(sql)


def _filtered(template: str, is_distinct: bool, place: int | None) -> str:
    """A template of aggregates with the DISTINCT and the FILTER of the one that it stands for: its operand `place`."""
    distinct = "DISTINCT " if is_distinct else ""
    after = f" FILTER (WHERE x{place})" if place is not None else ""
    if not distinct and not after:
        return template
    return re.sub(r"\b(SUM|COUNT|AVG)\(([^()]*)\)", rf"\1({distinct}\2){after}", template)


def _is_distinct(node: SqlNode) -> bool:
    quantifier = node.node.getFunctionQuantifier()
    return quantifier is not None and str(quantifier.toString()).upper() == "DISTINCT"


def _is_value(node: SqlNode, place: int) -> bool:
    """Whether an operand is a value of its call: no unit, type or flag, and of CASE only what it may give."""
    one = node.operands[place]
    if not one or one.type in ("SqlIntervalQualifier", "SqlDataTypeSpec") or _is_flag(one):
        return False
    return node.kind != "CASE" or place >= 2


def _is_flag(node: SqlNode) -> bool:
    return node.type == "SqlLiteral" and str(node.node.getTypeName().toString()) == "SYMBOL"


def _values(node: SqlNode) -> Iterator[SqlNode]:
    for place, one in enumerate(node.operands):
        if _is_value(node, place):
            yield from one.operands if one.type == "SqlNodeList" else (one,)


def _name(node: SqlNode) -> str:
    """The name of a call, with its unit, type or flag."""
    name = node.operator.upper()
    if name in ("CAST", "TRY_CAST"):
        flags = [f"AS {_of_cast(node.operands[1])}"]
    else:
        flags = [one.text for one in node.operands if one.type == "SqlIntervalQualifier" or (one and _is_flag(one))]
    return " ".join([name, *(["DISTINCT"] if _is_distinct(node) else []), *flags])


def _of_cast(target: SqlNode) -> str:
    """A type of CAST: the digits of numbers and the length of texts do not matter, those of times do."""
    text = re.sub(r"\s+(CHARACTER SET `[^`]*`|NOT NULL)", "", target.text)
    return text if text.startswith("TIME") else text.partition("(")[0]


def _target(node: SqlNode) -> str:
    """The type of a CAST as Spark names it, where Flink's parser can read that; else empty."""
    if node.operator not in ("CAST", "TRY_CAST"):
        return ""
    target = spark_type(node.operands[1].text)
    return "" if "<" in target else target


def _candidates(node: SqlNode, types: Sequence[FlinkType]) -> Iterator[str]:
    yield from (signature(_name(node), kinds) for kinds in product(*(kind.kinds for kind in types)))


def _literal_type(node: SqlNode) -> FlinkType:
    text = node.text
    if node.type == "SqlNumericLiteral":
        kind = Kind.DOUBLE if "E" in text.upper() else Kind.DECIMAL if "." in text else Kind.WHOLE
        if kind is not Kind.WHOLE:
            return FlinkType(kind)
        width = whole("INT" if abs(int(text)) < 1 << 31 else "BIGINT").narrower
        return FlinkType(kind, narrower=(Kind.POSITIVE, *width) if int(text) > 0 else width)
    if node.type == "SqlCharStringLiteral":
        plain = (Kind.PLAIN,) if "\\" not in text else ()
        return FlinkType(Kind.TEXT, narrower=((Kind.PATTERN,) if _SAFE_PATTERN.fullmatch(text[1:-1]) else ()) + plain)
    if node.type == "SqlIntervalLiteral":
        return FlinkType(Kind.MONTHS if "MONTH" in text or "YEAR" in text else Kind.INTERVAL)
    if text in ("TRUE", "FALSE"):
        return FlinkType(Kind.BOOLEAN)
    return flink_type(text)


def _result(node: SqlNode, known: Known | None, types: Sequence[FlinkType]) -> FlinkType:
    if node.operator in ("CAST", "TRY_CAST"):
        return flink_type(node.operands[1].text)
    if node.operator == "ITEM" and types:
        return types[0].part([""])
    if node.operator in ("MIN", "MAX", "COALESCE", "CASE", "IF", "NULLIF", "FIRST_VALUE", "LAST_VALUE") and types:
        return common(types[1:] if node.operator == "IF" else types)
    return of_kind(known.gives) if known is not None else UNKNOWN


def _unknown(node: SqlNode, types: Sequence[FlinkType]) -> str:
    shown = signature(_name(node), [kind.kind for kind in types])
    return f"{shown} was not compared with Flink: it may differ in Spark"
