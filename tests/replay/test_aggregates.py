"""The users' aggregate expressions: made conditional, and refused where they give no one answer."""

from __future__ import annotations

import pytest

from spark_jobs.errors import DefinitionError
from spark_jobs.replay.aggregates import conditional, no_column, problems, running


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("count(*)", "count(*) FILTER (WHERE c)"),
        ("sum(x) / count(*)", "sum(x) FILTER (WHERE c) / count(*) FILTER (WHERE c)"),
        ("count(DISTINCT x)", "count(DISTINCT x) FILTER (WHERE c)"),
        ("sum(x) FILTER (WHERE x > 1)", "sum(x) FILTER (WHERE (x > 1) AND c)"),
        ("coalesce(max(lower(k)), 'none')", "coalesce(max(lower(k)) FILTER (WHERE c), 'none')"),
        (
            "CASE WHEN max(x) > 1 THEN min(x) END",
            "CASE WHEN max(x) FILTER (WHERE c) > 1 THEN min(x) FILTER (WHERE c) END",
        ),
        ("sort_array(collect_list(x))", "sort_array(collect_list(x) FILTER (WHERE c))"),
    ],
)
def test_every_aggregate_in_an_expression_gets_the_condition(spark, text, wanted) -> None:
    assert conditional(spark, text, "c") == wanted
    frame = spark.createDataFrame([(1, "a", True), (2, "b", False), (3, "c", True)], "x INT, k STRING, c BOOLEAN")
    assert frame.selectExpr(wanted).collect() == frame.where("c").selectExpr(text).collect()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("first(x)", "first() depends on the order"),
        ("any_value(x) + count(*)", "any_value() depends on the order"),
        ("last(x)", "last() depends on the order"),
        ("collect_list(x)", "collect_list() depends on the order"),
        ("max_by(k, x)", "max_by() depends on the order of records among ties"),
        ("sum(x) + rand()", "rand() gives another value at each run"),
        ("percentile_approx(x, 0.5)", "percentile_approx() depends on the order"),
        ("x + 1", "is no aggregate"),
        ("no_such_function(x)", "there is no function `no_such_function`"),
        ("summe(x)", "there is no function `summe`: did you mean `sum`"),
        ("sum(uper(x))", "there is no function `uper`: did you mean `upper`"),
        ("no_such_catalog.no_such_function(x)", "there is no function `no_such_catalog.no_such_function`"),
        ("sum(nothing)", "there is no column `nothing`"),
        ("sum(x", "not a Spark SQL expression"),
    ],
)
def test_expressions_without_one_answer_are_refused_with_a_hint(spark, text, what) -> None:
    frame = spark.createDataFrame([], "x INT, k STRING, rw_arrival BIGINT, rw_partition INT, rw_offset BIGINT")
    found = list(problems(spark, frame, text))
    assert found
    assert what in ": ".join(found[0])


@pytest.mark.parametrize(
    "text",
    [
        "max_by(k, struct(x, rw_arrival, rw_partition, rw_offset))",
        "sort_array(collect_set(k))",
        "count(*)",
        "sum(x) / count(*)",
    ],
)
def test_deterministic_expressions_pass(spark, text) -> None:
    frame = spark.createDataFrame([], "x INT, k STRING, rw_arrival BIGINT, rw_partition INT, rw_offset BIGINT")
    assert list(problems(spark, frame, text)) == []


def test_distinct_is_refused_for_every_pane(spark) -> None:
    with pytest.raises(DefinitionError, match="panes: last"):
        running(spark, "count(DISTINCT x)", "w")


@pytest.mark.parametrize(("name", "near"), [("s.item.id", "item.id"), ("s.item", "item"), ("idd", "id")])
def test_an_alias_before_a_column_is_left_out_of_the_suggestion(name: str, near: str) -> None:
    _, hint = no_column(name, ["id", "item"])
    assert hint == f"did you mean `{near}`? known columns: id, item"
