"""Types of Flink SQL, as far as they decide what an expression becomes in Spark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from spark_jobs.project.flink_decimals import Digits, common_digits


class Kind(StrEnum):
    """What a type is. Those from `TINYINT` on say more of the value than its kind does."""

    WHOLE = "WHOLE"
    DECIMAL = "DECIMAL"
    FLOAT = "FLOAT"
    DOUBLE = "DOUBLE"
    TEXT = "TEXT"
    BOOLEAN = "BOOLEAN"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    INSTANT = "INSTANT"
    BYTES = "BYTES"
    ARRAY = "ARRAY"
    MAP = "MAP"
    ROW = "ROW"
    INTERVAL = "INTERVAL"
    MONTHS = "MONTHS"
    NULL = "NULL"
    STAR = "*"
    UNKNOWN = "?"
    TINYINT = "TINYINT"
    SMALLINT = "SMALLINT"
    INT = "INT"
    BIGINT = "BIGINT"
    POSITIVE = ">0"
    PLAIN = "'text'"
    FILLED = "'text+'"
    PATTERN = "'pattern'"


LITERALS = frozenset([Kind.POSITIVE, Kind.PLAIN, Kind.FILLED, Kind.PATTERN])
"""What only a literal is known to be."""


@dataclass(frozen=True, slots=True)
class FlinkType:
    """A type: its kind; of a row the types of its fields, of an array or a map that of its values, under ``.

    `narrower`: what else is known of the value, the narrowest first. `digits`: those of a decimal, or of a literal.
    """

    kind: Kind
    parts: Mapping[str, FlinkType] = field(default_factory=dict)
    narrower: tuple[Kind, ...] = ()
    digits: Digits | None = None

    @property
    def as_decimal(self) -> Digits | None:
        """The digits of a decimal, or of a whole number beside decimals; None where they are not known."""
        if self.digits is not None or self.kind is not Kind.WHOLE:
            return self.digits
        return next((digits for width, digits in _AS_DECIMAL.items() if width in self.narrower), None)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """What the value can be taken for, the narrowest first."""
        return (*self.narrower, self.kind)

    def part(self, names: Iterable[str]) -> FlinkType:
        """The type of a field, by its path."""
        found = self
        for name in names:
            found = found.parts.get(name, UNKNOWN)
        return found


UNKNOWN = FlinkType(Kind.UNKNOWN)
_BEGINNINGS = (
    (r"TINYINT|SMALLINT|INT\b|INTEGER|BIGINT", Kind.WHOLE),
    (r"DECIMAL|DEC\b|NUMERIC", Kind.DECIMAL),
    (r"DOUBLE", Kind.DOUBLE),
    (r"FLOAT|REAL", Kind.FLOAT),
    (r"CHAR|VARCHAR|STRING", Kind.TEXT),
    (r"BOOLEAN", Kind.BOOLEAN),
    (r"DATE", Kind.DATE),
    (r"TIMESTAMP_LTZ|TIMESTAMP(\(\d\))? WITH LOCAL", Kind.INSTANT),
    (r"TIMESTAMP", Kind.TIMESTAMP),
    (r"TIME", Kind.TIME),
    (r"BINARY|VARBINARY|BYTES", Kind.BYTES),
    (r"ARRAY", Kind.ARRAY),
    (r"MAP", Kind.MAP),
    (r"ROW", Kind.ROW),
    (r"INTERVAL (YEAR|MONTH)", Kind.MONTHS),
    (r"INTERVAL", Kind.INTERVAL),
    (r"NULL", Kind.NULL),
)


def flink_type(text: str) -> FlinkType:
    """The type that a text of Flink SQL names."""
    text = text.strip()
    kind = next((kind for pattern, kind in _BEGINNINGS if re.match(pattern, text, re.IGNORECASE)), Kind.UNKNOWN)
    inner = text[text.find("<") + 1 : text.rfind(">")] if "<" in text else ""
    if kind is Kind.ARRAY:
        return FlinkType(kind, {"": flink_type(inner)})
    if kind is Kind.MAP:
        return FlinkType(kind, {"": flink_type(_split(inner)[-1])})
    if kind is Kind.ROW:
        fields = (re.match(r"\s*(?:`([^`]+)`|(\w+))\s+(.*)", part, re.DOTALL) for part in _split(inner))
        return FlinkType(kind, {found[1] or found[2]: flink_type(found[3]) for found in fields if found})
    if kind is Kind.DECIMAL:
        found = re.match(r"\w+\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+))?)?", text)
        assert found is not None
        return FlinkType(kind, digits=Digits(int(found[1] or 10), int(found[2] or 0)))
    return whole(text) if kind is Kind.WHOLE else FlinkType(kind)


def whole(name: str) -> FlinkType:
    """The type of whole numbers of this width: `INT`, `BIGINT`, ..."""
    name = re.match(r"\w*", name)[0].upper()  # type: ignore[index]
    return FlinkType(Kind.WHOLE, narrower=(Kind("INT" if name == "INTEGER" else name),))


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for sign in text:
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


_AS_DECIMAL = {
    Kind.TINYINT: Digits(3, 0),
    Kind.SMALLINT: Digits(5, 0),
    Kind.INT: Digits(10, 0),
    Kind.BIGINT: Digits(19, 0, is_alike=False),
}
_WIDTHS = (*_AS_DECIMAL,)
_NUMBERS = (Kind.WHOLE, Kind.DECIMAL, Kind.FLOAT, Kind.DOUBLE)


def common(types: Iterable[FlinkType]) -> FlinkType:
    """The type that values of these types have together, as in CASE; `UNKNOWN` where there is none."""
    found = [one for one in types if one.kind is not Kind.NULL]
    kinds = {one.kind for one in found}
    if kinds == {Kind.WHOLE}:
        widths = [width for one in found for width in one.narrower if width in _WIDTHS]
        is_known = len(widths) == len(found)
        return FlinkType(Kind.WHOLE, narrower=(max(widths, key=_WIDTHS.index),) if is_known else ())
    if kinds and kinds <= {*_NUMBERS}:
        kind = max(kinds, key=_NUMBERS.index)
        return FlinkType(kind, digits=common_digits([one.as_decimal for one in found]))
    return FlinkType(found[0].kind, found[0].parts) if len(kinds) == 1 else UNKNOWN


def of_kind(kind: Kind) -> FlinkType:
    """The type of a kind, or of whole numbers of a width."""
    return whole(kind) if kind in _WIDTHS else FlinkType(kind)
