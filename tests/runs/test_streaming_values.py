"""Values of another type than their fields', as a real Structured Streaming query reads them and as a run does."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.payload import Reader
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources.records.decode import REASON, UNREAD, decode, parse_schema
from tests.kafka import Sent, produce
from tests.runs.live_query import (
    START,
    WINDOWS,
    LiveQuery,
    as_rows,
    defined,
    files_stream,
    over_files,
    topic_stream,
)


def _json(k: object, seconds: int, v: object) -> str:
    return json.dumps({"k": k, "ts": START + seconds * 1000, "v": v}, separators=(",", ":"))


JSON_STEPS = [
    [
        *(_json("a", 5, 5), _json("a", 6, 7.5), _json("a", 7, "7"), _json("a", 8, True), _json("a", 9, "x")),
        *(_json("a", 10, 1e3), _json("a", 11, None), _json("a", 12, [1]), _json("a", 13, {"b": 1}), _json(12, 14, 1)),
        *(_json({"a": 1}, 15, 1), _json("a", 16, 2**70), _json("a", 17, 9.0), _json("a", 18, " 7 ")),
        json.dumps({"k": "a", "ts": str(START), "v": 1}),  # no event time: in no window
        '{"k": "a", "ts": ',
        "not json",
        _json("a", 19, 3) + " more",
        f"{{'k': 'a', 'ts': {START + 20_000}, 'v': 3}}",
        f'{{"k": "a", "ts": {START + 21_000}, "v": NaN}}',
        f'{{"k": "a", "ts": {START + 22_000}, "v": 1, "v": "x"}}',
    ],
    [_json("a", 200, 1)],
    [_json("a", 400, 1)],
]
CSV_STEPS = [
    [
        *(f"a,{START + 5_000},5", f"a,{START + 6_000},7.5", f"a,{START + 7_000},x", f"a,{START + 8_000},"),
        *(f"a,{START + 9_000}", f"a,{START + 10_000},5,more", f'"a \\"b\\"",{START + 11_000},5'),
        *(f'"a ""b""",{START + 12_000},5', f'"a,{START + 13_000},5', f"a,x{START},5", f" a ,{START + 14_000}, 5"),
    ],
    [f"a,{START + 200_000},1"],
    [f"a,{START + 400_000},1"],
]


def _run(spark: SparkSession, pipeline: Pipeline) -> tuple[set[tuple], list[str]]:
    """The windows that came out, and the reasons of the quarantine."""
    with planned_records(spark, pipeline) as (plan, records):
        tables = execute(spark, pipeline, plan, NoProgress(), records=records).tables
    rows = spark.table(tables.windows).where("pane IS NOT NULL").collect()
    times = ("window_start", "window_end")
    found = {(row["k"], *(int(row[c].timestamp() * 1000) for c in times), row["n"], row["total"]) for row in rows}
    return found, sorted(row.reason for row in spark.table(tables.quarantine).collect())


@pytest.mark.parametrize(("kind", "steps"), [("json", JSON_STEPS), ("csv", CSV_STEPS)])
def test_a_value_of_another_type_is_null_and_its_record_counts_as_in_the_query(
    spark: SparkSession, tmp_path: Path, kind: str, steps: list[list[str]]
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    live = LiveQuery([files_stream(spark, landing, kind, "10 seconds")], tmp_path, "append", "tumbling")

    def land(number: int) -> None:
        (landing / f"{number}.{kind}").write_text("".join(line + "\n" for line in steps[number]))

    live.run([partial(land, number) for number in range(len(steps))])
    more = {"quarantine": {"threshold": "90 %"}}
    found, reasons = _run(spark, over_files(live, landing, kind, f"values_{kind}", WINDOWS["tumbling"], **more))
    assert found == as_rows(live.emitted()) and sum(row[3] for row in found) > 10 - 3 * (kind == "csv")
    assert all(reason.startswith(("wrong type for field ts", "not valid JSON", "not valid CSV")) for reason in reasons)
    assert len(reasons) == (3 if kind == "json" else 2)

    strict = over_files(
        live,
        landing,
        kind,
        f"strict_{kind}",
        WINDOWS["tumbling"],
        value={"reader": "flink", "schema": "k STRING, ts BIGINT, v BIGINT"},
        **more,
    )
    others, reasons = _run(spark, strict)
    assert others != found, "a reader that the definition names decides"


@pytest.mark.long
def test_records_of_a_topic_are_decoded_as_the_query_does(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = "streaming_values"
    kafka.create_topic(topic, 1, APPEND_TIME)
    live = LiveQuery([topic_stream(spark, kafka.servers, topic, "10 seconds")], tmp_path, "append", "tumbling")

    def send(number: int) -> None:
        produce(spark, kafka.servers, topic, [Sent(text, 0) for text in JSON_STEPS[number]])

    live.run([partial(send, number) for number in range(len(JSON_STEPS))])
    history = {"kind": "kafka", "servers": kafka.servers, "topic": topic}
    more = {"quarantine": {"threshold": "90 %"}}
    found, _ = _run(spark, defined(live, history, "json", "values_topic", WINDOWS["tumbling"], **more))
    assert found == as_rows(live.emitted()) and found


def test_a_time_without_a_date_is_no_event_time_whatever_day_the_query_ran(spark: SparkSession) -> None:
    texts = ['{"at": "12:05:00"}', '{"at": "2024-03-01T12:05:00Z"}', '{"at": 1709294400}']
    rows = spark.createDataFrame([(text,) for text in texts], "text STRING")
    schema = parse_schema(spark, "at TIMESTAMP")
    decoded = decode(rows, F.col("text"), "json", schema, reader=Reader.SPARK)
    found = decoded.select(F.unix_seconds("at").alias("at"), UNREAD, REASON).collect()
    assert [tuple(row) for row in found] == [
        (None, "wrong type for field at", None),
        (1_709_294_700, None, None),
        (1_709_294_400, None, None),
    ]
