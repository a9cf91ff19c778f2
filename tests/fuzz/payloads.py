# ruff: noqa: E501 (tables of values)
"""Records of a history in each format, read as a run reads them: from a file to canonical records."""

from __future__ import annotations

import json
import random
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.pins import PinnedSchemas
from spark_jobs.replay.columns import OFFSET
from spark_jobs.sources import canonical
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.decode import RAW, RAW_BYTES, REASON
from tests.fuzz.batches import BatchKind, Outcomes, by_number
from tests.sources.avro import framed, zigzag
from tests.sources.conftest import make_pipeline

_FIELDS = "ts BIGINT, distance INT, at TIMESTAMP, name STRING, ok BOOLEAN, price DECIMAL(9,2), part STRUCT<x: DOUBLE, l: ARRAY<INT>>"
_FLAT = "ts BIGINT, distance INT, at TIMESTAMP, name STRING, ok BOOLEAN, price DECIMAL(9,2)"
_ROWS = (
    {
        "ts": 1_357_034_400_000, "distance": 100, "at": "2013-01-01T10:00:00Z", "name": "Köln", "ok": True, "price": 1.25,
        "part": {"x": 0.5, "l": [1, 2]},
    },
    {"ts": 1_357_034_500_000, "distance": None, "at": None, "name": "a,b \"c\"\n", "ok": False, "price": 0, "part": None},
    {"ts": 1_357_034_600_000, "distance": 7, "name": "{}", "part": {"x": 1, "l": []}},
)  # fmt: skip
_ODD = (
    b"null", b"true", b"-1", b"1.5", b"1e5", b"1e999", b"NaN", b"Infinity", b'"7"', b'" 7 "', b'"x"', b'""', b"[]", b"{}",
    b"[1]", b'"2013-01-01T10:00:00Z"', b'"2013-01-01"', b'"10:00"', b'"2013-01-01 10:00:00 CST"', b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"253402300800000", b'"\\ud800"', b'"\\u0000"', b'"\xff"', b"0x1",
    b"1_000", b"'a'", b"9" * 400, b'"9999-12-31T23:59:59Z"', b'"+292278994-08-17T07:12:55Z"', b'"TRUE"', b"00", b"-0",
    b'{"x":{"x":1}}', b'{"l":[1,null,"3",2147483648]}', b"1357034400000.5",
)  # fmt: skip
_JSON_VALUE = re.compile(rb':\s*("(?:[^"\\]|\\.)*"|\[[^\]]*\]|[^,{}\[\]]+)')

_ARRIVAL = 1_357_034_400_000
_SECTIONS: Mapping[str, Any] = {"event_time": {"expression": "ts", "unit": "ms"}}
_SPARK: Mapping[str, Any] = {
    "engine": "spark", "watermark": {"delay": "10 minutes", "checkpoint": "/c"},
    "event_time": {"expression": "ts", "unit": "ms", "missing": "quarantine"},
}  # fmt: skip
_OF_TEXT: Mapping[str, Any] = {"event_time": {"expression": "get_json_object(value, '$.ts')", "unit": "ms"}}

Schemas = PinnedSchemas | None


def rewritten_json(chance: random.Random, record: bytes) -> bytes:
    found = list(_JSON_VALUE.finditer(record))
    if not found:
        return record
    place = chance.choice(found)
    return record[: place.start(1)] + chance.choice(_ODD) + record[place.end(1) :]


def rewritten_csv(chance: random.Random, record: bytes) -> bytes:
    parts = record.split(b",")
    parts[chance.randrange(len(parts))] = chance.choice(_ODD).strip(b'"')
    return b",".join(parts)


def _rewritten_avro(chance: random.Random, record: bytes) -> bytes:
    start = chance.randint(0, len(record))
    number = chance.choice((0, -1, 1, 2**31, 2**62, -(2**62), 2**40, 127, 1_000_000))
    return record[:start] + zigzag(number) + record[start + chance.randint(0, 2) :]


_AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "ts", "type": "long"},
        {"name": "distance", "type": ["null", "int"]},
        {"name": "name", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["a", "b"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "x", "type": "double"},
    ],
}
_LATER = {**_AVRO, "fields": [*_AVRO["fields"], {"name": "more", "type": "string", "default": ""}]}


def _text(text: str) -> bytes:
    return zigzag(len(text.encode())) + text.encode()


def _avro(ts: int, name: str) -> bytes:
    tags = zigzag(2) + _text("t") + _text("u") + zigzag(0)
    counts = zigzag(1) + _text("k") + zigzag(5) + zigzag(0)
    return zigzag(ts) + zigzag(1) + zigzag(100) + _text(name) + zigzag(1) + tags + counts + b"\0" * 8


def _schemas() -> PinnedSchemas:
    reader = json.dumps(_AVRO)
    return PinnedSchemas("flights-value", 1, reader, {1: reader, 2: json.dumps(_LATER)})


def _debezium(row: Mapping[str, Any], operation: str) -> bytes:
    before, after = (row, None) if operation == "d" else (None, row)
    change = {"before": before, "after": after, "op": operation, "ts_ms": 5, "source": {"ts_ms": 4, "table": "flights"}}
    return json.dumps(change).encode()


def _csv(row: Mapping[str, Any]) -> bytes:
    name = str(row["name"]).strip().replace('"', '""')
    return f'{row["ts"]},{row["distance"]},2013-01-01T10:00:00Z,"{name}",true,1.25'.replace("None", "").encode()


def kinds() -> list[BatchKind]:
    """A kind for each format of a record's value."""
    rows = [json.dumps(row, ensure_ascii=False).encode() for row in _ROWS]
    avro = [_avro(row["ts"], row["name"]) for row in _ROWS]
    confluent = [framed(1, body) for body in avro] + [framed(2, body + _text("more")) for body in avro]
    changes = [_debezium(row, operation) for row in _ROWS for operation in ("c", "u", "r")]
    json_value, csv_value = {"format": "json", "schema": _FIELDS}, {"format": "csv", "schema": _FLAT}
    registry = {"url": "http://registry.invalid", "subject": "flights-value"}
    envelope = {"kind": "debezium", "deletes": "quarantine"}
    kept = {"kind": "debezium", "deletes": "keep"}
    return [
        _kind("json", rows, json_value, rewritten_json),
        _kind("json-spark", rows, json_value, rewritten_json, **_SPARK),
        _kind("csv", [_csv(row) for row in _ROWS], csv_value, rewritten_csv),
        _kind("text", rows, {"format": "text"}, rewritten_json, **_OF_TEXT),
        _kind("avro", avro, {"format": "avro", "schema": json.dumps(_AVRO)}, _rewritten_avro),
        _kind("avro-registry", confluent, {"format": "avro", "registry": registry}, _rewritten_avro, schemas=_schemas),
        _kind(
            "json-schema",
            [framed(1, row) for row in rows],
            {"format": "json_schema", "schema": _FIELDS, "registry": registry},
            rewritten_json,
            schemas=_json_schemas,
        ),
        _kind("debezium", changes, {**json_value, "envelope": envelope}, rewritten_json),
        _kind(
            "debezium-deletes", [*changes, _debezium(_ROWS[0], "d")], {**json_value, "envelope": kept}, rewritten_json
        ),
    ]


def _json_schemas() -> PinnedSchemas:
    return PinnedSchemas("flights-value", None, "", {1: ""})


def _kind(
    name: str,
    samples: Sequence[bytes],
    value: Mapping[str, Any],
    rewrite: Callable[[random.Random, bytes], bytes],
    *,
    schemas: Callable[[], Schemas] = lambda: None,
    **sections: Any,
) -> BatchKind:
    read = partial(_outcomes, value=value, schemas=schemas, sections=sections)
    return BatchKind(f"payload-{name}", samples, read, rewrite)


def _outcomes(
    spark: SparkSession,
    records: Sequence[bytes],
    *,
    value: Mapping[str, Any],
    schemas: Callable[[], Schemas],
    sections: Mapping[str, Any],
) -> Outcomes:
    with tempfile.TemporaryDirectory(prefix="rewindow-fuzz-") as folder:
        file = Path(folder) / "log.parquet"
        pq.write_table(_table(records), file)
        pipeline = make_pipeline(file, value={"column": "value", **value}, **{**_SECTIONS, **sections})
        opened = OpenHistory(spark.read.parquet(str(file)), (), "fuzz", schemas=schemas())
        return read_outcomes(canonical(opened, pipeline), OFFSET, ("offset", RAW, RAW_BYTES, "value"))


def _table(records: Sequence[bytes]) -> pa.Table:
    count = len(records)
    return pa.table(
        {
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "arrival": pa.array([_ARRIVAL] * count, pa.timestamp("ms", "UTC")),
            "key": pa.array(["AA"] * count, pa.string()),
            "value": pa.array(records, pa.binary()),
        }
    )


def read_outcomes(frame: DataFrame, number: str, others: Sequence[str] = ()) -> Outcomes:
    """What became of each row: the reason why it cannot be used, or a digest of its values.

    `frame` has REASON and the column `number`; `others`: columns that say nothing about the outcome.
    """
    names = [f"`{name}`" for name in frame.columns if name not in (number, REASON, *others)]
    digest = F.xxhash64(F.to_json(F.struct(*names), {"ignoreNullFields": "false"}))
    outcome = F.coalesce(F.concat(F.lit("cannot be used: "), REASON), F.concat(F.lit("read: "), digest.cast("string")))
    table = frame.select(F.col(number).cast("bigint").alias("number"), outcome.alias("outcome")).toArrow()
    return by_number(list(zip(table["number"].to_pylist(), table["outcome"].to_pylist(), strict=True)))
