"""A topic changes between nights: retention removes its beginning, it is emptied, compacted, or ends earlier."""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.errors import HistoryError, SourceError
from spark_jobs.identities import Identity, other_schemas
from spark_jobs.replay.columns import HISTORY_GONE
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import PinnedSchemas
from tests.kafka import Producer, Sent, produce
from tests.registry import SchemaRegistry
from tests.sources.avro import encoded, framed

T0 = 1_357_034_400_000
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
_numbers = itertools.count()


def of_topic(servers: str, topic: str, *accept: str, **sections: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": f"changing_{next(_numbers)}",
            "history": {"kind": "kafka", "servers": servers, "topic": topic, "accept": list(accept)},
            "value": {"format": "text"},
            "event_time": {"expression": "value", "unit": "ms"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": "20 ms"},
            "window": {"type": "tumbling", "size": "10 ms"},
            "aggregates": {"n": "count(*)"},
            "output": {"namespace": "changing"},
        }
        | sections
    )


def at(*times: int) -> list[Sent]:
    return [Sent(f"{T0 + n}") for n in times]


def windows(spark: SparkSession, pipeline: Pipeline) -> dict[int, tuple[int, str]]:
    """Records and state by the window's start, ms after T0."""
    rows = spark.table(f"rewindow.changing.{pipeline.output.table}").collect()
    return {round(r["window_start"].timestamp() * 1000) - T0: (r["n__complete"], r["state"]) for r in rows}


def full(spark: SparkSession, pipeline: Pipeline) -> dict[str, int]:
    with planned_records(spark, pipeline) as (plan, records):
        return execute(spark, pipeline, plan, NoProgress(), records=records).changes


@pytest.mark.long
def test_windows_keep_their_values_where_retention_has_removed_their_records(spark, kafka: KafkaBroker) -> None:
    kafka.create_topic("retention", 1, APPEND_TIME)
    pipeline = of_topic(kafka.servers, "retention", "lost_start")
    produce(spark, kafka.servers, "retention", at(*range(100)))
    reconcile(spark, pipeline, NoProgress())
    kafka.delete_records("retention", 0, before=45)
    produce(spark, kafka.servers, "retention", at(3, 41, 55, 180))
    night = reconcile(spark, pipeline, NoProgress())
    assert night.continued_from is not None and "2 windows keep their values" in night.note
    now = windows(spark, pipeline)
    assert {w: now[w] for w in (0, 40)} == {0: (10, HISTORY_GONE), 40: (10, HISTORY_GONE)}
    assert now[50] == (11, "closed") and now[10] == (10, "closed")
    # A full run of another definition keeps them too: 11 windows are there as they were, and none is counted twice.
    changed = pipeline.model_copy(update={"window": pipeline.window.model_copy(update={"size": 5})})
    assert "retracted" in full(spark, changed)
    after = windows(spark, changed)
    assert [after[w][0] for w in (0, 10, 20, 30, 40)] == [10] * 5 and 45 not in after and 5 not in after
    assert after[50] == (5, "closed") and after[55] == (6, "closed")
    assert {state for _, state in after.values()} == {HISTORY_GONE, "closed"}


@pytest.mark.long
def test_an_emptied_topic_takes_nothing_away_and_a_truncated_one_is_refused(spark, kafka: KafkaBroker) -> None:
    kafka.create_topic("emptied", 1, APPEND_TIME)
    pipeline = of_topic(kafka.servers, "emptied", "lost_start")
    produce(spark, kafka.servers, "emptied", at(*range(60)))
    reconcile(spark, pipeline, NoProgress())
    before = windows(spark, pipeline)
    kafka.delete_records("emptied", 0, before=60)
    assert "nothing has arrived" in reconcile(spark, pipeline, NoProgress()).note
    produce(spark, kafka.servers, "emptied", at(15, 70))
    assert "5 windows keep their values" in reconcile(spark, pipeline, NoProgress()).note
    now = windows(spark, pipeline)
    assert {w: n for w, (n, _) in now.items() if w < 60} == {w: n for w, (n, _) in before.items()}
    assert now[70] == (1, "closed")


@pytest.mark.long
def test_a_night_reads_a_topic_up_to_its_instant_and_the_next_one_from_there(spark, kafka: KafkaBroker) -> None:
    kafka.create_topic("instants", 1, {"message.timestamp.type": "CreateTime"})
    pipeline = of_topic(kafka.servers, "instants")
    produce(spark, kafka.servers, "instants", [Sent(f"{T0 + n}", timestamp=T0 + n) for n in range(90)])
    reconcile(spark, pipeline, NoProgress(), until=T0 + 30)
    assert sum(n for n, _ in windows(spark, pipeline).values()) == 30
    night = reconcile(spark, pipeline, NoProgress(), until=T0 + 60)
    assert night.continued_from is not None
    assert sum(n for n, _ in windows(spark, pipeline).values()) == 60
    assert reconcile(spark, pipeline, NoProgress(), until=T0 + 900).continued_from == night.run_id
    assert windows(spark, pipeline) == dict.fromkeys(range(0, 90, 10), (10, "closed"))


def test_offsets_without_records_are_told_and_more_of_them_than_records_are_refused(spark, kafka: KafkaBroker) -> None:
    """As after compaction, also of a topic that is not compacted any more; here aborted records leave the holes."""
    kafka.create_topic("holes", 1, APPEND_TIME)
    producer = Producer(spark, kafka.servers, "holes")
    producer.client.beginTransaction()
    producer.send("holes", at(*range(12)))
    producer.client.commitTransaction()
    some = make_plan(spark, of_topic(kafka.servers, "holes"))
    assert some.fidelity == "log_order" and "1 offsets hold no record" in "; ".join(some.fidelity_reasons)
    producer.client.beginTransaction()
    producer.send("holes", at(*range(20)))
    producer.client.abortTransaction()
    producer.close()
    with pytest.raises(HistoryError, match="22 of the 34 offsets of partition 0 hold no record"):
        make_plan(spark, of_topic(kafka.servers, "holes"))
    assert make_plan(spark, of_topic(kafka.servers, "holes", "holes")).records == 12


def test_schemas_are_others_where_one_of_them_is_another_or_gone() -> None:
    def known(reader: str, writers: dict[int, str]) -> Identity:
        return Identity(schemas=PinnedSchemas("s", 1, reader, writers).digests, subject="s")

    before = known("r", {1: "a", 2: "b"})
    assert other_schemas(before, known("r", {1: "a", 2: "b", 3: "c"})) == ""
    assert other_schemas(before, known("q", {1: "a", 2: "b"})) == "records are read by another schema"
    assert other_schemas(before, known("r", {1: "a", 2: "c"})) == "schema id 2 of the subject s is another schema"
    assert other_schemas(before, known("r", {1: "a"})) == "schema id 2 is gone from the subject s"
    assert other_schemas(before, Identity()) == ""


@pytest.mark.long
def test_a_night_goes_on_while_records_are_read_by_one_schema_and_reads_all_by_another_one(
    spark, kafka: KafkaBroker
) -> None:
    first = {"type": "record", "name": "e", "fields": [{"name": "t", "type": "long"}]}
    later = {**first, "fields": [*first["fields"], {"name": "n", "type": "long", "default": 5}]}
    kafka.create_topic("schemas", 1, APPEND_TIME)
    with SchemaRegistry() as registry:
        one = registry.register("schemas-value", first)
        value = {"format": "avro", "registry": {"url": registry.url, "subject": "schemas-value"}}
        pipeline = of_topic(
            kafka.servers, "schemas", value=value, event_time={"expression": "t", "unit": "ms"}, keys={},
        )  # fmt: skip
        sent = [Sent(framed(one, encoded(spark, first, {"t": T0 + n}))) for n in range(40)]
        produce(spark, kafka.servers, "schemas", sent)
        reconcile(spark, pipeline, NoProgress())
        produce(spark, kafka.servers, "schemas", [sent[3], *sent[30:]])
        assert reconcile(spark, pipeline, NoProgress()).continued_from is not None
        assert windows(spark, pipeline)[0][0] == 11
        two = registry.register("schemas-value", later)
        produce(spark, kafka.servers, "schemas", [Sent(framed(two, encoded(spark, later, {"t": T0 + 7, "n": 1})))])
        night = reconcile(spark, pipeline, NoProgress())
        assert (
            night.continued_from is None and "records are read by another schema (subject schemas-value" in night.note
        )
        assert windows(spark, pipeline)[0][0] == 12
    with pytest.raises(SourceError, match="the schema registry does not answer"):
        reconcile(spark, pipeline, NoProgress())
