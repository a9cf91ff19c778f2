"""Sums of floating point: any order of the addends stays within the bound, a change of a cent does not."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_jobs.replay.aggregates import conditional
from spark_jobs.replay.rounding import rounding_bound

SCHEMA = "x DOUBLE, y FLOAT, n BIGINT, d DECIMAL(10,2), k STRING, keep BOOLEAN"


@pytest.fixture(scope="module")
def nothing(spark):
    return spark.createDataFrame([], SCHEMA)


@pytest.mark.parametrize(
    "text",
    ["sum(n)", "sum(d)", "max(x)", "count(x)", "stddev(x)", "sum(d) / count(*)", "sum(x) > 3", "max(y)"],
)
def test_what_does_not_depend_on_an_order_has_no_bound(nothing, text) -> None:
    assert rounding_bound(nothing, text) is None


finite = st.floats(-1e9, 1e9, allow_subnormal=False).map(lambda value: round(value, 3))


def grouped(numbers: list[float], order: random.Random) -> float:
    """The sum as an engine makes it: in partial sums, merged in any order."""
    parts = list(numbers)
    order.shuffle(parts)
    while len(parts) > 1:
        a, b = parts.pop(order.randrange(len(parts))), parts.pop(order.randrange(len(parts)))
        parts.insert(order.randrange(len(parts) + 1), a + b)
    return parts[0]


EXPRESSIONS = {
    "sum(x)": lambda s, n: s,
    "SUM(x) FILTER (WHERE keep)": lambda s, n: s,
    "avg(x)": lambda s, n: s / n,
    "sum(x) / count(*)": lambda s, n: s / n,
    "round(sum(x), 2)": lambda s, n: round(s, 2),
    "100 - sum(x) * 3": lambda s, n: 100 - s * 3,
    "CAST(sum(x) AS DECIMAL(38, 6))": lambda s, n: s,
}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(finite, min_size=1, max_size=400), st.randoms(use_true_random=False))
def test_any_order_of_the_addends_stays_within_the_bound_and_a_larger_change_does_not(spark, nothing, numbers, order):
    frame = spark.createDataFrame([(v, None, None, None, "k", True) for v in numbers], SCHEMA)
    bounds = {text: rounding_bound(nothing, text) for text in EXPRESSIONS}
    columns = [expression for pair in bounds.items() for expression in pair]
    row = frame.selectExpr(*columns).collect()[0]
    others = [grouped(numbers, order) for _ in range(10)]
    sum_of_all = math.fsum(abs(v) for v in numbers)
    for number, (text, of_sum) in enumerate(EXPRESSIONS.items()):
        value, bound = float(row[2 * number]), row[2 * number + 1]
        for other in others:
            assert abs(of_sum(other, len(numbers)) - value) <= bound + (1e-6 if "DECIMAL" in text else 0)
        widest = 8 * 2**-53 * (len(numbers) + 2) * (sum_of_all + 100)
        assert bound <= widest or (text.startswith("round") and bound <= 0.0101)


def test_a_sum_over_a_condition_has_the_bound_of_what_is_added(spark, nothing) -> None:
    rows = [(1e15, None, None, None, "k", False), *((0.1, None, None, None, "k", True) for _ in range(300))]
    frame = spark.createDataFrame(rows, SCHEMA)
    bound = rounding_bound(nothing, "sum(x)")
    assert bound is not None
    wide, narrow = frame.selectExpr(bound, conditional(spark, bound, "keep")).collect()[0]
    assert narrow < 1e-9 < 1 < wide


def test_floats_are_added_as_such_by_some_engines(spark, nothing) -> None:
    frame = spark.createDataFrame([(None, 0.1, None, None, "k", True)] * 1000, SCHEMA)
    bound = frame.selectExpr(rounding_bound(nothing, "sum(y)")).collect()[0][0]
    assert bound * 1000 > 100 * 1000 * 2**-24 * 0.1 and bound < 0.1


def test_no_records_have_no_bound(nothing) -> None:
    assert nothing.selectExpr(rounding_bound(nothing, "sum(x)")).collect()[0][0] is None
