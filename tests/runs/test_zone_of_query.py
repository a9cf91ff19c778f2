"""The session time zone of a live query: what its checkpoint says of it counts against the definition."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.engines.spark.batches import refuse_other_zone
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.spark.checkpoint import Checkpoint, read_checkpoint

DEFINITION = """
name: visits
history: {kind: kafka, servers: "localhost:9092", topic: visits}
value: {format: json, schema: "shop STRING, at TIMESTAMP"}
keys: {shop: shop}
event_time: {expression: at, unit: timestamp}
engine: spark
watermark: {delay: 10 min, checkpoint: /srv/checkpoints/visits}
window: {type: session, gap: 1 day, time_zone: Europe/Berlin}
output_mode: append
aggregates: {n: count(*)}
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return load_pipeline(tmp_path / "visits.yaml", text=DEFINITION)


def checkpoint(*confs: dict[str, str]) -> Checkpoint:
    metadata = ({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": conf} for conf in confs)
    texts = (f"v1\n{json.dumps(one)}\n" + '{"visits":{"0":5}}' for one in metadata)
    return read_checkpoint((f"offsets/{batch}", text) for batch, text in enumerate(texts))


def test_another_zone_in_the_checkpoint_is_refused(pipeline: Pipeline) -> None:
    found = checkpoint({}, {"spark.sql.session.timeZone": "Asia/Tokyo"})
    with pytest.raises(HistoryError, match="Asia/Tokyo, and `window"):
        refuse_other_zone(pipeline, found, "/srv/checkpoints/visits")


def test_the_same_zone_and_none_are_accepted(pipeline: Pipeline) -> None:
    refuse_other_zone(pipeline, checkpoint({}, {"spark.sql.session.timeZone": "Europe/Berlin"}), "/srv")
