"""Values as text: two values have one text only if they are equal."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from spark_jobs.spark.texts import as_text

INSTANT = "TIMESTAMP '2013-10-27 00:00:00.{}Z'"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (INSTANT.format("000001"), INSTANT.format("000002")),
        ("TIMESTAMP_NTZ '2013-10-27 00:00:00.000001'", "TIMESTAMP_NTZ '2013-10-27 00:00:00.000002'"),
        (f"named_struct('t', {INSTANT.format('000001')})", f"named_struct('t', {INSTANT.format('000002')})"),
        (f"array({INSTANT.format('000001')})", f"array({INSTANT.format('000002')})"),
        (f"map('t', {INSTANT.format('000001')})", f"map('t', {INSTANT.format('000002')})"),
        (f"map({INSTANT.format('000001')}, 1)", f"map({INSTANT.format('000002')}, 1)"),
        # One local time of Berlin: the hour that is repeated in the last night of summer time.
        ("TIMESTAMP '2013-10-27 00:30:00Z'", "TIMESTAMP '2013-10-27 01:30:00Z'"),
        ("named_struct('a', 1, 'b', NULL)", "named_struct('a', NULL, 'b', 1)"),
        ("NULL", "'null'"),
        ("''", "NULL"),
        ("X'00'", "X'0000'"),
        ("CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"),
        ("0.1D", "CAST(0.1 AS FLOAT) + 0D"),
        ("INTERVAL '0.000001' SECOND", "INTERVAL '0.000002' SECOND"),
    ],
)
def test_unequal_values_have_unequal_texts(spark, one: str, other: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        texts = spark.sql(f"SELECT {one} AS one, {other} AS other").select(as_text("one"), as_text("other")).first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert texts[0].replace('"one"', '"other"') != texts[1]


def test_values_become_text_in_one_place() -> None:
    """JSON as Spark writes it by itself has milliseconds: two keys would be one."""

    def writes_json(node: ast.AST) -> bool:
        match node:
            case ast.Call(ast.Attribute(ast.Name("F"), "to_json"), [ast.Call(ast.Attribute(_, "struct"))]):
                return True
        return False

    folder = Path(__file__).parents[2] / "spark_jobs"
    found = [path for path in folder.rglob("*.py") if any(map(writes_json, ast.walk(ast.parse(path.read_text()))))]
    assert [str(path.relative_to(folder)) for path in found] == []
