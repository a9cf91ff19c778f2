"""Text with bytes that are no UTF-8, in columns of files and tables: its record goes to quarantine, where it counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline
from spark_jobs.sources import canonical, good, open_history, quarantined
from spark_jobs.spark.gateway import query_execution
from tests.sampling import first_of
from tests.sources.conftest import BASE, make_pipeline, position

BYTES = "X'4DFC6E'"
BAD = f"CAST({BYTES} AS STRING)"
COLUMNS = {
    "k": "'a'", "f": "'b'", "a": "'c'", "s": "named_struct('name', 'd', 'other', 'e')", "l": "array('f', 'g')",
    "m": "map('x', 'h')", "bin": "CAST('i' AS BINARY)", "bins": "array(CAST('k' AS BINARY))", "unused": "'j'", "n": "1",
}  # fmt: skip
IN_LAMBDA = "max(array_join(transform(bins, x -> if(n = 1, CAST(x AS STRING), '')), ','))"
ROWS: list[tuple[dict[str, str], str | None]] = [
    ({}, None),
    ({"k": BAD}, "column `k`: not valid UTF-8"),
    ({"f": BAD}, "column `f`: not valid UTF-8"),
    ({"a": BAD}, "column `a`: not valid UTF-8"),
    ({"s": f"named_struct('name', {BAD}, 'other', 'e')"}, "column `s.name`: not valid UTF-8"),
    ({"s": f"named_struct('name', 'd', 'other', {BAD})"}, None),
    ({"l": f"array('f', {BAD})"}, "column `l`: not valid UTF-8"),
    ({"m": f"map('x', {BAD})"}, "column `m`: not valid UTF-8"),
    ({"bin": BYTES}, "aggregate `bin`: max(CASE WHEN n = 1 THEN CAST(bin AS STRING) END): not valid UTF-8"),
    ({"bin": BYTES, "n": "2"}, None),
    ({"unused": BAD}, None),
    ({"bins": f"array(CAST('k' AS BINARY), {BYTES})"}, f"aggregate `bins`: {IN_LAMBDA[:60]}: not valid UTF-8"),
    ({"bins": f"array({BYTES})", "n": "2"}, None),
    ({"k": "NULL", "l": "NULL", "m": "NULL", "s": "NULL", "bin": "NULL"}, None),
]


def definition(path: Path | str = "/nowhere", **history: object):
    return make_pipeline(
        path,
        history={"position": position(arrival_unit="ms"), **history},
        value={"format": "columns"},
        keys={"K": "k", "name": "S.Name"},
        event_time={"expression": "t", "unit": "ms"},
        filter={"before_watermark": "f <> 'x' AND n > 0"},
        aggregates={
            "n": "count(*)",
            "longest": "max(upper(a))",
            "listed": "max(array_join(l, ','))",
            "of": "max(m['x'])",
            "bin": "max(CASE WHEN n = 1 THEN CAST(bin AS STRING) END)",
            "bins": IN_LAMBDA,
        },
    )


@pytest.fixture(scope="module")
def rows(spark):
    selects = [
        f"SELECT 0 AS partition, {number}L AS offset, {BASE}L AS arrival, {BASE}L AS t, "
        + ", ".join(f"{changed.get(name, text)} AS {name}" for name, text in COLUMNS.items())
        for number, (changed, _) in enumerate(ROWS)
    ]
    return spark.sql(" UNION ALL ".join(selects)).coalesce(1)


@pytest.fixture(scope="module")
def database(spark, hive_metastore) -> str:
    spark.sql("CREATE DATABASE texts")
    return "texts"


@pytest.mark.parametrize("kind", first_of(["parquet", "orc", "avro", "iceberg", "hive"]))
def test_text_that_is_no_utf8_costs_its_record_where_an_expression_uses_it(
    spark, tmp_path: Path, rows, database: str, kind: str
) -> None:
    if kind in ("iceberg", "hive"):
        if kind == "hive":
            rows.write.format("hive").option("fileFormat", "textfile").saveAsTable(f"{database}.t")
            history = {"kind": "hive", "table": f"{database}.t", "position": position(arrival_unit="ms")}
        else:
            spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.texts")
            rows.writeTo("rewindow.texts.t").using("iceberg").create()
            history = {"kind": "table", "table": "rewindow.texts.t", "position": position(arrival_unit="ms")}
        whole = definition().model_dump(exclude_unset=True)
        used = Pipeline.model_validate({**whole, "history": history})
    else:
        rows.write.format(kind).save(str(tmp_path / "t"))
        used = definition(tmp_path / "t", format=kind)
    records = canonical(open_history(spark, used), used)
    reasons = {row.offset: row.reason for row in quarantined(records).collect()}
    assert reasons == {number: why for number, (_, why) in enumerate(ROWS) if why is not None}
    assert good(records).count() == len(ROWS) - len(reasons)
    plan = query_execution(good(records)).executedPlan().toString()
    assert "unused" not in plan.split("ReadSchema")[-1] or kind in ("iceberg", "hive")
    assert "Python" not in plan and "Exchange" not in plan


def test_an_undecoded_value_of_a_table_is_text_too(spark, tmp_path: Path) -> None:
    text = '{"sched_dep": "2013-01-01T10:00:00Z", "distance": 1, "note": "'
    frame = spark.sql(
        f"SELECT 0 AS partition, 0L AS offset, {BASE}L AS arrival, 'a' AS key, '{text}' || '\"}}' AS value UNION ALL "
        f"SELECT 0, 1L, {BASE}L, 'a', '{text}' || {BAD} || '\"}}' UNION ALL "
        f"SELECT 0, 2L, {BASE}L, {BAD}, '{text}' || '\"}}'"
    )
    frame.coalesce(1).write.parquet(str(tmp_path / "t"))
    used = make_pipeline(
        tmp_path / "t", history={"position": position(arrival_unit="ms")}, keys={"carrier": "upper(key)"}
    )
    reasons = {row.offset: row.reason for row in quarantined(canonical(open_history(spark, used), used)).collect()}
    assert reasons == {1: "column `value`: not valid UTF-8", 2: "column `key`: not valid UTF-8"}
