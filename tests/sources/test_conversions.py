"""Values of JSON and CSV are read as the live job reads them, and times as what they say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.sources.records.decode import REASON, decode, parse_schema

NUMBERS = [3.0, 3.7, -3.7, "3", " +3 ", "3.0", "1e3", 1e3, 2**63, True, "x", "", [1], {"b": 1}, None]
WRONG = "wrong"
AS_FLINK: dict[str, list[Any]] = {
    "BIGINT": [3, 3, -3, 3, 3, *[WRONG] * 2, 1000, *[WRONG] * 6, None],
    "INT": [3, 3, -3, 3, 3, *[WRONG] * 2, 1000, *[WRONG] * 6, None],
    "SMALLINT": [*[WRONG] * 3, 3, 3, *[WRONG] * 9, None],
    "DOUBLE": [3.0, 3.7, -3.7, 3.0, 3.0, 3.0, 1e3, 1e3, 2.0**63, *[WRONG] * 5, None],
    "BOOLEAN": [*[False] * 9, True, False, False, WRONG, WRONG, None],
}
"""What Flink's JSON format makes of each of NUMBERS."""


def decoded(spark: SparkSession, texts: list[str], schema: str, text_format: str = "json") -> list[Any]:
    """The field `v` of each text, WRONG where its reason names the field."""
    frame = spark.createDataFrame([(i, text) for i, text in enumerate(texts)], "i INT, text STRING")
    rows = decode(frame, F.col("text"), text_format, parse_schema(spark, schema)).orderBy("i").collect()
    reasons = {row[REASON] for row in rows} - {None}
    assert reasons <= {"wrong type for field v", "wrong type for field v.s.x", "wrong type in a field"}
    return [row.v if row[REASON] is None else WRONG for row in rows]


@pytest.mark.parametrize("kind", AS_FLINK)
def test_json_values_of_another_type_are_read_as_flink_does(spark: SparkSession, kind: str) -> None:
    found = decoded(spark, [json.dumps({"k": "a", "v": v}) for v in NUMBERS], f"k STRING, v {kind}")
    assert found == AS_FLINK[kind]


def test_text_for_a_double_names_infinity_and_nan_as_java_does(spark: SparkSession) -> None:
    """Spark also reads `inf` and `nan`. Flink's job fails on these."""
    texts = ["NaN", "Infinity", " -Infinity ", "+Infinity", "1e400", "nan", "inf", "-INF", " Inf ", "INFINITY"]
    found = decoded(spark, [json.dumps({"v": text}) for text in texts], "v DOUBLE")
    assert list(map(str, found)) == ["nan", "inf", "-inf", "inf", "inf", *[WRONG] * 5]


def test_why_text_is_not_read_is_said_by_the_options_of_the_reader(spark: SparkSession) -> None:
    texts = {"{v: 'x'}": "wrong type in a field", "{v: 1} {v: 2}": "not valid JSON", "{v: 1}, {v: 2}": "not valid JSON",
             "{v: 1} x": "not valid JSON", "[{v: 1}]": "not a JSON object", "{v: 3, w: '} b'}": None}  # fmt: skip
    frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
    options = {"allowUnquotedFieldNames": True, "allowSingleQuotes": True}
    rows = decode(frame, F.col("text"), "json", parse_schema(spark, "v BIGINT, w STRING"), options).collect()
    assert {row.text: row[REASON] for row in rows} == texts


NO_JSON = ['{"v": NaN}', '{"v": 1, "w": -Infinity}', "{'v': 2}", '{"w": "it\'s", "v": 3}', '{"w": "a\tb", "v": 4}',
           '{"w": {"x": "a\tb"}, "v": 5}', '{"v": "NaN"}']  # fmt: skip


def test_what_is_json_is_as_in_flinks_format_or_as_options_say(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in NO_JSON], "text STRING")
    schema = parse_schema(spark, "v DOUBLE, w STRING")

    def read(**options: bool) -> list[Any]:
        rows = decode(frame, F.col("text"), "json", schema, options).collect()
        return [str(row.v) if row[REASON] is None else row[REASON] for row in rows]

    single = "not valid JSON: text in single quotes"
    assert read() == ["not valid JSON", "not valid JSON", single, "3.0", "4.0", "5.0", "nan"]
    as_spark = {"allowsinglequotes": True, "allowNonNumericNumbers": True, "allowUnquotedControlChars": False}
    assert read(**as_spark)[:4] == ["nan", "1.0", "2.0", "3.0"]
    assert all(said.startswith(("not valid JSON", "wrong type")) for said in read(**as_spark)[4:6])


def test_values_in_structs_arrays_and_maps_are_read_alike(spark: SparkSession) -> None:
    texts = [json.dumps({"v": {"a": ["1", 2.5], "m": {"k": value}, "s": {"x": value}}}) for value in ("7", 8, "x")]
    found = decoded(spark, texts, "v STRUCT<a: ARRAY<BIGINT>, m: MAP<STRING, BIGINT>, s: STRUCT<x: DOUBLE>>")
    assert [value if value == WRONG else value.asDict(recursive=True) for value in found] == [
        {"a": [1, 2], "m": {"k": 7}, "s": {"x": 7.0}},
        {"a": [1, 2], "m": {"k": 8}, "s": {"x": 8.0}},
        WRONG,
    ]


@pytest.mark.parametrize("text_format", ["json", "csv"])
def test_a_timestamp_has_a_date_and_a_clear_zone(spark: SparkSession, text_format: str) -> None:
    good = ["2024-03-10T10:00:00Z", "2024-03-10 10:00", "2024-03-10 12:00:00+02:00"]
    good.append("2024-03-10 11:00:00 Europe/Berlin")
    bad = ["10:00", "T10:00Z", "2024-03-10 10:00:00 IST", "2024-03-10 10:00:00 BST", "soon", "20240310"]
    texts = [json.dumps({"v": text}) if text_format == "json" else text for text in good + bad]
    found = decoded(spark, texts, "v TIMESTAMP", text_format)
    assert [value if value == WRONG else value.isoformat() for value in found] == [
        *["2024-03-10T10:00:00"] * len(good),
        *[WRONG] * len(bad),
    ]


def test_a_number_for_a_timestamp_counts_seconds(spark: SparkSession) -> None:
    found = decoded(spark, ['{"v": 1710064800}', '{"v": "1710064800"}', '{"v": null}', '{"v": 1.5}'], "v TIMESTAMP")
    assert [value if value in (WRONG, None) else value.isoformat() for value in found] == [
        "2024-03-10T10:00:00", WRONG, None, WRONG,
    ]  # fmt: skip


@pytest.mark.parametrize("number", [9_223_372_036_855, 253_402_300_800_000, 2**63 - 1, -(2**63)])
def test_a_number_beyond_a_timestamp_is_of_the_wrong_type_and_ends_no_job(spark: SparkSession, number: int) -> None:
    texts = [json.dumps({"v": value}) for value in (1_710_064_800, number, 1_710_064_801)]
    first, beyond, last = decoded(spark, texts, "v TIMESTAMP")
    assert beyond == WRONG and WRONG not in (first, last)
    lists = decoded(spark, [f'{{"v": [{number}]}}', '{"v": [1]}'], "v ARRAY<TIMESTAMP>")
    assert lists[0] == WRONG and lists[1] != WRONG
