"""A few records of a history, and the fields that they have, with types and values."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class FieldKind(StrEnum):
    """The type of a field's values."""

    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TEXT = "text"
    TIMESTAMP = "timestamp"
    LOCAL_TIMESTAMP = "timestamp without zone"
    DATE = "date"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the records, inside structs too.

    Attributes:
        path: Its names from the outermost struct on.
        values: The values that are there, in the order of the records; no null.
        nulls: Records without a value.
    """

    path: tuple[str, ...]
    values: tuple[Any, ...]
    nulls: int

    @property
    def name(self) -> str:
        """Its own name, without those of the structs around it."""
        return self.path[-1]

    @property
    def expression(self) -> str:
        """The field in Spark SQL."""
        return ".".join(quoted(name) for name in self.path)

    @property
    def kind(self) -> FieldKind:
        """The type that all its values share; OTHER for none, several, arrays and bytes."""
        kinds = {_kind_of(value) for value in self.values}
        if (
            FieldKind.TEXT in kinds
            and kinds <= {FieldKind.TEXT, FieldKind.INTEGER, FieldKind.NUMBER}
            and len(kinds) > 1
        ):
            kinds = {_kind_of_text(value) if isinstance(value, str) else _kind_of(value) for value in self.values}
        if kinds == {FieldKind.INTEGER, FieldKind.NUMBER}:
            return FieldKind.NUMBER
        return kinds.pop() if len(kinds) == 1 else FieldKind.OTHER

    @property
    def distinct(self) -> int:
        """How many different values there are."""
        return len({str(value) for value in self.values})


@dataclass(frozen=True, slots=True)
class Sample:
    """A few records of a history.

    Attributes:
        records: What expressions can name: the history's columns and the decoded fields, one mapping for each record.
        source: What was read, for people.
        value_format: `value.format` of the definition: columns, json, json_schema, csv, avro or text.
        value_column: `value.column`; None where there is none, or a topic.
        schema: `value.schema` as Spark DDL; None where the history has its own types.
        path: `history.path` for files; empty for other kinds.
        file_format: `history.format` for files; empty for other kinds.
        options: `history.options`.
        log_columns: Columns of the record's envelope, such as a topic's, which are no fields of its value.
        append_time: Whether a topic's timestamps are the broker's; None for other kinds.
        unreadable: Records that could not be decoded.
        tombstones: Records of a topic that were read and have no value.
        framing: `value.framing`; empty where values have none.
        registry: `value.registry`; empty where the values' schemas are in none.
        envelope: `value.envelope` as YAML; empty where the records are no changes of rows.
        deletes: Changes that were read and are no records, because they delete a row.
        checks: What was seen of the values and should be checked, for people.
    """

    records: Sequence[Mapping[str, Any]]
    source: str
    value_format: str = "columns"
    value_column: str | None = None
    schema: str | None = None
    path: str = ""
    file_format: str = ""
    options: Mapping[str, str | bool] = field(default_factory=dict)
    log_columns: frozenset[str] = frozenset()
    append_time: bool | None = None
    unreadable: int = 0
    tombstones: int = 0
    framing: str = ""
    registry: Mapping[str, Any] = field(default_factory=dict)
    envelope: str = ""
    deletes: int = 0
    checks: tuple[str, ...] = ()

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the records, those of structs too, in the order in which they first occur."""
        paths = dict.fromkeys(path for record in self.records for path in _leaves(record, ()))
        structs = {path[:length] for path in paths for length in range(1, len(path))}  # some of them null
        paths = {path: None for path in paths if path not in structs}
        return tuple(self._field(path) for path in paths)

    def find(self, expression: str) -> Field | None:
        """The field with this name, path or expression; None if there is none. That of a change may have `after.`"""
        expression = expression.removeprefix("after.") if self.envelope else expression
        return next((f for f in self.fields if expression in (f.expression, ".".join(f.path))), None)

    def _field(self, path: tuple[str, ...]) -> Field:
        values = [at(record, path) for record in self.records]
        there = tuple(value for value in values if value is not None)
        return Field(path, there, len(values) - len(there))


def at(record: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value at a path; None where a struct on the way is missing."""
    found: Any = record
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _leaves(record: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in record.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield (*path, name)


def quoted(name: str) -> str:
    """A name as Spark SQL reads it: in backticks where it is no plain identifier."""
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _kind_of(value: Any) -> FieldKind:
    match value:
        case bool():
            return FieldKind.BOOLEAN
        case int():
            return FieldKind.INTEGER
        case float() | Decimal():
            return FieldKind.NUMBER
        case str():
            return FieldKind.TEXT
        case datetime():
            return FieldKind.TIMESTAMP if value.tzinfo else FieldKind.LOCAL_TIMESTAMP
        case date():
            return FieldKind.DATE
    return FieldKind.OTHER


def _kind_of_text(text: str) -> FieldKind:
    """The type of text beside numbers, as a run reads it: text that holds a number is one."""
    if re.fullmatch(r"\s*[+-]?\d+\s*", text):
        return FieldKind.INTEGER
    return FieldKind.NUMBER if re.fullmatch(r"\s*[+-]?\d+[.]\d+\s*", text) else FieldKind.TEXT


_DDL = {
    FieldKind.INTEGER: "BIGINT",
    FieldKind.NUMBER: "DOUBLE",
    FieldKind.BOOLEAN: "BOOLEAN",
    FieldKind.TEXT: "STRING",
}


_BEYOND = 2**63
"""The first whole number that is too large for a BIGINT."""


def ddl_of(records: Sequence[Mapping[str, Any]]) -> str:
    """The fields of decoded JSON objects or CSV lines as Spark DDL. A field without any value is text."""
    names = dict.fromkeys(name for record in records for name in record)
    return ", ".join(f"{quoted(name)} {_type_of([record.get(name) for record in records])}" for name in names)


def nameable(records: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The records without fields whose names differ in case only, which are one name to Spark SQL; what to check."""
    names = dict.fromkeys(name for record in records for name in record)
    times = Counter(name.lower() for name in names)
    twins = [name for name in names if times[name.lower()] > 1]
    check = f"{', '.join(twins)}: names that differ in case only are one name to Spark SQL, so they are left out"
    return [{n: v for n, v in record.items() if n not in twins} for record in records], (check,) if twins else ()


def _type_of(values: Sequence[Any]) -> str:
    there = [value for value in values if value is not None]
    if there and all(isinstance(value, Mapping) for value in there):
        names = dict.fromkeys(name for value in there for name in value)
        if not names:
            return "STRING"
        inner = (f"{quoted(name)}: {_type_of([value.get(name) for value in there])}" for name in names)
        return f"STRUCT<{', '.join(inner)}>"
    if there and all(isinstance(value, list) for value in there):
        return f"ARRAY<{_type_of([item for value in there for item in value])}>"
    kind = Field((), tuple(there), 0).kind
    if kind is FieldKind.INTEGER and not all(-_BEYOND <= Decimal(value) < _BEYOND for value in there):
        return "DECIMAL(38, 0)"
    return _DDL.get(kind, "STRING")


def json_object(text: Any) -> dict[str, Any] | None:
    """The JSON object in a text or its bytes, as a run reads it; None where it is none."""
    if not isinstance(text, (str, bytes)):
        return None
    try:
        found = json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):  # a run cannot read what is nested so deeply either
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> None:
    """Raises ValueError: `NaN` and `Infinity` are no JSON."""
    raise ValueError(constant)
