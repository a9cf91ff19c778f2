"""How far two values of one aggregate over the same records may lie apart: sums of floating point follow no one order.

A sum of n numbers, added in any order, is off by at most `(n - 1) u S`, where `u` is the unit roundoff and `S` the sum
of their absolute values (Jeannerod and Rump, "Improved error bounds for inner products in floating-point arithmetic",
2013). So two such sums differ by at most twice that, and two averages by that over n. What an expression makes of it is
computed: its value with the sum a bound larger, and a bound smaller. All other aggregates are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, NumericType

from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.spark.calls import Call, calls_in

_ADDING = ("sum", "try_sum", "avg", "mean", "try_avg")
_UNIT = {DoubleType: 2.0**-53, FloatType: 2.0**-24}
"""The unit roundoff by the type of the addends: Flink adds numbers of type FLOAT as such."""


_PREFIX = "rw_rounding_"


def rounding_name(aggregate: str) -> str:
    """The column with the bound of an aggregate."""
    return f"{_PREFIX}{aggregate}"


def rounded_columns(columns: Iterable[str]) -> dict[str, str]:
    """The columns that have a bound beside them, each with the bound's column."""
    given = list(columns)
    return {column: rounding_name(column) for column in given if rounding_name(column) in given}


def with_bounds(spec: ReplaySpec, records: DataFrame) -> ReplaySpec:
    """The spec with the bounds of its aggregates as further aggregates."""
    return replace(spec, aggregates={**spec.aggregates, **rounding_bounds(records, spec.aggregates)})


def rounding_bounds(records: DataFrame, aggregates: Mapping[str, str]) -> dict[str, str]:
    """The bounds (SQL) of those of the aggregates that depend on the order of additions, by `rounding_name`."""
    bounds = {rounding_name(name): rounding_bound(records, text) for name, text in aggregates.items()}
    return {name: bound for name, bound in bounds.items() if bound is not None}


def rounding_bound(records: DataFrame, text: str) -> str | None:
    """An SQL aggregate over `records` (DOUBLE): how far two values of the aggregate `text` may lie apart.

    None where its value does not depend on the order of additions: no sum or average of floating point is in it, or it
    is no number. Null over no records. An infinite or NaN bound says nothing.
    """
    spark = records.sparkSession
    adding = [(call, unit) for call in calls_in(spark, text) if (unit := _unit_of(records, text, call)) is not None]
    if not adding or not isinstance(_type_of(records, text), NumericType):
        return None
    terms = [f"{2.0**-52!r}D * abs(CAST(({text}) AS DOUBLE))"]
    for call, unit in adding:
        apart = _apart(text, call, unit)
        moved = [_replaced(text, call, f"({_of(text, call)} {sign} {apart})") for sign in "+-"]
        reach = ", ".join(f"abs(CAST(({one}) AS DOUBLE) - CAST(({text}) AS DOUBLE))" for one in moved)
        terms.append(f"coalesce(greatest({reach}), 0D)")
    return " + ".join(terms)


def _unit_of(records: DataFrame, text: str, call: Call) -> float | None:
    """The unit roundoff of a sum or average of floating point; None for every other call."""
    if call.name not in _ADDING or call.argument is None:
        return None
    if not isinstance(_type_of(records, _of(text, call)), DoubleType):
        return None
    start, stop = call.argument
    return _UNIT.get(type(_type_of(records, text[start:stop])), _UNIT[DoubleType])


def _apart(text: str, call: Call, unit: float) -> str:
    """The bound for the call itself: `2 u (n + 1)` times the sum, or the average, of the absolute values.

    The one more than n pays for the rounding of the bound.
    """
    start, stop = call.argument or (call.start, call.start)
    name = text[call.start : call.start + len(call.name)]
    absolute = f"{name}(abs(CAST(({text[start:stop]}) AS DOUBLE))){_filter_of(text, call)}"
    return f"{2 * unit!r}D * (count({text[start:stop]}){_filter_of(text, call)} + 1) * {absolute}"


def _filter_of(text: str, call: Call) -> str:
    if call.filter_span is None:
        return ""
    start, stop = call.filter_span
    return f" FILTER (WHERE {text[start:stop]})"


def _of(text: str, call: Call) -> str:
    return text[call.start : call.stop]


def _replaced(text: str, call: Call, by: str) -> str:
    return f"{text[: call.start]}{by}{text[call.stop :]}"


def _type_of(records: DataFrame, text: str) -> DataType:
    return records.select(F.expr(text).alias("value")).schema["value"].dataType
