"""Small definitions of each engine, and how a test loads one."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.definition import Pipeline, load_pipeline

BASE = """
name: orders
history: {kind: kafka, servers: "k:9092", topic: orders}
value: {format: json, schema: "ts BIGINT"}
event_time: {expression: ts, unit: ms}
aggregates: {n: count(*)}
"""
SPARK = BASE + "engine: spark\nwatermark: {delay: 10 minutes, checkpoint: /c}\n"
TUMBLING = "window: {type: tumbling, size: 1 h}\n"
FLINK = BASE + "watermark: {generator: ascending}\n" + TUMBLING


def loaded(folder: Path, text: str) -> Pipeline:
    path = folder / "orders.yaml"
    path.write_text(text)
    return load_pipeline(path)
