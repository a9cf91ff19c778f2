"""A pipeline whose live job writes to a topic, and its rows."""

from __future__ import annotations

import json
from typing import Any

from spark_jobs.comparison.emitted import Emitted
from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.ranges import TimeRange

HOUR = 3_600_000
NOON = 1_357_041_600_000  # 2013-01-01T12:00:00Z
ALL = TimeRange(0, 2 * NOON)
JSON = {"format": "json", "schema": "carrier STRING, s BIGINT, c BIGINT"}
WINDOW = {"start": "s", "unit": "ms"}


def pipeline(
    servers: str, topic: str, *, name: str = "p", source: dict[str, Any] | None = None, **live: Any
) -> Pipeline:
    section = {"kind": "kafka", "servers": servers, "topic": topic, "value": JSON, **(source or {})}
    return Pipeline.model_validate(
        {
            "name": name,
            "history": {"kind": "files", "path": "history", "format": "parquet"},
            "keys": {"carrier": "key"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "watermark": {"generator": "ascending"},
            "window": {"type": "tumbling", "size": "1 h"},
            "aggregates": {"n": "count(*)"},
            "live": {"source": section, "window": WINDOW, "values": {"n": "c"}, **live},
        }
    )


def values(found: Emitted) -> dict:
    """By carrier: value, rows, ambiguous."""
    rows = found.rows.select("carrier", "n__emitted", "emitted_rows", "ambiguous").collect()
    return {row[0]: tuple(row)[1:] for row in rows}


def row(carrier: str | None, count: int | None, **more: Any) -> str:
    return json.dumps({"carrier": carrier, "s": NOON, "c": count} | more)
