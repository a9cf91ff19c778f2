"""`<table>__emitted`, beside a real broker: what a run has kept comes from there, and only the rest from the topic."""

# pyright: reportAttributeAccessIssue=false, reportOptionalCall=false

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType

from spark_jobs.comparison.emitted import EmittedRows
from spark_jobs.comparison.emitted_topic import placing_of
from spark_jobs.definition import Pipeline
from spark_jobs.definition.live import Live, TopicEmitted
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.errors import RewindowError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.emitted_table import Addition, Coverage, EmittedTable, Kept, forget_others
from spark_jobs.lakehouse.tables import Tables
from tests.comparison.emitted_topics import ALL, HOUR, NOON, WINDOW, pipeline, row, values
from tests.kafka import Sent, produce

_NUMBERS = itertools.count()
NewTopic = Callable[..., str]


@pytest.fixture
def topic(spark, kafka: KafkaBroker) -> NewTopic:
    def make(*records: Sent, partitions: int = 1) -> str:
        name = f"kept_{next(_NUMBERS)}"
        kafka.create_topic(name, partitions, {})
        produce(spark, kafka.servers, name, records)
        return name

    return make


def opened(spark: SparkSession, defined: Pipeline) -> EmittedRows:
    return EmittedRows(spark, defined, {"carrier": StringType()})


def kept(spark: SparkSession, defined: Pipeline) -> EmittedRows:
    rows = opened(spark, defined)
    rows.keep()
    return rows


def of(servers: str, topic: str, **live: Any) -> Pipeline:
    """The pipeline of a topic, with tables of its own."""
    return pipeline(servers, topic, name=topic, **live)


def table_of(spark: SparkSession, defined: Pipeline) -> EmittedTable:
    assert isinstance(defined.live, Live) and isinstance(defined.live.source, TopicEmitted)
    return EmittedTable(spark, Tables.of(defined).emitted, placing_of(defined.live.source, defined))


def stored(spark: SparkSession, defined: Pipeline) -> list[tuple[int, int]]:
    rows = spark.table(Tables.of(defined).emitted).select("partition", "offset").collect()
    return sorted((r[0], r[1]) for r in rows)


def shown(rows: DataFrame) -> list[str]:
    return sorted(str(r.asDict()) for r in rows.drop("rw_rank").collect())


def at(carrier: str | None, hours: int, count: int) -> str:
    return row(carrier, count, s=NOON + hours * HOUR)


@pytest.mark.long
def test_what_is_read_is_the_same_whenever_rows_were_kept(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    draw = random.Random(2)
    name = topic(partitions=2)
    defined = of(kafka.servers, name)
    plain = pipeline(kafka.servers, name, name=f"{name}_plain")  # no run of this one keeps anything
    seen: dict[int, int] = {}
    for _ in range(3):
        good = [at(draw.choice("AB"), draw.randrange(-40, 40), draw.randrange(9)) for _ in range(draw.randrange(6))]
        sent = [Sent(draw.choice([value, value, "{", None]), draw.randrange(2)) for value in good]
        produce(spark, kafka.servers, name, sent)
        ours, theirs = opened(spark, defined), opened(spark, plain)
        if draw.random() < 0.7:
            ours.keep()
        whole, expected = ours.windows(ALL), theirs.windows(ALL)
        assert shown(whole.rows) == shown(expected.rows)
        assert (whole.unreadable, whole.outside, whole.notes) == (expected.unreadable, expected.outside, expected.notes)
        spans = [TimeRange(NOON - 20 * HOUR, NOON), TimeRange(NOON + 5 * HOUR, NOON + 9 * HOUR)]
        assert shown(ours.chosen(spans, (), None).rows) == shown(theirs.chosen(spans, (), None).rows)
        pairs = expected.rows.limit(3)
        assert shown(ours.chosen((), [ALL], pairs).rows) == shown(theirs.chosen((), [ALL], pairs).rows)
        changed = [rows.changed(ALL, None, seen) for rows in (ours, theirs)]
        if seen:
            assert changed[0] is not None and changed[1] is not None
            assert shown(changed[0]) == shown(changed[1])
        assert shown(ours.last_records(ALL)) == shown(theirs.last_records(ALL))
        assert shown(ours.panes(NOON)[0]) == shown(theirs.panes(NOON)[0])
        seen = ours.opened.ends or {}
    ends = opened(spark, defined).opened.ends or {}
    kept(spark, defined)
    assert stored(spark, defined) == sorted((p, offset) for p, end in ends.items() for offset in range(end))


def test_a_run_reads_from_the_topic_only_what_no_run_has_kept_and_from_the_table_only_what_it_compares(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    name = topic(*(Sent(at("AA", hour, 1)) for hour in range(5)))
    defined = of(kafka.servers, name)
    kept(spark, defined)
    produce(spark, kafka.servers, name, [Sent(at("BB", 7, 2))])
    rows = opened(spark, defined)
    assert rows.opened.topic is not None
    assert [(part.start, part.end) for part in rows.opened.topic.ahead()] == [(5, 6)]
    rows.keep()
    assert rows.opened.topic.ahead() == ()
    frame = rows.chosen([TimeRange(NOON + 7 * HOUR, NOON + 8 * HOUR)], (), None).rows
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "kafka" not in plan.lower()
    assert f"window_start >= {(NOON + 7 * HOUR) * 1000}" in plan, "Iceberg prunes files and row groups by the start"
    assert values_of(frame) == {("BB", 2)}


def values_of(frame: DataFrame) -> set[tuple]:
    return {(r["carrier"], r["n__emitted"]) for r in frame.collect()}


@pytest.mark.long
def test_what_retention_has_removed_is_still_there_and_what_it_removed_before_is_noted(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    name = topic(Sent(row("AA", 1)), Sent(row("BB", 2)))
    defined = of(kafka.servers, name)
    kept(spark, defined)
    kafka.delete_records(name, 0, before=2)
    found = opened(spark, defined).windows(ALL)
    assert values(found) == {"AA": (1, 1, False), "BB": (2, 1, False)} and found.notes == ()
    produce(spark, kafka.servers, name, [Sent(row("CC", 3)), Sent(row("DD", 4))])
    kafka.delete_records(name, 0, before=3)
    note = (
        f"retention has removed offsets [2, 3) of partition 0 of topic {name} before a run has read them, and windows "
        "that came out only there count as missing"
    )
    for _ in range(2):  # also when later rows have been kept
        found = kept(spark, defined).windows(ALL)
        assert set(values(found)) == {"AA", "BB", "DD"} and found.notes == (note,)


@pytest.mark.long
def test_of_a_topic_that_was_made_anew_only_the_new_rows_count(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(Sent(row("AA", 1)), Sent(row("BB", 2)))
    defined = of(kafka.servers, name)
    kept(spark, defined)
    kafka.delete_topic(name)
    kafka.create_topic(name, 1, {})
    produce(spark, kafka.servers, name, [Sent(row("CC", 3))])
    assert set(values(opened(spark, defined).windows(ALL))) == {"CC"}
    assert set(values(kept(spark, defined).windows(ALL))) == {"CC"}
    assert stored(spark, defined) == [(0, 0)]


def test_two_runs_that_keep_rows_at_the_same_time_keep_each_once(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(*(Sent(at("AA", hour, hour)) for hour in range(3)))
    defined = of(kafka.servers, name)
    one, other = opened(spark, defined), opened(spark, defined)
    one.keep()
    other.keep()  # has opened the topic before the first one kept its rows
    assert stored(spark, defined) == [(0, 0), (0, 1), (0, 2)]
    produce(spark, kafka.servers, name, [Sent(at("BB", 9, 1))])
    table, calls = table_of(spark, defined), []

    def slower(now: Kept) -> Addition | None:
        """Sees the table before another run adds the same rows, and commits after it."""
        calls.append(now.coverage.end(0))
        ahead = opened(spark, defined).opened.topic
        assert ahead is not None
        if not ahead.ahead():
            return None
        frame = table.rows(now).limit(1)
        kept(spark, defined)
        return Addition(frame, now.coverage.extended(now.coverage.topic_id, [(0, 3, 4)]))

    assert table.append(slower).coverage.end(0) == 4
    assert calls == [3, 4]
    assert stored(spark, defined) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert list(spark.sql(f"SELECT name FROM {table.table}.refs").toPandas()["name"]) == ["main"]


@pytest.mark.parametrize("is_committed", [False, True])
@pytest.mark.long
def test_a_run_that_is_killed_while_it_keeps_rows_has_kept_all_or_none(
    spark, kafka: KafkaBroker, topic: NewTopic, monkeypatch, is_committed: bool
) -> None:
    name = topic(Sent(row("AA", 1)), Sent(row("BB", 2)))
    defined = of(kafka.servers, name)
    move = EmittedTable._move

    def killed(self: EmittedTable, *arguments: Any) -> bool:
        if is_committed:
            move(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EmittedTable, "_move", killed)
        patch.setattr(EmittedTable, "_drop", lambda *_: None)  # a killed process does not clean up
        with pytest.raises(KeyboardInterrupt):
            kept(spark, defined)
    expected = {"AA": (1, 1, False), "BB": (2, 1, False)}
    assert values(opened(spark, defined).windows(ALL)) == expected
    assert len(stored(spark, defined)) == (2 if is_committed else 0)
    assert values(kept(spark, defined).windows(ALL)) == expected
    assert stored(spark, defined) == [(0, 0), (0, 1)]


def test_a_run_that_fails_while_it_keeps_rows_leaves_none(spark, kafka: KafkaBroker, topic: NewTopic) -> None:
    name = topic(Sent(row("AA", 1)))
    defined = of(kafka.servers, name)
    kept(spark, defined)
    produce(spark, kafka.servers, name, [Sent(row("BB", 2))])
    rows = opened(spark, defined)
    kafka.delete_records(name, 0, before=2)  # between the look at the topic and the reading
    with pytest.raises(RewindowError, match="vanished while they were read"):
        rows.keep()
    assert stored(spark, defined) == [(0, 0)]
    assert table_of(spark, defined).kept().coverage.end(0) == 1


@pytest.mark.long
def test_a_definition_that_places_rows_otherwise_reads_the_topic_again_and_maintenance_forgets_the_others(
    spark, kafka: KafkaBroker, topic: NewTopic
) -> None:
    name = topic(Sent(row("AA", 1)))
    before, after = (
        of(kafka.servers, name),
        of(kafka.servers, name, window={**WINDOW, "inclusive_end": "0 s", "unit": "us"}),
    )
    kept(spark, before)
    found = kept(spark, after).windows(ALL)
    assert [r["window_start"] for r in found.rows.collect()] == [NOON // 1000]
    assert set(values(kept(spark, before).windows(ALL))) == {"AA"}
    assert stored(spark, before) == [(0, 0), (0, 0)]
    table = Tables.of(after).emitted
    mine = table_of(spark, after).placing
    assert forget_others(spark, table, [mine]) == 1
    assert stored(spark, after) == [(0, 0)]
    assert forget_others(spark, table, [mine]) == 0
    assert set(values(kept(spark, before).windows(ALL))) == {"AA"}


def test_coverage_joins_what_adjoins_and_knows_what_lies_between() -> None:
    coverage = Coverage().extended("t", [(0, 2, 5), (1, 0, 0)]).extended("t", [(0, 5, 7)]).extended("t", [(0, 9, 10)])
    assert coverage.ranges == {0: ((2, 7), (9, 10))}
    assert coverage.holes(0, 12) == [(0, 2), (7, 9), (10, 12)]
    assert coverage.holes(1, 0) == [] and coverage.end(1) == 0
    assert Coverage.model_validate_json(coverage.model_dump_json()) == coverage
