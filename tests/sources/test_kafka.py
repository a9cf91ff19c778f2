"""Topics of a real broker as histories."""

# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import HistoryError, RewindowError, SourceError
from spark_jobs.runs.planning.plan import make_plan, plan_from_json, planned_records, read_planned
from spark_jobs.sources import check_expressions, good, open_history, quarantined
from spark_jobs.spark.gateway import jvm, query_execution
from tests.conftest import KAFKA_PASSWORD
from tests.kafka import Producer, Sent, produce
from tests.sampling import first_of
from tests.services.kafka_broker import AdministeredBroker
from tests.sources.avro import zigzag
from tests.sources.conftest import BASE

_NUMBERS = itertools.count()
NewTopic = Callable[..., str]


@pytest.fixture
def topic(spark, kafka: KafkaBroker) -> NewTopic:
    """Makes a topic with the records given."""

    def make(records: Iterable[Sent] = (), partitions: int = 1, append_time: bool = True, **settings: str) -> str:
        name = f"topic_{next(_NUMBERS)}"
        more = {key.replace("_", "."): value for key, value in settings.items()}
        kafka.create_topic(name, partitions, {**(APPEND_TIME if append_time else {}), **more})
        produce(spark, kafka.servers, name, records)
        return name

    return make


def of_topic(servers: str, topic: str, *, value: dict | None = None, **sections: Any) -> Pipeline:
    history = {"kind": "kafka", "servers": servers, "topic": topic, **sections.pop("history", {})}
    return Pipeline.model_validate(
        {
            "name": "p",
            "history": history,
            "value": value or {"format": "json", "schema": "t BIGINT, n BIGINT"},
            "event_time": {"expression": "t", "unit": "ms", "missing": "quarantine"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": "30 min"},
            "window": {"type": "tumbling", "size": "1 h"},
            "aggregates": {"n": "count(*)"},
            **sections,
        }
    )


def event(number: int, **fields: Any) -> str:
    return json.dumps({"t": BASE + number, "n": number, **fields})


def events(count: int, partition: int = 0, first: int = 0) -> list[Sent]:
    return [Sent(event(number), partition, key=f"k{number % 3}") for number in range(first, first + count)]


def offsets(frame) -> list[tuple[int, int]]:
    return sorted((row.rw_partition, row.rw_offset) for row in good(frame).collect())


def reasons(frame) -> dict[int, str]:
    return {row.offset: row.reason for row in quarantined(frame).collect()}


def refusal(spark, pipeline: Pipeline, **options: Any) -> str:
    """Why no plan can be made."""
    reason = why_refused(spark, pipeline, **options)
    assert reason, "a plan can be made"
    return reason


def why_refused(spark, pipeline: Pipeline, **options: Any) -> str:
    """Why no plan can be made; empty where one can be made."""
    try:
        make_plan(spark, pipeline, **options)
    except RewindowError as refused:
        return str(refused)
    return ""


def test_a_plan_pins_the_offsets_and_reads_exactly_those_later(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(5) + events(3, partition=1), partitions=3)
    pipeline = of_topic(kafka.servers, name)
    plan = make_plan(spark, pipeline)
    produce(spark, kafka.servers, name, events(4, partition=1, first=50))
    again = plan_from_json(plan.to_json())
    assert again == plan and again.as_of == {0: 5, 1: 3, 2: 0}
    assert (plan.records, plan.fidelity, plan.fidelity_reasons) == (8, "log_order", ())
    expected = [(0, number) for number in range(5)] + [(1, number) for number in range(3)]
    assert offsets(read_planned(spark, pipeline, again)) == expected
    assert make_plan(spark, pipeline).as_of == {0: 5, 1: 7, 2: 0}


def test_records_are_read_once_for_plan_and_run(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(20))
    with planned_records(spark, of_topic(kafka.servers, name)) as (plan, records):
        assert plan.records == 20
        assert "InMemoryTableScan" in query_execution(records).executedPlan().toString()
        assert "value" not in records.columns
    assert not records.is_cached


@pytest.mark.parametrize(
    ("bounds", "expected"),
    first_of(
        [
            ({"start": "2000-01-01T00:00:00Z", "end": {0: 1, 1: 1}}, [(0, 0), (1, 0)]),
            ({"start": {0: 2, 1: 0}}, [(0, 2), (0, 3), (1, 0), (1, 1)]),
            ({"end": {0: 1, 1: 2}}, [(0, 0), (1, 0), (1, 1)]),
            ({"start": {0: 1, 1: 1}, "end": {0: 3, 1: 1}}, [(0, 1), (0, 2)]),
        ]
    ),
)  # fmt: skip
def test_a_range_is_chosen_by_offsets_or_by_time(
    spark, kafka: KafkaBroker, topic: NewTopic, bounds: dict, expected: list
) -> None:
    name = topic(events(4) + events(2, partition=1), partitions=2)
    pipeline = of_topic(kafka.servers, name, history=bounds)
    assert offsets(read_planned(spark, pipeline, make_plan(spark, pipeline))) == expected


def test_a_time_range_begins_at_the_first_record_that_arrived_then(spark, kafka: KafkaBroker) -> None:
    """The flights lie in the topic with the times at which a broker of 2013 would have appended them."""
    day = {"start": "2013-02-01T00:00:00Z", "end": "2013-02-02T00:00:00Z"}
    flights = {"format": "json", "schema": "sched_dep STRING, distance BIGINT"}
    time = {"expression": "sched_dep", "unit": "iso"}
    pipeline = of_topic(kafka.servers, "flights", history=day, value=flights, event_time=time)
    plan = make_plan(spark, pipeline)
    rows = spark.read.parquet("tests/data/flights/events.parquet").where(
        "arrival >= timestamp'2013-02-01T00:00:00Z' AND arrival < timestamp'2013-02-02T00:00:00Z'"
    )
    assert plan.records == rows.count() > 0
    assert plan.fidelity_reasons[0].startswith("partition 0 is read from offset ")


@pytest.mark.long
def test_one_partition_is_read_in_several_tasks(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(40))
    pipeline = of_topic(kafka.servers, name, history={"min_partitions": 4})
    frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
    assert frame.rdd.getNumPartitions() == 4
    assert offsets(frame) == [(0, number) for number in range(40)]


@pytest.mark.long
def test_key_and_headers_are_there_for_expressions(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    sent = [Sent(event(0), key="a", headers={"source": "x"}), Sent(event(1), key="b", headers={}), Sent(event(2))]
    pipeline = of_topic(
        kafka.servers,
        topic(sent),
        keys={"k": "key", "source": "headers['source']"},
        filter={"before_watermark": "n < 2"},
    )
    rows = good(read_planned(spark, pipeline, make_plan(spark, pipeline))).orderBy("rw_offset").collect()
    assert [(row.k, row.source) for row in rows] == [("a", "x"), ("b", None)]


AVRO = json.dumps(
    {
        "type": "record",
        "name": "e",
        "fields": [{"name": "t", "type": "long"}, {"name": "s", "type": ["null", "string"]}],
    }
)


@pytest.mark.long
def test_avro_values_are_decoded_and_broken_ones_are_quarantined(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    record = zigzag(BASE) + zigzag(1) + zigzag(1) + b"x"
    sent = [record, record[:4], record + b"!", b"", None]
    value = {"format": "avro", "schema": AVRO}
    pipeline = of_topic(kafka.servers, topic([Sent(one) for one in sent]), value=value, quarantine={"threshold": 9})
    frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
    assert [(row.t, row.s) for row in good(frame).collect()] == [(BASE, "x")]
    broken = "not valid Avro for this schema"
    assert reasons(frame) == {1: broken, 2: broken, 3: broken, 4: "no value"}
    framed = [b"\0\0\0\0\7" + record, b"\1\0\0\0\7" + record]
    pipeline = of_topic(kafka.servers, topic([Sent(one) for one in framed]), value={**value, "framing": "confluent"})
    frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
    assert [(row.t, row.s) for row in good(frame).collect()] == [(BASE, "x")]
    assert reasons(frame) == {1: "not in Confluent's framing: the first byte is not 0"}


@pytest.mark.long
def test_csv_and_plain_text_are_values_too(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    value = {"format": "csv", "schema": "t BIGINT, n BIGINT"}
    pipeline = of_topic(kafka.servers, topic([Sent(f"{BASE},1"), Sent("x,2")]), value=value)
    frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
    assert offsets(frame) == [(0, 0)] and reasons(frame) == {1: "wrong type for field t"}
    time = {"expression": "split(value, ' ')[0]", "unit": "ms", "missing": "quarantine"}
    pipeline = of_topic(
        kafka.servers, topic([Sent(f"{BASE} hello"), Sent(b"\xff\xfe")]), value={"format": "text"}, event_time=time
    )
    frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
    assert offsets(frame) == [(0, 0)] and reasons(frame) == {1: "not valid UTF-8"}


def test_what_cannot_be_used_keeps_its_place_and_its_bytes(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    sent = [event(0), b'{"t": 1, "n": "\xff"}', '{"t": "x"}', "{", '{"n": 1}']
    pipeline = of_topic(kafka.servers, topic([Sent(one) for one in sent]), quarantine={"threshold": 9})
    with planned_records(spark, pipeline) as (plan, records):
        assert (plan.records, plan.quarantined) == (5, 4)
        rows = {row.offset: row for row in quarantined(records).collect()}
    assert {offset: row.reason for offset, row in rows.items()} == {
        1: "not valid UTF-8", 2: "wrong type for field t", 3: "not valid JSON", 4: "missing event time",
    }  # fmt: skip
    assert bytes(rows[1].raw_bytes) == sent[1] and rows[1].raw == '{"t": 1, "n": "�"}'
    assert all(row.partition == 0 and row.arrival is not None for row in rows.values())


@pytest.mark.parametrize(
    ("policy", "good_ones", "put_aside"),
    first_of([("quarantine", [0, 2], {1: "no value"}), ("drop", [0, 2], {}), ("keep", [0, 1, 2], {})]),
)
def test_tombstones_follow_their_policy(
    spark, kafka: KafkaBroker, topic: NewTopic, policy: str, good_ones: list, put_aside: dict
) -> None:
    name = topic([Sent(event(0), key="a"), Sent(None, key="a"), Sent(event(2), key="b")])
    time = {"expression": f"coalesce(t, {BASE})", "unit": "ms"}
    pipeline = of_topic(
        kafka.servers, name, history={"tombstones": policy}, event_time=time, quarantine={"threshold": 9}
    )
    frame = read_planned(spark, pipeline, make_plan(spark, pipeline))
    assert (offsets(frame), reasons(frame)) == ([(0, number) for number in good_ones], put_aside)


def test_producer_time_is_approximate_and_says_why(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    sent = [Sent(event(number), timestamp=BASE + number * 1000) for number in (0, 2, 1)]
    name = topic(sent, append_time=False)
    said = refusal(spark, of_topic(kafka.servers, name))
    assert "the arrival goes back: offset 1 arrived at 2013-01-01T10:00:02Z, offset 2 at 2013-01-01T10:00:01Z" in said
    plan = make_plan(spark, of_topic(kafka.servers, name, history={"going_back": "running_maximum"}))
    assert plan.fidelity == "approximate"
    assert plan.fidelity_reasons[0] == f"topic {name} has the producer's time (message.timestamp.type is CreateTime)"
    said = refusal(spark, of_topic(kafka.servers, name, history={"timestamps": "append_time"}))
    assert "of partition 0 carries the producer's time, not the broker's" in said and "\n" not in said


def test_aborted_records_and_markers_are_no_gaps(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic()
    producer = Producer(spark, kafka.servers, "t1")
    try:
        for commits, first in ((True, 0), (False, 10), (True, 20), (False, 30)):
            producer.client.beginTransaction()
            producer.send(name, events(2, first=first))
            producer.client.commitTransaction() if commits else producer.client.abortTransaction()
        pipeline = of_topic(kafka.servers, name, history={"accept": ["holes"]})  # half of the records are aborted
        plan = make_plan(spark, pipeline)
        assert (plan.records, plan.as_of) == (4, {0: 12})
        assert offsets(read_planned(spark, pipeline, plan)) == [(0, 0), (0, 1), (0, 6), (0, 7)]
        everything = of_topic(kafka.servers, name, history={"isolation": "read_uncommitted"})
        assert make_plan(spark, everything).records == 8
        producer.client.beginTransaction()
        producer.send(name, events(3, first=40))
        assert make_plan(spark, pipeline).as_of == {0: 12}
        producer.client.abortTransaction()
    finally:
        producer.close()


def test_a_start_that_retention_has_eaten_is_refused_or_recorded(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(6))
    pipeline = of_topic(kafka.servers, name)
    plan = make_plan(spark, pipeline)
    kafka.delete_records(name, 0, before=2)
    said = refusal(spark, pipeline)
    assert "partition 0 begins at offset 2: retention has removed the records before" in said
    assert "accept: [lost_start]" in said
    with pytest.raises(HistoryError, match=r"offsets \[0, 2\) of partition 0 are gone since the plan was made"):
        read_planned(spark, pipeline, plan)
    accepted = make_plan(spark, of_topic(kafka.servers, name, history={"accept": ["lost_start"]}))
    assert accepted.records == 4 and "accept: lost_start" in accepted.fidelity_reasons[0]


def test_a_topic_made_again_is_refused_or_recorded(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(3))
    pipeline = of_topic(kafka.servers, name)
    plan = make_plan(spark, pipeline)
    kafka.delete_topic(name)
    kafka.create_topic(name, 1, APPEND_TIME)
    produce(spark, kafka.servers, name, events(5))
    with pytest.raises(HistoryError, match="deleted and created again since the plan was made"):
        read_planned(spark, pipeline, plan)


def test_a_partition_added_in_the_middle_is_refused_or_recorded(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(3))
    registered = {"generator": "bounded_out_of_orderness", "bound": "30 min", "partitions": [0]}
    pipeline = of_topic(kafka.servers, name, watermark=registered)
    plan = make_plan(spark, pipeline)
    kafka.add_partitions(name, 2)
    assert "the topic has partition 1, which watermark.partitions does not name" in refusal(spark, pipeline)
    with pytest.raises(HistoryError, match="partition 1 was added since the plan was made"):
        read_planned(spark, pipeline, plan)
    willing = of_topic(kafka.servers, name, watermark=registered, history={"accept": ["new_partitions"]})
    accepted = make_plan(spark, willing)
    assert accepted.as_of == {0: 3} and "accept: new_partitions" in accepted.fidelity_reasons[0]


def test_a_compacted_topic_is_refused_or_recorded(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(3), cleanup_policy="compact")
    assert "the topic is compacted" in refusal(spark, of_topic(kafka.servers, name))
    accepted = make_plan(spark, of_topic(kafka.servers, name, history={"accept": ["compacted"]}))
    assert "accept: compacted" in accepted.fidelity_reasons[0]


@pytest.mark.long
def test_an_as_of_vector_ends_the_log(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(events(4) + events(4, partition=1), partitions=2)
    pipeline = of_topic(kafka.servers, name)
    plan = make_plan(spark, pipeline, as_of={0: 3, 1: 1})
    assert offsets(read_planned(spark, pipeline, plan)) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    assert "the end offset of partition 0 is 9, and it ends at 4" in refusal(spark, pipeline, as_of={0: 9, 1: 1})
    assert "name partition 7, which the topic does not have" in refusal(spark, pipeline, as_of={7: 1})


def test_a_definition_is_checked_without_a_broker(spark) -> None:
    assert check_expressions(spark, of_topic("127.0.0.1:1", "t", keys={"k": "concat(key, headers['h'])"})) == []
    problems = check_expressions(spark, of_topic("127.0.0.1:1", "t", keys={"k": "nn"}))
    assert [problem.field for problem in problems] == ["keys.k"] and "there is no column `nn`" in problems[0].what
    broken = of_topic("127.0.0.1:1", "t", value={"format": "avro", "schema": '{"type": "record"}'})
    assert [problem.field for problem in check_expressions(spark, broken)] == ["value.schema"]


def test_what_cannot_be_reached_is_reported_in_one_line(spark, kafka: KafkaBroker) -> None:
    text = f"""
        name: flights
        history: {{kind: kafka, servers: "{kafka.servers}", topic: nowhere}}
        value: {{format: json, schema: t BIGINT}}
        event_time: {{expression: t, unit: ms}}
        watermark: {{generator: bounded_out_of_orderness, bound: 1 min}}
        window: {{type: tumbling, size: 1 h}}
        aggregates: {{n: count(*)}}
    """
    with pytest.raises(SourceError, match=r"there is no topic `nowhere` .*, /flights\.yaml:3\)"):
        open_history(spark, load_pipeline("/flights.yaml", text=text))
    secret = {"sasl.jaas.config": "KAFKA_JAAS"}
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    pipeline = of_topic(kafka.sasl_servers, "flights", history={"options": options, "secrets": secret})
    os.environ.pop("KAFKA_JAAS", None)
    with pytest.raises(RewindowError, match="environment variable KAFKA_JAAS is not set"):
        open_history(spark, pipeline)


def test_secrets_come_from_the_environment_and_go_nowhere(
    spark, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    flights = {"format": "json", "schema": "sched_dep STRING"}
    time = {"expression": "sched_dep", "unit": "iso"}
    chosen = {"options": options, "secrets": {"sasl.jaas.config": "KAFKA_JAAS"}, "end": {0: 50, 1: 50, 2: 50}}
    pipeline = of_topic(kafka.sasl_servers, "flights", history=chosen, value=flights, event_time=time)
    monkeypatch.setenv("KAFKA_JAAS", f'{module} required username="alice" password="{KAFKA_PASSWORD}";')
    plan = make_plan(spark, pipeline)
    frame = read_planned(spark, pipeline, plan)
    shown = plan.to_json() + pipeline.to_canonical_json() + query_execution(frame).toString()
    assert plan.records == 150 and KAFKA_PASSWORD not in shown
    arguments = Path(f"/proc/{jvm(spark).java.lang.ProcessHandle.current().pid()}/cmdline").read_text()
    assert KAFKA_PASSWORD not in arguments
    monkeypatch.setenv("KAFKA_JAAS", f'{module} required username="alice" password="wrong";')
    with pytest.raises(SourceError, match="the brokers refuse access") as refused:
        make_plan(spark, pipeline)
    assert "wrong" not in str(refused.value)


@pytest.mark.long
def test_a_partition_whose_broker_is_gone_is_refused_or_left_out_by_an_option(spark, tmp_path: Path) -> None:
    with AdministeredBroker(tmp_path / "one") as kafka:
        with kafka.joining(tmp_path / "two"):
            kafka.create_topic("halves", partitions=2, settings=APPEND_TIME, brokers=(1, 2))
            produce(spark, kafka.servers, "halves", events(3) + events(2, partition=1))
            whole = of_topic(kafka.servers, "halves")
            planned = make_plan(spark, whole)
            assert offsets(read_planned(spark, whole, planned)) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
        until_refused = Retrying(
            retry=retry_if_result(lambda reason: "partition 1 has no leader" not in reason),
            stop=stop_after_delay(60),
            wait=wait_fixed(0.5),
        )
        reason = until_refused(why_refused, spark, whole)
        assert "partition 1 has no leader: its records cannot be read" in reason
        assert "unreachable_partitions" in reason
        with pytest.raises(HistoryError, match="partition 1 of the plan cannot be read"):
            read_planned(spark, whole, planned)
        half = of_topic(kafka.servers, "halves", history={"accept": ["unreachable_partitions"]})
        plan = make_plan(spark, half)
        assert offsets(read_planned(spark, half, plan)) == [(0, 0), (0, 1), (0, 2)]
        assert any("partition 1 has no leader" in reason for reason in plan.fidelity_reasons)
