"""The function calls of an SQL expression, as Spark's parser sees them, with their places in the text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession

from spark_jobs.errors import DefinitionError
from spark_jobs.spark.expression_tree import children_of
from spark_jobs.spark.gateway import elements, jvm, session_state

_PARSED_AGGREGATES = {"First": "first", "Last": "last", "AnyValue": "any_value"}
"""Functions with a syntax of their own: Spark's parser does not return them as plain function calls."""


@dataclass(frozen=True, slots=True)
class Call:
    """One function call in an expression: its name, its span in the text, and whether it is an aggregate.

    `argument`: the span of its first argument; None where it has none.
    """

    name: str
    start: int
    stop: int
    is_aggregate: bool
    is_distinct: bool
    filter_span: tuple[int, int] | None
    parent: str
    has_order: bool
    references: frozenset[str]
    argument: tuple[int, int] | None = None


@lru_cache(maxsize=1024)
def calls_in(spark: SparkSession, text: str) -> list[Call]:
    """The function calls of a Spark SQL expression. Raises DefinitionError for text that is no expression."""
    session = session_state(spark)
    found: list[Call] = []

    def is_aggregate(name: str) -> bool:
        identifier = jvm(spark).org.apache.spark.sql.catalyst.FunctionIdentifier(name)
        try:
            return session.catalog().lookupFunctionInfo(identifier).getGroup() == "agg_funcs"
        except AnalysisException:  # Spark knows no function of this name
            return False

    def span(node: Any) -> tuple[int, int]:
        origin = node.origin()
        return origin.startIndex().get(), origin.stopIndex().get() + 1

    def visit(node: Any, parent: str) -> set[str]:
        kind = node.getClass().getSimpleName()
        children = children_of(node)
        if kind == "UnresolvedAttribute":
            return {node.name().lower()}
        name = ""
        if kind in _PARSED_AGGREGATES:
            start, stop = span(node)
            references = set().union(*(visit(child, "") for child in children))
            found.append(
                Call(_PARSED_AGGREGATES[kind], start, stop, True, False, None, parent, False, frozenset(references))
            )
            return references
        if kind == "UnresolvedFunction":
            name = ".".join(elements(node.nameParts())).lower()
        references = set().union(*(visit(child, name or parent) for child in children)) if children else set()
        if name:
            start, stop = span(node)
            given = node.filter()
            found.append(
                Call(
                    name,
                    start,
                    stop,
                    is_aggregate(name),
                    bool(node.isDistinct()),
                    span(given.get()) if given.isDefined() else None,
                    parent,
                    any(c.getClass().getSimpleName() == "SortOrder" for c in children),
                    frozenset(references),
                    span(children[0]) if children and children[0].origin().startIndex().isDefined() else None,
                )
            )
        return references

    try:
        visit(session.sqlParser().parseExpression(text), "")
    except Exception as problem:
        if "ParseException" not in str(problem) and not isinstance(problem, ParseException):
            raise
        raise DefinitionError(f"not a Spark SQL expression: {text!r}", hint="check brackets and quotes") from problem
    return found
