"""The marks that a real broker and a real query keep, and the end offsets that runs make of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from spark_jobs.cli.options import requested_of
from spark_jobs.cutover.restart import Restart, restart_from
from spark_jobs.definition import Pipeline
from spark_jobs.definition.position import is_mark
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import DefinitionError, HistoryError, SourceError
from spark_jobs.marks.mark import Mark, MarkKind
from spark_jobs.marks.read import ends_of_mark, read_mark, topic_of
from spark_jobs.orchestration.form import read_form
from spark_jobs.runs.life.documents import Request
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.submit.application import plan_stage
from tests.kafka import commit, produce
from tests.runs.live_query import SCHEMA, STEPS, WINDOWS, LiveQuery, defined, sent, topic_stream

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

    started = restart_from(spark, streams(kafka.servers), group)
    assert started == Restart("watermark: {restarts: [{offsets: {0: 1, 1: 2}}]}", 0)
    assert streams(kafka.servers, yaml.safe_load(started.definition)["watermark"])
    with pytest.raises(DefinitionError, match="the job records its restarts itself"):
        restart_from(spark, pipeline, group)
    with pytest.raises(HistoryError, match="no record has come since the mark"):
        restart_from(spark, pipeline, replace(group, offsets={TOPIC: {0: 100, 1: 100}}))

    with pytest.raises(SourceError, match="the consumer group nobody does not exist"):
        marked("nobody")
    with pytest.raises(SourceError, match="there is no checkpoint of a Structured Streaming query"):
        marked(str(tmp_path / "rows"))
    with pytest.raises(SourceError, match="there is no such folder"):
        marked(str(tmp_path / "gone"))
    other = pipeline.model_copy(update={"history": pipeline.history.model_copy(update={"topic": "another"})})
    with pytest.raises(DefinitionError, match="the mark has no offsets of the topic another: it has those of marked"):
        ends_of_mark(lambda: spark, other, "orders-job")


def over_topic(name: str, servers: str, topic: str, **sections: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": name,
            "history": {"kind": "kafka", "servers": servers, "topic": topic},
            "value": {"format": "json", "schema": SCHEMA},
            "keys": {"k": "k"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "window": {"type": "tumbling", "size": "1 min"},
            "aggregates": {"n": "count(*)"},
            **sections,
        }
    )


def streams(servers: str, watermark: dict[str, Any] | None = None) -> Pipeline:
    own = {"engine": "kafka_streams", "allowed_lateness": 0, "emission": "on_close"}
    return over_topic("marked_streams", servers, TOPIC, **own, watermark={"grace": "10 s", **(watermark or {})})


def test_the_form_takes_a_mark_and_the_plan_has_its_offsets(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = "marked-by-form"
    kafka.create_topic(topic, 2, APPEND_TIME)
    produce(spark, kafka.servers, topic, [one for step in STEPS[:2] for one in sent(step)])
    commit(spark, kafka.servers, "form-job", topic, {0: 1, 1: 2})
    watermark = {"generator": "bounded_out_of_orderness", "bound": "10 s"}
    output = {"namespace": "marked_by_form"}
    pipeline = over_topic("marked_by_form", kafka.servers, topic, watermark=watermark, output=output)

    def planned(mark: str, run_id: str) -> Plan:
        asked = read_form({"as_of": mark, "reason": "as the job", "dry_run": "plan"})
        folder = RunStore.configured().folder(run_id)
        Request.of(run_id, pipeline, RunKind.BACKFILL, "as the job", datetime.now(UTC), asked).write(folder)
        plan_stage(spark, folder, pipeline, NoProgress(), ExitStack())
        plan = Plan.read(folder)
        assert plan is not None
        return plan

    assert planned(" form-job ", "marked-1").as_of == {0: 1, 1: 2}
    secret = tmp_path / "secret.txt"
    secret.write_text("a password")
    with pytest.raises(SourceError, match="it is no checkpoint") as refused:
        planned(str(secret), "marked-2")
    assert "password" not in str(refused.value)
    for text in ("'; DROP TABLE runs", "a\nb", "x" * 2000, "$(id)"):
        with pytest.raises(DefinitionError, match=r"As of: .*is no list of end offsets, and no name of a mark"):
            read_form({"as_of": text})


@pytest.mark.parametrize(
    ("text", "said"), [("0=1", False), ("0=1,1=x", False), ("0:5", False), ("orders-job", True), ("/srv/chk-7", True)]
)
def test_end_offsets_are_no_mark(text: str, said: bool) -> None:
    assert is_mark(text) is said
