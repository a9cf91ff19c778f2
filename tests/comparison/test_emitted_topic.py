# ruff: noqa: E501 (a record stands on one line)
"""Emitted rows in topics of a real broker: panes, upserts with tombstones, changelogs; what cannot be read is said."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable

import pytest
from pyspark.sql.types import StringType

from spark_jobs.comparison.emitted import Emitted, EmittedRows, read_late_output
from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.errors import RewindowError, SourceError
from spark_jobs.spark.cached import CachedFrames
from tests.comparison.emitted_topics import ALL, HOUR, JSON, NOON, pipeline, row, values
from tests.kafka import Producer, Sent, produce
from tests.registry import SchemaRegistry
from tests.sources.avro import framed, zigzag

_NUMBERS = itertools.count()
NewTopic = Callable[..., str]


@pytest.fixture
def topic(spark, kafka: KafkaBroker) -> NewTopic:
    """Makes a topic of results with the records given."""

    def make(records: Iterable[Sent] = (), partitions: int = 1, **settings: str) -> str:
        name = f"results_{next(_NUMBERS)}"
        kafka.create_topic(name, partitions, {key.replace("_", "."): value for key, value in settings.items()})
        produce(spark, kafka.servers, name, records)
        return name

    return make


def read(spark, defined: Pipeline, held: CachedFrames | None = None) -> Emitted:
    return EmittedRows(spark, defined, {"carrier": StringType()}, held).windows(ALL)


def test_of_several_rows_the_last_by_position_counts_and_only_rows_up_to_the_pinned_offsets(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    name = topic([Sent(row("AA", 1)), Sent(row("AA", 5)), Sent(row("AA", 3)), Sent(row(None, 9), 1)], partitions=2)
    found = read(spark, pipeline(kafka.servers, name))
    produce(spark, kafka.servers, name, [Sent(row("AA", 7)), Sent(row("BB", 1), 1)])
    assert values(found) == {"AA": (3, 3, False), None: (9, 1, False)}
    assert found.description == f"Kafka topic {name} at {kafka.servers}, up to 0=3,1=1"
    again = pipeline(kafka.servers, name, source={"end": {0: 2, 1: 1}})
    assert values(read(spark, again)) == {"AA": (5, 2, False), None: (9, 1, False)}


def test_position_outranks_the_pane_and_across_partitions_the_pane_decides_or_the_row_is_flagged(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    schema = {"value": {**JSON, "schema": "carrier STRING, s BIGINT, c BIGINT, pane INT"}}
    one = topic([Sent(row("AA", 8, pane=1)), Sent(row("AA", 2, pane=0))])
    assert values(read(spark, pipeline(kafka.servers, one, source=schema, pane="pane"))) == {"AA": (2, 2, False)}
    two = topic([Sent(row("AA", 8, pane=1), 0), Sent(row("AA", 2, pane=0), 1)], partitions=2)
    assert values(read(spark, pipeline(kafka.servers, two, source=schema, pane="pane"))) == {"AA": (8, 2, False)}
    assert values(read(spark, pipeline(kafka.servers, two)))["AA"][1:] == (2, True)


def test_the_record_that_a_correction_is_made_of_is_the_one_that_is_compared(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    schema = {"value": {**JSON, "schema": "carrier STRING, s BIGINT, c BIGINT, pane INT"}}
    filler = [Sent(row("BB", count, pane=0), 0) for count in range(9)]
    sent = [*filler, Sent(row("AA", 2, pane=0), 0), Sent(row("AA", 8, pane=1), 1)]
    sent += [Sent(row("CC", 1, pane=0), 0), Sent(row("CC", 2, pane=0), 1)]  # nothing orders these two
    defined = pipeline(kafka.servers, topic(sent, partitions=2), source=schema, pane="pane")
    rows = EmittedRows(spark, defined, {"carrier": StringType()})
    compared = {row["carrier"]: row["n__emitted"] for row in rows.windows(ALL).rows.collect()}
    made_of = {
        row["carrier"]: json.loads(bytes(row["rw_value_bytes"]))["c"] for row in rows.last_records(ALL).collect()
    }
    assert compared == made_of
    assert compared["AA"] == 8


def test_a_null_value_retracts_an_upserted_window_that_the_key_names(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    def key(carrier: str) -> str:
        return json.dumps({"carrier": carrier, "s": NOON})

    counts = {"c": 4}
    sent = [
        Sent(json.dumps(counts), key=key("AA")), Sent(None, key=key("AA")),
        Sent(json.dumps(counts), key=key("BB")), Sent(None, key=key("BB")), Sent(json.dumps({"c": 6}), key=key("BB")),
        Sent(None, key="CC"), Sent(None, key="{}"),
    ]  # fmt: skip
    name = topic(sent, cleanup_policy="compact")
    source = {
        "key": {"format": "json", "schema": "carrier STRING, s BIGINT"},
        "value": {"format": "json", "schema": "c BIGINT"},
    }
    found = read(spark, pipeline(kafka.servers, name, source=source, mode="upsert"))
    assert values(found) == {"BB": (6, 3, False)}
    assert found.notes == (
        "2 emitted rows were left out because they cannot be read, the first at partition 0, offset 5: key: not valid JSON",
    )


@pytest.mark.long
def test_the_value_may_repeat_the_keys_fields_and_a_tombstone_has_the_keys(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    key = json.dumps({"carrier": "AA", "s": NOON})
    name = topic([Sent(row("AA", 4), key=key), Sent(None, key=key), Sent(row("BB", 1))])
    source = {"key": {"format": "json", "schema": "carrier STRING, s STRING"}}
    found = read(spark, pipeline(kafka.servers, name, source=source, mode="upsert"))
    assert values(found) == {}
    assert found.unreadable == 1, "a row without a key where one is decoded"
    without_key = read(spark, pipeline(kafka.servers, name, mode="upsert"))
    assert values(without_key) == {"AA": (4, 1, False), "BB": (1, 1, False)}
    assert "offset 1: a null value, and no window in the key" in without_key.notes[0]


def test_in_append_mode_a_null_value_and_a_broken_one_are_told_with_their_place(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    name = topic([Sent(row("AA", 1)), Sent("{"), Sent(None), Sent(b"\xff"), Sent(row("AA", "x"))])
    found = read(spark, pipeline(kafka.servers, name))
    assert values(found) == {"AA": (1, 1, False)}
    assert found.unreadable == 4
    assert found.notes[0].endswith("the first at partition 0, offset 1: not valid JSON")


FLINK = [
    row("AA", 1, op="+I"), row("AA", 1, op="-U"), row("AA", 4, op="+U"),
    row("BB", 7, op="+I"), row("BB", 7, op="-D"),
    row("CC", 2, op="+I"), row("CC", 2, op="-D"), row("CC", 3, op="+I"),
]  # fmt: skip


def test_a_changelog_of_row_kinds_is_applied_by_position(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    source = {"value": {**JSON, "schema": "carrier STRING, s BIGINT, c BIGINT, op STRING"}}
    name = topic([Sent(one) for one in FLINK])
    found = read(spark, pipeline(kafka.servers, name, source=source, mode="changelog", operation="op"))
    assert values(found) == {"AA": (4, 2, False), "CC": (3, 3, False)}


@pytest.mark.long
def test_a_changelog_of_debezium_has_its_fields_before_and_after(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    def change(op: str, before: int | None, after: int | None, carrier: str) -> str:
        sides = [None if c is None else {"carrier": carrier, "s": NOON, "c": c} for c in (before, after)]
        return json.dumps({"before": sides[0], "after": sides[1], "op": op, "ts_ms": NOON})

    sent = [
        Sent(change("c", None, 1, "AA"), key="AA"), Sent(change("u", 1, 5, "AA"), key="AA"),
        Sent(change("r", None, 2, "BB"), key="BB"), Sent(change("d", 2, None, "BB"), key="BB"), Sent(None, key="BB"),
    ]  # fmt: skip
    side = "STRUCT<carrier: STRING, s: BIGINT, c: BIGINT>"
    source = {"value": {"format": "json", "schema": f"before {side}, after {side}, op STRING"}}
    defined = pipeline(
        kafka.servers, topic(sent), source=source, mode="changelog", operation="op",
        keys={"carrier": "coalesce(after.carrier, before.carrier)"},
        window={"start": "coalesce(after.s, before.s)", "unit": "ms"}, values={"n": "after.c"},
    )  # fmt: skip
    of_rows = {"format": "json", "schema": "carrier STRING, s BIGINT, c BIGINT",
               "envelope": {"kind": "debezium", "deletes": "keep"}}  # fmt: skip
    enveloped = pipeline(
        kafka.servers, defined.live.source.topic, source={"value": of_rows}, mode="changelog", operation="op",
        window={"start": "s", "unit": "ms"}, values={"n": "c"},
    )  # fmt: skip
    for one in (defined, enveloped):
        found = read(spark, one)
        assert values(found) == {"AA": (5, 2, False)}
        assert (found.unreadable, found.notes) == (0, ())


def test_an_operation_that_is_not_known_is_refused(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    source = {"value": {**JSON, "schema": "carrier STRING, s BIGINT, c BIGINT, op STRING"}}
    name = topic([Sent(row("AA", 1, op="+I")), Sent(row("AA", 2, op="upsert"))])
    with pytest.raises(SourceError, match="emitted rows have the unknown operation `UPSERT`"):
        read(spark, pipeline(kafka.servers, name, source=source, mode="changelog", operation="op"))


AVRO = json.dumps(
    {
        "type": "record", "name": "w",
        "fields": [{"name": "carrier", "type": "string"}, {"name": "s", "type": "long"}, {"name": "c", "type": "long"}],
    }
)  # fmt: skip


@pytest.mark.long
def test_avro_csv_and_text_values_headers_and_the_records_own_time(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    packed = b"\0\0\0\0\7" + zigzag(2) + b"AA" + zigzag(NOON) + zigzag(12)
    source = {"value": {"format": "avro", "schema": AVRO, "framing": "confluent"}}
    found = read(spark, pipeline(kafka.servers, topic([Sent(packed), Sent(packed[:9])]), source=source))
    assert (values(found), found.unreadable) == ({"AA": (12, 1, False)}, 1)

    with SchemaRegistry() as registry:
        older = AVRO.replace('{"name": "c", "type": "long"}', '{"name": "c", "type": "int"}')
        number = registry.register("results-value", older)
        registry.register("results-value", AVRO)
        source = {"value": {"format": "avro", "registry": {"url": registry.url, "subject": "results-value"}}}
        sent = [Sent(framed(number, packed[5:])), Sent(framed(number + 9, packed[5:]))]
        found = read(spark, pipeline(kafka.servers, topic(sent), source=source))
        assert (values(found), found.unreadable) == ({"AA": (12, 1, False)}, 1)

    source = {"value": {"format": "csv", "schema": "carrier STRING, s BIGINT, c BIGINT"}}
    found = read(spark, pipeline(kafka.servers, topic([Sent(f"AA,{NOON},12")]), source=source))
    assert values(found) == {"AA": (12, 1, False)}

    sent = [Sent("12", key="AA", headers={"start": str(NOON)}, timestamp=NOON + HOUR + 7)]
    defined = pipeline(
        kafka.servers, topic(sent), source={"value": {"format": "text"}}, keys={"carrier": "key"},
        window={"start": "headers['start']", "unit": "ms"}, values={"n": "CAST(value AS BIGINT)"},
        emitted_at="timestamp",
    )  # fmt: skip
    found = read(spark, defined)
    assert values(found) == {"AA": (12, 1, False)}
    assert found.rows.select("emitted_at").collect()[0][0] == NOON + HOUR + 7


@pytest.mark.long
def test_rows_of_aborted_transactions_are_not_emitted(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic([Sent(row("AA", 1))])
    producer = Producer(spark, kafka.servers, f"results-{next(_NUMBERS)}")
    try:
        producer.client.beginTransaction()
        producer.send(name, [Sent(row("AA", 2))])
        producer.client.abortTransaction()
        assert values(read(spark, pipeline(kafka.servers, name))) == {"AA": (1, 1, False)}
        dirty = pipeline(kafka.servers, name, source={"isolation": "read_uncommitted"})
        assert values(read(spark, dirty)) == {"AA": (2, 2, False)}
    finally:
        producer.close()


@pytest.mark.long
def test_what_a_topic_no_longer_holds_is_told(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic([Sent(row("AA", 1)), Sent(row("BB", 1)), Sent(row("CC", 2))])
    kafka.delete_records(name, 0, before=1)
    found = read(spark, pipeline(kafka.servers, name))
    assert set(values(found)) == {"BB", "CC"}
    assert found.notes == (
        f"partition 0 of topic {name} begins at offset 1: retention has removed what was before, and windows that "
        "came out only there count as missing",
    )
    assert read(spark, pipeline(kafka.servers, name, source={"start": {0: 2}})).notes == ()
    compacted = topic([Sent(row("AA", 1), key="AA")], cleanup_policy="compact")
    assert "is compacted" in read(spark, pipeline(kafka.servers, compacted)).notes[0]
    assert read(spark, pipeline(kafka.servers, compacted, mode="upsert")).notes == ()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"topic": "nowhere"}, "there is no topic `nowhere`"),
        ({"end": {0: 9}}, "partition 0 ends at offset 1, before the requested offset 9"),
        ({"start": {3: 0}}, "the topic has no partition 3"),
        ({"value": {"format": "json", "schema": "carrier STRIN"}}, "live.source.value.schema: not a schema"),
        ({"value": {"format": "json", "schema": "carrier STRING, s BIGINT, c BIGINT"}, "key": {"format": "avro", "schema": '{"type": "record"}'}}, "live.source.key.schema: not a schema"),
    ],
)  # fmt: skip
def test_what_cannot_be_reached_or_decoded_is_refused_with_the_field(
    spark, kafka: KafkaBroker, topic: NewTopic, source: dict, words: str
) -> None:
    name = topic([Sent(row("AA", 1))])
    with pytest.raises(RewindowError) as refused:
        read(spark, pipeline(kafka.servers, name, source=source))
    assert words in str(refused.value)


def test_a_late_side_output_may_be_a_topic(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    results, late = topic(), topic([Sent('{"partition": 3, "offset": 70}'), Sent(None), Sent("{")])
    value = {"format": "json", "schema": "`partition` INT, `offset` BIGINT"}
    side = {"source": {"kind": "kafka", "servers": kafka.servers, "topic": late, "value": value}}
    found = read_late_output(spark, pipeline(kafka.servers, results, late_output=side)).collect()
    assert [tuple(one)[:2] for one in found] == [(3, 70)]


def test_a_topic_is_read_once(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    """What a first look has read is still there when the topic has gone."""
    name = topic([Sent(row("AA", 1)), Sent(row("BB", 2))])
    held = CachedFrames()
    try:
        found = read(spark, pipeline(kafka.servers, name), held)
        kafka.delete_topic(name)
        assert values(found) == {"AA": (1, 1, False), "BB": (2, 1, False)}
    finally:
        held.release()
