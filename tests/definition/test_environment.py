# ruff: noqa: E501 (a message stands on one line)
"""Variables from the environment in a definition's text."""

from __future__ import annotations

import pytest

from spark_jobs.definition.environment import substitute


@pytest.mark.parametrize(
    ("text", "environment", "result"),
    [
        ("${A}/x", {"A": "/data"}, "/data/x"),
        ("${A}${B}", {"A": "1", "B": "2"}, "12"),
        ("${A:-d}", {}, "d"),
        ("${A:-d}", {"A": ""}, "d"),
        ("${A}", {"A": ""}, ""),
        ("${A:-}", {}, ""),
        ("$${A} costs $5", {"A": "1"}, "${A} costs $5"),
        ("${A}", {"A": "${B}"}, "${B}"),
    ],
)
def test_a_variable_is_replaced_as_in_a_shell(text: str, environment: dict[str, str], result: str) -> None:
    assert substitute(text, environment) == result


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("${DATA}/x", "environment variable `DATA` is not set; set it, or write a default: `${DATA:-...}`"),
        ("${REWINDOW_DAT}/x", "environment variable `REWINDOW_DAT` is not set (`REWINDOW_DATA` is set); set it, or write a default: `${REWINDOW_DAT:-...}`"),
        ("${A B}/x", "`${A B}` is not a variable; write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"),
        ("${A/x", "`${A/x` is not a variable; write `${NAME}`, `${NAME:-default}`, or `$${` for a plain `${`"),
    ],
)  # fmt: skip
def test_a_variable_that_cannot_be_replaced_is_refused_with_its_line(
    refusals, definition, path: str, message: str
) -> None:
    assert refusals(definition(("data/*.parquet", path)), {"REWINDOW_DATA": "/d"}) == [
        f"p.yaml:4: history.path: {message}"
    ]


def test_a_variable_stands_for_any_value(load, definition) -> None:
    text = definition(
        ("bound: 30 min", "bound: ${BOUND}\n  partitions: ${COUNT:-3}"), ("n: count(*)", "n: sum(${COLUMN})")
    )
    pipeline = load(text, {"BOUND": "PT5M", "COLUMN": "x"})
    assert (pipeline.watermark.bound, pipeline.watermark.partitions) == (300_000, (0, 1, 2))
    assert pipeline.aggregates == {"n": "sum(x)"}


def test_a_variable_cannot_change_the_structure(load, refusals, definition) -> None:
    text = definition(("bound: 30 min", "bound: ${BOUND}"))
    assert refusals(text, {"BOUND": "{a: 1}"}) == [
        "p.yaml:11: watermark.bound: `{a: 1}` is not a duration; "
        "write one like `30 min`, `1 h 30 min`, `200 ms`, `2 days` or `PT30M`"
    ]


def test_a_quoted_variable_stays_text(load, definition) -> None:
    assert load(definition(("n: count(*)", 'n: "${X}"')), {"X": "1"}).aggregates == {"n": "1"}
