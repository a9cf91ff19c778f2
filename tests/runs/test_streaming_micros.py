"""Real Structured Streaming queries whose event times have microseconds, beside a watermark of whole milliseconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.runs.live_query import START, WINDOWS, LiveQuery, as_rows, backfilled, over_files
from tests.sampling import first_of

FIELDS = "k STRING, at TIMESTAMP, v BIGINT"
SECOND = 1_000_000
EVENTS: list[list[tuple[str, int, int]]] = [
    [("a", 100, 1), ("a", 200, 1), ("a", 200, 1), ("b", 100, 1), ("a", 100, 1)],
    [("a", 300, 1), ("c", 10 * SECOND, 1)],  # the watermark is at 0 then
    [("d", 400, 1), ("e", 0, 1), ("f", 999, 1), ("a", 999, 2), ("g", -1, 1)],
    [("b", 20 * SECOND + 400, 1), ("s", 20 * SECOND + 500, 1)],  # 20 s after others of b and a: touches, or just not
    [("a", 20 * SECOND, 1), ("a", 20 * SECOND + 301, 3)],
    [("b", 40 * SECOND + 400, 2), ("s", 40 * SECOND + 501, 2), ("c", 30 * SECOND + 1, 1)],
    [("x", 70 * SECOND + 400, 1)],  # the watermark is at 60.000 s: a session that ends at 60.000400 s stays
    [("b", 60 * SECOND + 300, 4), ("y", 40 * SECOND + 1, 1), ("z", 40 * SECOND, 1)],
    [("x", 80 * SECOND + 1, 1), ("b", 70 * SECOND + 1, 4)],
    [("x", 200 * SECOND, 1)],
    [("x", 300 * SECOND, 1)],
]
"""Key, microseconds after START, value."""


def _line(key: str, micros: int, value: int) -> str:
    whole, behind = divmod(START * 1000 + micros, SECOND)
    at = f"{_second(whole)}.{behind:06}Z"
    return json.dumps({"k": key, "at": at, "v": value}) + "\n"


def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _plain(rows: DataFrame) -> DataFrame:
    return rows


def _once(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicates(["k", "v", "at"])


def _once_within(rows: DataFrame) -> DataFrame:
    return rows.dropDuplicatesWithinWatermark(["k", "v"])


IDS = {"by": ["k", "v"]}
CASES: list[tuple[str, str, Callable[[DataFrame], DataFrame], dict]] = [
    ("session", "append", _plain, {}),
    ("tumbling", "append", _once_within, {"deduplicate": IDS}),
    ("tumbling", "append", _once, {"deduplicate": {**IDS, "kind": "drop_duplicates", "event_time": True}}),
    ("session", "complete", _plain, {}),
    ("session", "append", _once_within, {"deduplicate": IDS}),
    ("tumbling", "append", _plain, {}),
]


@pytest.mark.parametrize(
    ("window", "mode", "changed", "more"),
    first_of(CASES, 3),
)
def test_times_are_compared_in_microseconds(
    spark: SparkSession,
    tmp_path: Path,
    window: str,
    mode: str,
    changed: Callable[[DataFrame], DataFrame],
    more: dict,
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    rows = spark.readStream.schema(FIELDS).json(str(landing)).withWatermark("at", "10 seconds")
    live = LiveQuery([changed(rows)], tmp_path, mode, window)

    def land(number: int) -> None:
        (landing / f"{number:02}.json").write_text("".join(_line(*event) for event in EVENTS[number]))

    live.run([partial(land, number) for number in range(len(EVENTS))])
    pipeline = over_files(
        live,
        landing,
        "json",
        f"micros_{window}_{mode}_{changed.__name__.strip('_')}",
        WINDOWS[window],
        value={"format": "columns", "schema": FIELDS},
        event_time={"expression": "at", "unit": "timestamp"},
        **more,
    )
    found, *_ = backfilled(spark, pipeline)
    emitted = live.emitted()
    last = max(row["batch"] for row in emitted)
    assert found == as_rows([row for row in emitted if mode == "append" or row["batch"] == last])
    assert found
