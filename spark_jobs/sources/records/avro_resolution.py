"""Whether what one Avro schema has written can be read by another one: Avro's rules, and one that Avro leaves out.

Avro resolves added, removed and renamed fields, wider numbers and unions. It ignores logical types: a decimal of
another scale, or milliseconds in place of microseconds, would be read as another value. Kafka Connect's converters
write the name of the type (`connect.name`), often without a logical type: then the name alone says the unit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, jvm
from spark_jobs.spark.java import java_reason

_NAMED = ("record", "enum", "fixed")
_TIMES = {
    "date", "time-millis", "time-micros", "time-nanos", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
    "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos", "duration",
}  # fmt: skip
_DECIMAL = "decimal"
_NAMED_BY_CONNECT = {
    "org.apache.kafka.connect.data.Decimal": _DECIMAL,
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.NanoTime": "time-nanos",
    "io.debezium.time.Timestamp": "timestamp-millis",
    "io.debezium.time.MicroTimestamp": "timestamp-micros",
    "io.debezium.time.NanoTimestamp": "timestamp-nanos",
}
"""The logical types that Kafka Connect and Debezium name."""


def parsed_schema(spark: SparkSession, text: str, references: tuple[str, ...] = ()) -> JavaObject:
    """The schema of a text, with those that it refers to. Raises ValueError with Avro's reason."""
    try:
        parser = jvm(spark).org.apache.avro.Schema.Parser()
        for one in references:
            parser.parse(one)
        return parser.parse(text)
    except JAVA_ERRORS as error:
        raise ValueError(java_reason(error).partition(": ")[2] or java_reason(error)) from error


def incompatibility(spark: SparkSession, reader: str, writer: str) -> str | None:
    """The first thing for which Avro's rules may fail on what `writer` has written; None where they fail on nothing."""
    checker = jvm(spark).org.apache.avro.SchemaCompatibility
    schemas = parsed_schema(spark, reader), parsed_schema(spark, writer)
    found = checker.checkReaderWriterCompatibility(*schemas).getResult().getIncompatibilities()
    if found.isEmpty():
        return None
    first = found.get(0)
    if str(first.getType()) == "READER_FIELD_MISSING_DEFAULT_VALUE":
        return f"it has no field `{first.getMessage()}`, and the field has no default"
    return f"{first.getMessage()} (at {first.getLocation()})"


def other_logical_type(reader: str, writer: str) -> str | None:
    """The first field whose values would be taken for others, because its logical type differs; None: there is none."""
    ours, theirs = json.loads(reader), json.loads(writer)
    return next(_differences(ours, theirs, _named(ours, ""), _named(theirs, ""), (), set(), _means_another), None)


def other_named_unit(first: str, second: str) -> str | None:
    """The first field that both schemas have as a number whose unit only `connect.name` says, and differently.

    None: there is none. Each is read by its own schema, so that logical types need not be equal.
    """
    ours, theirs = json.loads(first), json.loads(second)
    return next(_differences(ours, theirs, _named(ours, ""), _named(theirs, ""), (), set(), _is_named_another), None)


def _differences(
    ours: Any,
    theirs: Any,
    our_names: dict[str, Any],
    their_names: dict[str, Any],
    path: tuple[str, ...],
    seen: set[Any],
    differs: Callable[[Any, Any], bool],
) -> Iterator[str]:
    ours, theirs = _definition(ours, our_names), _definition(theirs, their_names)
    if isinstance(ours, list) or isinstance(theirs, list):
        for branch in theirs if isinstance(theirs, list) else [theirs]:
            for mine in _branches(ours if isinstance(ours, list) else [ours], branch, our_names, their_names):
                yield from _differences(mine, branch, our_names, their_names, path, seen, differs)
        return
    place = ".".join(path) or "the value"
    if differs(ours, theirs):
        yield f"field {place} is {_shown(theirs)} there, and {_shown(ours)} in the schema that it is read by"
    if _kind(ours) != _kind(theirs):
        return
    match _kind(ours):
        case "record":
            if (pair := (ours.get("name"), theirs.get("name"))) in seen:
                return
            seen.add(pair)
            written = {field["name"]: field for field in theirs["fields"]}
            for field in ours["fields"]:
                name = next((n for n in (field["name"], *field.get("aliases", ())) if n in written), None)
                if name is not None:
                    here = (*path, field["name"])
                    yield from _differences(
                        field["type"], written[name]["type"], our_names, their_names, here, seen, differs
                    )
        case "array":
            yield from _differences(ours["items"], theirs["items"], our_names, their_names, path, seen, differs)
        case "map":
            yield from _differences(ours["values"], theirs["values"], our_names, their_names, path, seen, differs)


def _branches(ours: list[Any], branch: Any, our_names: dict[str, Any], their_names: dict[str, Any]) -> list[Any]:
    """The reader's branches that take what the writer's branch has written."""
    kind = _kind(_definition(branch, their_names))
    same = [mine for mine in ours if _kind(_definition(mine, our_names)) == kind]
    others = [mine for mine in ours if _kind(_definition(mine, our_names)) != "null"]
    return same or (others if kind != "null" and len(others) == 1 else [])


def _named(schema: Any, namespace: str) -> dict[str, Any]:
    """The definitions in a schema by their full names."""
    found: dict[str, Any] = {}
    if isinstance(schema, list):
        for branch in schema:
            found |= _named(branch, namespace)
    elif isinstance(schema, dict):
        if schema["type"] in _NAMED:
            full = schema["name"]
            if "." not in full:
                namespace = schema.get("namespace", namespace)
                full = f"{namespace}.{full}" if namespace else full
            namespace = full.rpartition(".")[0]
            found[full] = found[schema["name"]] = schema
        for field in schema.get("fields", ()):
            found |= _named(field["type"], namespace)
        for inner in ("items", "values"):
            found |= _named(schema[inner], namespace) if inner in schema else {}
        if isinstance(schema["type"], (dict, list)):
            found |= _named(schema["type"], namespace)
    return found


def _definition(schema: Any, names: dict[str, Any]) -> Any:
    """A schema behind its name, and behind `{"type": {...}}`."""
    if isinstance(schema, str):
        return names.get(schema, {"type": schema})
    if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
        return _definition(schema["type"], names)
    if isinstance(schema, dict) and schema["type"] in names and "fields" not in schema and "size" not in schema:
        return names[schema["type"]]
    return schema


def _kind(schema: Any) -> str:
    return "union" if isinstance(schema, list) else schema["type"]


def _means_another(ours: Any, theirs: Any) -> bool:
    """Whether the same bytes mean another value. A plain number beside a time is taken for that time."""
    mine, other = _logical(ours), _logical(theirs)
    if mine == other == _DECIMAL:
        precision, of_writer = _precision(ours), _precision(theirs)
        is_narrower = precision is not None and of_writer is not None and precision < of_writer
        return _scale(ours) != _scale(theirs) or is_narrower
    return mine != other and (_DECIMAL in (mine, other) or bool(mine and other))


def _is_named_another(ours: Any, theirs: Any) -> bool:
    has_logical_type = "logicalType" in ours or "logicalType" in theirs
    return not has_logical_type and _kind(ours) == _kind(theirs) and _means_another(ours, theirs)


def _logical(schema: Any) -> str:
    """The logical type that says what a value means; empty where there is none."""
    found = schema.get("logicalType", "")
    known = found if found == _DECIMAL or found in _TIMES else ""
    return known or _NAMED_BY_CONNECT.get(schema.get("connect.name", ""), "")


def _shown(schema: Any) -> str:
    kind = _logical(schema)
    return f"decimal({_precision(schema) or '?'}, {_scale(schema)})" if kind == _DECIMAL else kind or _kind(schema)


def _scale(schema: Any) -> int:
    return int(schema.get("scale", schema.get("connect.parameters", {}).get("scale", 0)))


def _precision(schema: Any) -> int | None:
    found = schema.get("precision", schema.get("connect.parameters", {}).get("connect.decimal.precision"))
    return None if found is None else int(found)
