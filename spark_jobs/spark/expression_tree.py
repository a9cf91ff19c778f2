"""What an SQL expression is made of, as Spark's parser and analyzer see it: is it a function of the record alone?"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.spark.closed import CALL_JAVA
from spark_jobs.spark.gateway import JavaObject, analyzed_plan, elements, is_instance_of, jvm, session_state

_OF_THE_RECORD = frozenset(
    {
        "Literal",
        "AttributeReference",
        "NamedLambdaVariable",
        "CommonExpressionRef",
        "ResolvedCollation",
        "Pi",
        "EulerNumber",
    }
)
"""Nodes without children whose value is a constant or comes from the record."""
_EMPTY = frozenset({"CreateArray", "CreateMap", "CreateNamedStruct", "Concat", "Coalesce"})
"""Nodes that may have no children, and are constants then."""
_SUBQUERIES = ("Subquery", "Exists", "ListQuery")
_CLOCK = frozenset({"CurrentTime", "CurrentTimestamp", "CurrentBatchTimestamp", "Now", "CurrentDate", "LocalTimestamp"})
_NOT_REPEATABLE = frozenset(
    {
        *("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"),
        *("now", "current_timestamp", "current_time", "current_date", "curdate", "localtimestamp"),
        *("monotonically_increasing_id", "spark_partition_id", "input_file_name"),
        *("input_file_block_start", "input_file_block_length"),
    }
)
"""Functions of the clock, of chance, and of the task that reads a record."""
_CLOCK_WORD = re.compile(r"^\s*((now|today|yesterday|tomorrow)\b|t?\d{1,2}:)", re.IGNORECASE)
"""Text that means the clock's time, or a time of its day."""
_CLOCK_LITERAL = re.compile(
    r"\b(timestamp|timestamp_ntz|timestamp_ltz|date)\s*'\s*((now|today|yesterday|tomorrow)\b|t?\d{1,2}:)", re.I
)
_READERS_OF_TIMES = frozenset(
    f"{attempt}{name}"
    for attempt in ("", "try_")
    for name in (
        "to_timestamp",
        "to_timestamp_ltz",
        "to_timestamp_ntz",
        "to_date",
        "unix_timestamp",
        "to_unix_timestamp",
    )
)
"""Functions that read text by a pattern."""
NO_CLEAR_TIME = r"^\s*(\D|[+-]?\d{1,3}\D)|[T ]\d{1,2}(:\d{1,2}){0,2}([.]\d*)?\s*(?!(Z|UTC?|GMT)\b)[A-Za-z]+\d*\s*$"
"""Text that Spark reads as a time of today, or in a zone whose name is ambiguous."""
SHORT_ZONES = frozenset(
    {
        *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "EAT", "ECT", "EST", "HST"),
        *("IET", "IST", "JST", "MIT", "MST", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
    }
)
"""Java's short names of zones (`ZoneId.SHORT_IDS`): most stand for several zones, and Java has chosen one."""
_WITH_ZONE = {
    "to_utc_timestamp": (1,),
    "from_utc_timestamp": (1,),
    "convert_timezone": (0, 1),
    "make_timestamp": (6,),
    "make_timestamp_ltz": (6,),
    "try_make_timestamp": (6,),
    "try_make_timestamp_ltz": (6,),
}
"""Functions with a zone, and the places of it among their arguments."""
_MULTIPLIES = frozenset({"window", "session_window", "window_time"})
_METADATA = "_metadata"
"""Spark's hidden column of files, which says where a record lies."""
_ZONE_HINT = (
    "write XXX for an offset or VV for a zone such as Europe/Berlin; where all have the same zone, write it as "
    "text ('UTC') and convert with to_utc_timestamp"
)
_AGGREGATE = "org.apache.spark.sql.catalyst.expressions.aggregate.AggregateFunction"
_SHOWN = 60

ANOTHER_VALUE = "gives another value at each run"
COLUMNS_ONLY = "use columns of the record only"


@dataclass(frozen=True, slots=True)
class Foreign:
    """A part of an expression that is no function of the record, and a hint. `column`: the column that is missing."""

    what: str
    hint: str = COLUMNS_ONLY
    column: str | None = None


def foreign_in_text(spark: SparkSession, text: str) -> Foreign | None:
    """What the parser already sees: subqueries, `*`, the clock and chance. Raises ParseException for what is no SQL.

    `count(*)` is parsed as `count(1)`, so it is allowed.
    """
    if _CLOCK_LITERAL.search(text):
        return Foreign(ANOTHER_VALUE)
    for node, name in nodes_of(session_state(spark).sqlParser().parseExpression(text)):
        if name.endswith(_SUBQUERIES):
            return Foreign("holds a query of its own", COLUMNS_ONLY)
        if name == "UnresolvedStar":
            return Foreign("`*` stands for Rewindow's own columns too", "name the columns")
        if name == "UnresolvedFunction":
            function = node.nameParts().last().lower()
            if function in CALL_JAVA:
                return Foreign(f"{function}() calls Java")
            if function in _NOT_REPEATABLE:
                return Foreign(f"{function}() {ANOTHER_VALUE}")
            if function in _MULTIPLIES:
                return Foreign(f"{function}() makes windows of its own", "use date_trunc, or the section `window`")
            if (zone := _short_zone(node, function)) is not None:
                return Foreign(f"the zone `{zone}` is not clear", "write a name such as Europe/Berlin, or an offset")
            reads_time = function in (*_READERS_OF_TIMES, "date", "timestamp") and node.children().size() > 0
            if reads_time and _CLOCK_WORD.match(_literal(node.children().apply(0))):
                return Foreign(ANOTHER_VALUE)
            if function in _READERS_OF_TIMES and _has_zone_name(node):
                return Foreign("the pattern reads a zone's name, which is ambiguous (IST, CST, BST)", _ZONE_HINT)
    return None


def foreign_part(frame: DataFrame, plan: DataFrame, text: str, own: Collection[str] = ()) -> Foreign | None:
    """The first part of the analyzed expression in `plan` that is no function of the record; None if there is none.

    Such parts are names that no column has and that Spark takes for functions (`user`), functions of the session, the
    clock, chance or files, and Rewindow's own columns but for `own`.

    Args:
        frame: The frame whose columns the expression can use.
        plan: A frame made from it with the expression in its last step (a WHERE or an aggregation).
        text: The expression.
    """
    spark = frame.sparkSession
    known = {name.lower() for name in frame.columns}
    if _METADATA not in known and any(name.lower() == _METADATA for name in names_in(spark, text)):
        return Foreign(f"there is no column `{_METADATA}`", column=_METADATA)
    for expression in elements(analyzed_plan(plan).expressions()):
        for node, name in nodes_of(expression):
            if name == "AttributeReference":
                column = node.name()
                if column.startswith("rw_") and column not in own:
                    return Foreign(f"there is no column `{column}`", column=column)
            elif _is_foreign(spark, node, name):
                if name in _CLOCK or not node.children().isEmpty() or not node.deterministic():
                    return Foreign(ANOTHER_VALUE)
                bare = next((word for word in names_in(spark, text) if word.lower() not in known), None)
                if bare is not None:
                    return Foreign(f"there is no column `{bare}`", column=bare)
                return Foreign(f"`{shown_part(node, text)}` is no function of the record")
    return None


def _is_foreign(spark: SparkSession, node: JavaObject, name: str) -> bool:
    if node.children().isEmpty():
        return name not in _OF_THE_RECORD and name not in _EMPTY
    if name in _CLOCK:
        return True
    if node.resolved() and node.foldable() and node.dataType().typeName() in _TIMES:
        child = node.children().apply(0)
        return child.dataType().typeName() == "string" and bool(_CLOCK_WORD.match(str(child.eval(None))))
    if name == "AesEncrypt":  # without an initialization vector, Spark draws one
        return not (_literal(node.iv()) or _literal(node.mode()).upper() == "ECB")
    if node.deterministic():
        return False
    return not is_instance_of(spark, node, _AGGREGATE) and all(child.deterministic() for child in children_of(node))


_TIMES = ("timestamp", "timestamp_ntz", "date")


def _has_zone_name(call: JavaObject) -> bool:
    """Whether the pattern of a function that reads times has the letters of a zone's name, outside of quotes."""
    if call.children().size() < 2:
        return False
    return bool(re.search("[zv]", re.sub(r"'[^']*'", "", _literal(call.children().apply(1)))))


def _short_zone(call: JavaObject, function: str) -> str | None:
    """A zone that the function is given as text, and that is one of SHORT_ZONES; None where there is none."""
    given = [call.children().apply(index) for index in _WITH_ZONE.get(function, ()) if index < call.children().size()]
    return next((text for node in given if (text := _literal(node)).strip().upper() in SHORT_ZONES), None)


def is_undated(spark: SparkSession, text: str) -> bool:
    """Whether an expression reads text by patterns, none of which has a year: Spark takes 1970."""
    patterns = []
    for node, name in nodes_of(session_state(spark).sqlParser().parseExpression(text)):
        if name == "UnresolvedFunction" and node.nameParts().last().lower() in _READERS_OF_TIMES:
            if node.children().size() > 1 and node.children().apply(1).nodeName() == "Literal":
                patterns.append(re.sub(r"'[^']*'", "", _literal(node.children().apply(1))))
            else:
                return False
    return bool(patterns) and not any(re.search("[yu]", pattern) for pattern in patterns)


def no_function(spark: SparkSession, name: str) -> tuple[str, str]:
    """The problem of a function that Spark does not have, and a hint with the nearest names."""
    near = get_close_matches(name.lower(), _functions(spark), 3)
    hint = f"did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else "use one of Spark SQL's functions"
    return f"there is no function `{name}`", hint


@lru_cache(maxsize=1)
def _functions(spark: SparkSession) -> list[str]:
    known = jvm(spark).org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin().listFunction()
    return str(known.mkString(" ")).split()


def _literal(node: JavaObject) -> str:
    """The text of a literal; something for any other expression."""
    if node.nodeName() == "Cast":
        node = node.child()
    if node.nodeName() != "Literal":
        return node.nodeName()
    value = node.value()
    return "" if value is None else value.decode("latin-1") if isinstance(value, bytes) else str(value)


def names_in(spark: SparkSession, text: str) -> Iterator[str]:
    """The first part of each name in the expression that is not called."""
    return (path[0] for path in paths_in(spark, text))


def paths_in(spark: SparkSession, text: str) -> Iterator[tuple[str, ...]]:
    """Each name in the expression that is not called, by its parts: a column, and fields within it."""
    for node, name in nodes_of(session_state(spark).sqlParser().parseExpression(text)):
        if name == "UnresolvedAttribute":
            yield tuple(elements(node.nameParts()))


def shown_part(node: JavaObject, text: str) -> str:
    """The part of an expression's text that a node stands for."""
    start, stop = node.origin().startIndex(), node.origin().stopIndex()
    part = text[start.get() : stop.get() + 1] if start.isDefined() and stop.isDefined() else text
    return part if len(part) <= _SHOWN else f"{part[:_SHOWN]}..."


def nodes_of(node: JavaObject) -> Iterator[tuple[JavaObject, str]]:
    """Each node of an expression with its name."""
    yield node, node.nodeName()
    for child in children_of(node):
        yield from nodes_of(child)


def children_of(node: JavaObject) -> list[JavaObject]:
    """The nodes right below a node of an expression or of a plan."""
    return list(elements(node.children()))
