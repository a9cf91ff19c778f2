"""A real query hands over to a new one, which begins at the offsets of a cutover; a wrong offset is found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.cutover.formats import spark_json
from spark_jobs.cutover.meeting import Meeting, check_meeting
from spark_jobs.cutover.planning import plan_cutover
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.kafka import produce
from tests.runs.live_query import START, WINDOWS, LiveQuery, defined, live_section, sent, topic_stream

pytestmark = pytest.mark.long

TOPIC, AT = "cutover_streaming", START + 120_000
OLD = [
    [(0, "a", 5), (0, "a", 30), (1, "b", 20)],
    [(0, "a", 70), (1, "b", 65)],
    [(0, "a", 130), (1, "a", 115), (1, "b", 125)],
    [(0, "b", 140), (1, "b", 119)],
]
NEW = [[(0, "a", 150), (1, "b", 190)], [(0, "a", 200), (1, "b", 260)], [(0, "b", 330)], [(1, "a", 331)]]


def query(spark: SparkSession, servers: str, folder: Path, offsets: str) -> LiveQuery:
    live = LiveQuery(
        [topic_stream(spark, servers, TOPIC, "10 seconds", startingOffsets=offsets)], folder, "append", "tumbling"
    )
    if offsets != "earliest":
        live.frame = live.frame.where(F.col("s") >= F.lit(AT))
    return live


def test_a_new_query_goes_on_where_the_backfill_ends(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic(TOPIC, 2, APPEND_TIME)
    history = {"kind": "kafka", "servers": kafka.servers, "topic": TOPIC}

    def of(live: LiveQuery):
        return defined(live, history, "json", "handed_on", WINDOWS["tumbling"], live=live_section(live))

    old = query(spark, kafka.servers, tmp_path / "old", "earliest")
    old.run([lambda step=step: produce(spark, kafka.servers, TOPIC, sent(step)) for step in OLD])
    planned = plan_cutover(spark, of(old), AT, NoProgress())
    assert planned.is_exact, planned
    assert planned.topics == {TOPIC: {0: 3, 1: 3}}
    with planned_records(spark, of(old), end=AT) as (plan, records):
        execute(spark, of(old), plan, NoProgress(), records=records)

    new = query(spark, kafka.servers, tmp_path / "new", spark_json(planned.topics))
    new.run([lambda step=step: produce(spark, kafka.servers, TOPIC, sent(step)) for step in NEW])
    assert met(spark, of(new)).is_clean, met(spark, of(new))
    assert met(spark, of(new)).counts == {"before": 4, "after": len(new.emitted()), "gap": 0, "overlap": 0}

    wrong = {topic: {p: offset + 1 for p, offset in found.items()} for topic, found in planned.topics.items()}
    late = query(
        spark, kafka.servers, tmp_path / "late", json.dumps({TOPIC: {str(p): o for p, o in wrong[TOPIC].items()}})
    )
    late.run([lambda: None])
    found = met(spark, of(new).model_copy(update={"live": of(late).live}))
    assert not found.is_clean
    assert found.differing + found.counts["gap"] > 0


def met(spark: SparkSession, pipeline) -> Meeting:
    return check_meeting(spark, pipeline, AT, NoProgress())
