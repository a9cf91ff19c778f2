"""The marks that a real broker and a real query keep, and the end offsets that runs make of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cli.options import requested_of
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.marks.mark import Mark, MarkKind
from spark_jobs.marks.read import ends_of_mark, is_mark, read_mark, topic_of
from tests.kafka import commit, produce
from tests.runs.live_query import STEPS, WINDOWS, LiveQuery, defined, sent, topic_stream

TOPIC = "marked"


def test_a_group_and_a_query_say_where_a_run_ends(spark: SparkSession, kafka: KafkaBroker, tmp_path: Path) -> None:
    kafka.create_topic(TOPIC, 2, APPEND_TIME)
    live = LiveQuery([topic_stream(spark, kafka.servers, TOPIC, "10 seconds")], tmp_path, "append", "tumbling")
    live.run([lambda: produce(spark, kafka.servers, TOPIC, sent(STEPS[0]))])
    produce(spark, kafka.servers, TOPIC, sent(STEPS[1]))
    commit(spark, kafka.servers, "orders-job", TOPIC, {0: 1, 1: 2})
    history = {"kind": "kafka", "servers": kafka.servers, "topic": TOPIC}
    pipeline = defined(live, history, "json", "marked", WINDOWS["tumbling"])

    def marked(where: str) -> Mark:
        return read_mark(lambda: spark, where, lambda: topic_of(spark, pipeline))

    group = marked("orders-job")
    assert (group.kind, group.offsets) == (MarkKind.CONSUMER_GROUP, {TOPIC: {0: 1, 1: 2}})
    query = marked(str(live.checkpoint))
    last = max(int(file.name) for file in (live.checkpoint / "commits").iterdir() if file.name.isdigit())
    assert (query.kind, query.number, query.offsets) == (MarkKind.SPARK_CHECKPOINT, last, {TOPIC: {0: 2, 1: 1}})
    assert requested_of(pipeline, as_of="orders-job").as_of == {0: 1, 1: 2}
    assert requested_of(pipeline, as_of=str(live.checkpoint)).as_of == {0: 2, 1: 1}

    with pytest.raises(SourceError, match="the consumer group nobody does not exist"):
        marked("nobody")
    with pytest.raises(SourceError, match="there is no checkpoint of a Structured Streaming query"):
        marked(str(tmp_path / "rows"))
    with pytest.raises(SourceError, match="there is no such folder"):
        marked(str(tmp_path / "gone"))
    other = pipeline.model_copy(update={"history": pipeline.history.model_copy(update={"topic": "another"})})
    with pytest.raises(DefinitionError, match="the mark has no offsets of the topic another: it has those of marked"):
        ends_of_mark(lambda: spark, other, "orders-job")


@pytest.mark.parametrize(
    ("text", "said"), [("0=1", False), ("0=1,1=x", False), ("0:5", False), ("orders-job", True), ("/srv/chk-7", True)]
)
def test_end_offsets_are_no_mark(text: str, said: bool) -> None:
    assert is_mark(text) is said
