"""A query of a person: Spark's own parser says whether a statement only reads, and times are in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from spark_jobs.errors import DefinitionError
from spark_jobs.spark.expression_tree import children_of
from spark_jobs.spark.failures import short
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, is_instance_of, parsed_plan
from spark_jobs.spark.java import java_reason

_LOGICAL = "org.apache.spark.sql.catalyst.plans.logical"
_WRITES = (
    f"{_LOGICAL}.Command",
    f"{_LOGICAL}.ParsedStatement",
    f"{_LOGICAL}.ScriptTransformation",
    f"{_LOGICAL}.CompoundPlanStatement",
    f"{_LOGICAL}.ExecutableDuringAnalysis",
)
"""Statements that do something, those that only the analyzer tells apart (INSERT), and programs that a query starts."""
_READS = ("Show", "Describe", "ExplainCommand")
"""How the names of the commands begin that only read."""
_ALSO_WRITES = frozenset({"ExecuteImmediateQuery", "InsertIntoDir"})
"""More of them, which have no class in common: text that is carried out, rows that go into a folder."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a query: times in UTC without a zone. `has_more`: there are rows beyond these."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    has_more: bool


def query(spark: SparkSession, text: str, limit: int) -> Rows:
    """At most `limit` rows of a statement that only reads: a query, SHOW, DESCRIBE or EXPLAIN.

    Raises DefinitionError for any other statement, which is not carried out, and for a query that Spark refuses.
    """
    try:
        refuse_writes(spark, text)
        frame = spark.sql(text)
        found = frame.limit(limit + 1).collect()
    except JAVA_ERRORS as problem:
        what = short(java_reason(problem) if isinstance(problem, Py4JJavaError) else str(problem))
        raise DefinitionError(what, "the query", "Tables are named rewindow.<namespace>.<table>.") from problem
    kinds = [field.dataType for field in frame.schema]
    rows = tuple(tuple(in_utc(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in found[:limit])
    return Rows(tuple(frame.columns), rows, len(found) > limit)


def refuse_writes(spark: SparkSession, text: str) -> None:
    """Raises DefinitionError for a statement that does more than read, and ParseException for what is no SQL."""
    statement = parsed_plan(spark, text)
    if _name(statement).startswith(_READS):
        return
    for node in _nodes(statement):
        name = _name(node)
        if name in _ALSO_WRITES or any(is_instance_of(spark, node, kind) for kind in _WRITES):
            raise DefinitionError(
                f"`rewindow sql` only reads, and this statement does more ({name})",
                "the query",
                "Write a SELECT, SHOW, DESCRIBE or EXPLAIN. Windows are changed by `rewindow run`, `publish` and "
                "`maintain`; for anything else use Spark itself.",
            )


def in_utc(value: Any, kind: t.DataType) -> Any:
    """A value of Spark whose instants are in UTC; Spark gives them in the machine's own zone."""
    if value is None:
        return None
    if isinstance(kind, t.TimestampType) and isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(kind, t.ArrayType):
        return [in_utc(item, kind.elementType) for item in value]
    if isinstance(kind, t.MapType):
        return {in_utc(name, kind.keyType): in_utc(item, kind.valueType) for name, item in value.items()}
    if isinstance(kind, t.StructType):
        return {field.name: in_utc(item, field.dataType) for field, item in zip(kind, value, strict=True)}
    return value


def _name(node: JavaObject) -> str:
    return node.getClass().getSimpleName().removesuffix("$")


def _nodes(plan: JavaObject) -> Iterator[JavaObject]:
    yield plan
    for child in children_of(plan):
        yield from _nodes(child)
