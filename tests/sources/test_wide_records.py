"""Records of thousands of fields, of which an expression uses a few."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition.payload import Reader
from spark_jobs.sources import expressions, open_history
from spark_jobs.sources.expressions import analyse
from spark_jobs.sources.records.decode import REASON, UNREAD, decode, parse_schema
from spark_jobs.sources.records.decode_avro import avro_fields, decode_avro
from spark_jobs.spark.conditions import all_of, any_of
from tests.sampling import first_of
from tests.sources.avro import encoded
from tests.sources.conftest import make_pipeline

USED = ("t", "c1", "c7")


def _fields(count: int) -> str:
    return ", ".join(["t TIMESTAMP", *(f"c{number} BIGINT" for number in range(count))])


@pytest.mark.parametrize(
    ("text_format", "reader", "count"),
    first_of([("json", Reader.FLINK, 2000), ("csv", Reader.FLINK, 300), ("json", Reader.SPARK, 2000)], 2),
)
def test_wide_text_is_decoded(spark: SparkSession, text_format: str, reader: Reader, count: int) -> None:
    values = [{"t": "2024-03-01T12:00:00Z", **{f"c{n}": n for n in range(count)}} for _ in range(3)]
    values[1]["c7"], values[2]["c1"] = "7", "x"
    texts = [json.dumps(one) if text_format == "json" else ",".join(map(str, one.values())) for one in values]
    rows = spark.createDataFrame([(text,) for text in texts], "text STRING")
    decoded = decode(rows, F.col("text"), text_format, parse_schema(spark, _fields(count)), reader=reader)
    reason = REASON if reader is Reader.FLINK else UNREAD
    found = decoded.select(F.unix_seconds("t"), "c1", "c7", reason).collect()
    at = 1_709_294_400
    of_text = (at, 1, 7, None) if reader is Reader.FLINK else (at, 1, None, "wrong type for field c7")
    assert [tuple(row) for row in found[:2]] == [(at, 1, 7, None), of_text]
    assert found[2][reason] == "wrong type for field c1"


def test_wide_avro_is_decoded(spark: SparkSession) -> None:
    names = [f"c{number}" for number in range(400)]
    schema = json.dumps(
        {"type": "record", "name": "wide", "fields": [{"name": name, "type": "string"} for name in names]}
    )
    rows = spark.createDataFrame([(encoded(spark, schema, {name: name for name in names}),)], "value BINARY")
    decoded = decode_avro(rows, F.col("value"), schema, avro_fields(spark, schema), framed=False)
    assert tuple(decoded.select("c1", "c399", REASON).collect()[0]) == ("c1", "c399", None)


def test_the_types_of_many_fields_are_checked_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each expression is analysed with the whole decoding of the record: one for each field would be their square."""
    (tmp_path / "a.json").write_text('{"p": 0, "o": 0, "a": 0, "c1": 1}\n')
    position = {"partition": "p", "offset": "o", "arrival": "a", "arrival_unit": "ms"}
    pipeline = make_pipeline(
        tmp_path,
        history={"format": "json", "position": position},
        value={"format": "columns", "schema": f"p INT, o BIGINT, a BIGINT, {_fields(100)}"},
        event_time={"expression": "c1", "unit": "ms"},
    )
    asked: list[str] = []
    monkeypatch.setattr(expressions, "analyse", lambda frame, text: asked.append(text) or analyse(frame, text))
    open_history(spark, pipeline)
    assert sorted(asked) == ["a", "o", "p"]


def test_many_conditions_are_one(spark: SparkSession) -> None:
    numbers = spark.range(3)
    conditions = [F.col("id") == F.lit(number) for number in range(2, 2000)]
    assert [row[0] for row in numbers.where(any_of(conditions)).collect()] == [2]
    assert numbers.where(all_of(~one for one in conditions)).count() == 2
    assert numbers.where(any_of([])).count() == 0
    assert numbers.where(all_of([])).count() == 3


def test_the_order_of_a_map_does_not_depend_on_the_records_before(spark: SparkSession) -> None:
    """Avro's reader fills the map of the record before again, and a larger one has its entries in another order."""
    values = {"type": "map", "values": {"type": "map", "values": "long"}}
    schema = {"type": "record", "name": "r", "fields": [{"name": "m", "type": {"type": "array", "items": values}}]}
    written = json.dumps(schema)

    def record(keys: Sequence[str]) -> bytes:
        return encoded(spark, schema, {"m": [{key: {key: 1, "a": 2} for key in keys}]})

    few, many = record(["u", "k", "AaAa", "BBBB"]), record([f"key {n}" for n in range(2_000)])
    frame = spark.createDataFrame([(few,), (many,), (few,)], "value BINARY").coalesce(1)
    decoded = decode_avro(frame, F.col("value"), written, avro_fields(spark, written), framed=False)
    alone, _, beside = [row[0] for row in decoded.select(F.to_json("m")).collect()]
    assert alone == beside == '[{"AaAa":{"AaAa":1,"a":2},"BBBB":{"BBBB":1,"a":2},"k":{"a":2,"k":1},"u":{"a":2,"u":1}}]'
