"""Rows that the live job emitted to a topic, read as a comparison reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from spark_jobs.comparison.emitted import canonical_rows, value_columns
from spark_jobs.comparison.emitted_source import OpenRows
from spark_jobs.comparison.emitted_topic import AT_OFFSET, AT_PARTITION, PLACED, TopicRows, decoded_rows
from spark_jobs.definition import Pipeline
from spark_jobs.definition.live import Live, TopicEmitted
from spark_jobs.lakehouse.emitted_table import HEADERS
from spark_jobs.pins import OffsetRange, PinnedTopic
from spark_jobs.sources.records.decode import REASON
from tests.comparison.emitted_topics import NOON, pipeline
from tests.fuzz.batches import BatchKind, Outcomes
from tests.fuzz.payloads import read_outcomes, rewritten_csv, rewritten_json

_ROWS = (
    {"carrier": "UA", "s": NOON, "c": 4, "op": "c", "at": "2013-01-01T13:00:05Z"},
    {"carrier": None, "s": NOON, "c": None, "op": "u", "at": None},
    {"carrier": "Ö,\"", "s": NOON + 3_600_000, "c": 0, "op": "d"},
)  # fmt: skip
_DDL = "carrier STRING, s BIGINT, c BIGINT, op STRING, at STRING"
_SECTIONS: Mapping[str, Any] = {
    "mode": "changelog", "operation": "op", "emitted_at": "at", "emitted_at_unit": "iso",
    "order": "CAST(at AS TIMESTAMP)",
}  # fmt: skip


def kinds() -> list[BatchKind]:
    """A kind for each format of the topic's values."""
    rows = [json.dumps(row, ensure_ascii=False).encode() for row in _ROWS]
    lines = [b"UA,1357041600000,4,c,2013-01-01T13:00:05Z", b'"a,b",1357041600000,,u,']
    return [
        BatchKind("emitted-json", rows, partial(_outcomes, text_format="json"), rewritten_json, may_drop=True),
        BatchKind("emitted-csv", lines, partial(_outcomes, text_format="csv"), rewritten_csv, may_drop=True),
    ]


def _outcomes(spark: SparkSession, records: Sequence[bytes], *, text_format: str) -> Outcomes:
    source = {"value": {"format": text_format, "schema": _DDL}}
    definition = pipeline("localhost:9092", "emitted", source=source, **_SECTIONS)
    topic = _topic(spark, records, definition)
    opened = OpenRows(topic, "fuzz", topic=_rows(spark, definition))
    values = value_columns(topic, definition)
    read = canonical_rows(opened, topic, definition, values, {"carrier": StringType()})
    return read_outcomes(read.withColumnRenamed("rw_why", REASON), AT_OFFSET, (AT_PARTITION,))


def _rows(spark: SparkSession, definition: Pipeline) -> TopicRows:
    assert isinstance(definition.live, Live) and isinstance(definition.live.source, TopicEmitted)
    pinned = PinnedTopic("emitted", "id", "producer_time", (OffsetRange(0, 0, 1 << 40),))
    return TopicRows(spark, definition.live.source, pinned, definition, ("live", "source"))


def _topic(spark: SparkSession, records: Sequence[bytes], definition: Pipeline) -> Any:
    count = len(records)
    log = pa.table(
        {
            "key": pa.array([b"k"] * count, pa.binary()),
            "value": pa.array(records, pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
            "timestamp": pa.array([NOON] * count, pa.timestamp("ms", "UTC")),
        }
    )
    empty = {"headers": F.lit(None).cast(HEADERS), PLACED: F.lit(None).cast("timestamp")}
    return decoded_rows(spark.createDataFrame(log).withColumns(empty), _rows(spark, definition))
