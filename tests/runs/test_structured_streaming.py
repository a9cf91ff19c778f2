"""Runs of a real Structured Streaming query on a real topic, replayed by the query's own checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.comparison.compare import compare_planned, run_compare
from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.archive import archived
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.kafka import Sent, produce
from tests.runs.live_query import (
    SCHEMA,
    START,
    STEPS,
    WINDOWS,
    LiveQuery,
    as_rows,
    backfilled,
    defined,
    live_section,
    sent,
    topic_stream,
)
from tests.runs.small_nights import tables_of
from tests.sampling import first_of


def topic_query(
    spark: SparkSession,
    servers: str,
    topic: str,
    folder: Path,
    mode: str,
    window: str,
    *,
    ids: tuple[str, ...] = (),
    delay: str = "10 seconds",
) -> LiveQuery:
    return LiveQuery([topic_stream(spark, servers, topic, delay)], folder, mode, window, ids=ids)


def over_topic(query: LiveQuery, servers: str, topic: str, name: str, window: dict, **more: object) -> Pipeline:
    history = {"kind": "kafka", "servers": servers, "topic": topic}
    return defined(query, history, "json", name, window, **more)


COMPARED_WHOLE = "a full run: the live job's sessions are compared as a whole"


@pytest.mark.long
@pytest.mark.parametrize(
    ("mode", "window"), first_of([("append", "tumbling"), ("append", "session"), ("update", "tumbling")])
)
def test_what_a_query_emitted_is_what_its_checkpoint_gives(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path, mode: str, window: str
) -> None:
    topic = f"streaming_{mode}_{window}"
    kafka.create_topic(topic, 2, APPEND_TIME)
    live = topic_query(spark, kafka.servers, topic, tmp_path, mode, window)

    def sending(step: list[tuple[int, str, int]]) -> Callable[[], None]:
        return lambda: produce(spark, kafka.servers, topic, sent(step))

    live.run([sending(step) for step in STEPS[:3]])
    live.run([sending(step) for step in STEPS[3:5]])  # a start of the same query again

    name = f"of_{mode}_{window}"
    pipeline = over_topic(live, kafka.servers, topic, name, WINDOWS[window], live=live_section(live))
    last = {(row["k"], row["s"], row["e"]): row for row in live.emitted()}
    found, late, fidelity = backfilled(spark, pipeline)
    assert found == as_rows(list(last.values()))
    assert late > 0
    assert fidelity == "recorded"
    if mode == "append":
        verdicts = run_compare(spark, pipeline, NoProgress(), limit=100).counts
        assert {name for name, count in verdicts.items() if count} <= {"match", "late_arrivals", "not_closed"}
        assert sum(verdicts.values()) > 0

    # What lies in the topic and in no batch yet changes nothing; a night takes it up when a batch has read it.
    produce(spark, kafka.servers, topic, sent(STEPS[5]))
    assert backfilled(spark, pipeline)[0] == found
    live.run([lambda: None])
    result = reconcile(spark, pipeline, NoProgress())
    assert result.note == (COMPARED_WHOLE if window == "session" else "")
    assert (result.continued_from is None) == (window == "session")
    last = {(row["k"], row["s"], row["e"]): row for row in live.emitted()}
    rows = spark.table(result.tables.windows).where("pane IS NOT NULL").collect()
    assert {(row["k"], row["n"], row["total"]) for row in rows} == {
        (r[0], *r[3:]) for r in as_rows(list(last.values()))
    }


TWICE: list[list[tuple[int, str, int]]] = [
    [(0, "a", 5), (0, "a", 30), (0, "a", 5), (1, "b", 20)],
    [(1, "b", 20), (0, "a", 30), (0, "a", 70)],
    [(0, "b", 10), (1, "a", 90), (0, "a", 70), (1, "b", 20)],  # the watermark is at 60: 10 and 20 are late
    [(1, "b", 118), (0, "a", 70), (1, "b", 118)],
    [(1, "a", 90), (0, "b", 200), (0, "b", 200)],
    [(0, "b", 200), (1, "b", 118)],
]
"""Records by step as in STEPS; the same key and time are copies of one event."""


@pytest.mark.long
def test_a_query_that_drops_duplicates_is_replayed_with_the_delays_that_it_had(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    topic = "streaming_twice"
    kafka.create_topic(topic, 2, APPEND_TIME)

    def started(delay: str) -> LiveQuery:
        return topic_query(spark, kafka.servers, topic, tmp_path, "append", "tumbling", ids=("k", "v"), delay=delay)

    def sending(step: list[tuple[int, str, int]]) -> Callable[[], None]:
        return lambda: produce(spark, kafka.servers, topic, sent(step))

    live = started("10 seconds")
    live.run([sending(step) for step in TWICE[:3]])
    first_of_second = max(int(file.name) for file in (live.checkpoint / "offsets").iterdir() if file.name.isdigit()) + 1
    live = started("1 minute")
    live.run([sending(step) for step in TWICE[3:]])

    deduplicate = {
        "by": ["k", "v"],
        "delays": [{"first_batch": 0, "delay": "10 s"}, {"first_batch": first_of_second, "delay": "1 min"}],
    }
    pipeline = over_topic(
        live, kafka.servers, topic, "of_twice", WINDOWS["tumbling"], live=live_section(live), deduplicate=deduplicate
    )
    with planned_records(spark, pipeline) as (plan, records):
        result = execute(spark, pipeline, plan, NoProgress(), records=records)
    windows = spark.table(result.tables.windows).collect()
    emitted = {(row["k"], row["s"], row["n"], row["total"]) for row in live.emitted()}
    assert {
        (row["k"], int(row["window_start"].timestamp() * 1000), row["n"], row["total"])
        for row in windows
        if row["pane"] is not None
    } == emitted
    assert emitted
    counts, read = result.counts, sum(map(len, TWICE))
    assert counts.records_read == read
    dropped = spark.table(result.tables.late).count()
    assert counts.records_duplicate > 5 and dropped == 1
    assert counts.pairs_on_time + counts.pairs_dropped + counts.records_duplicate == read
    complete = {row["n__complete"] for row in windows if row["k"] == "b"}
    assert complete >= {2}, "the late event 10 counts in the complete values, once; its copies never"
    verdicts = run_compare(spark, pipeline, NoProgress(), limit=100).counts
    assert {name for name, count in verdicts.items() if count} <= {"match", "late_arrivals", "not_closed"}


@pytest.mark.long
def test_two_topics_as_one_stream_are_what_the_query_made_of_both(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    delays = {"streaming_orders": "10 seconds", "streaming_returns": "25 seconds"}
    for topic in delays:
        kafka.create_topic(topic, 2, APPEND_TIME)
    streams = [topic_stream(spark, kafka.servers, topic, delay) for topic, delay in delays.items()]
    live = LiveQuery(streams, tmp_path, "append", "tumbling")

    def sending(number: int) -> Callable[[], None]:
        topic = list(delays)[number % 2]
        return lambda: produce(spark, kafka.servers, topic, sent(STEPS[number]))

    def union(name: str, **watermark: str) -> Pipeline:
        of = [
            {
                "name": topic.removeprefix("streaming_"),
                "history": {"kind": "kafka", "servers": kafka.servers, "topic": topic},
                "value": {"format": "json", "schema": SCHEMA},
                "keys": {"k": "k"},
                "event_time": {"expression": "ts", "unit": "ms"},
                "watermark": {"delay": delay},
            }
            for topic, delay in delays.items()
        ]
        return Pipeline.model_validate(
            {
                "name": name,
                "history": {"kind": "union", "of": of},
                "engine": "spark",
                "watermark": {"checkpoint": str(live.checkpoint), **watermark},
                "window": WINDOWS["tumbling"],
                "aggregates": {"n": "count(*)", "total": "sum(v)"},
                "live": live_section(live),
                "output": {"namespace": name},
            }
        )

    nightly = union("union_nights")
    live.run([sending(number) for number in range(4)])
    assert reconcile(spark, nightly, NoProgress()).note.startswith("a full run")
    late = [Sent(json.dumps({"k": "a", "ts": START + 5_000, "v": 5}))]
    live.run([sending(4), sending(5), partial(produce, spark, kafka.servers, "streaming_orders", late)])
    assert "a full run" not in reconcile(spark, nightly, NoProgress()).note
    pipeline = union("of_union")
    found, dropped, fidelity = backfilled(spark, pipeline)
    assert found == as_rows(live.emitted()) and found
    assert (dropped, fidelity) == (1, "recorded")
    assert tables_of(spark, nightly) == tables_of(spark, pipeline)
    verdicts = run_compare(spark, pipeline, NoProgress(), limit=100).counts
    assert {name for name, count in verdicts.items() if count} <= {"match", "late_arrivals", "not_closed"}

    lost = union("of_lost_union", gaps="approximate", trigger="200 ms")
    (live.checkpoint / "offsets/0").unlink()
    with pytest.raises(
        DefinitionError, match="append times of several topics do not say what a batch had read of each"
    ):
        make_plan(spark, lost)


@pytest.mark.long
def test_batches_that_nobody_has_kept_are_refused_or_placed_by_append_times(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic("streaming_lost", 2, APPEND_TIME)
    live = topic_query(spark, kafka.servers, "streaming_lost", tmp_path, "append", "tumbling")
    steps = [partial(produce, spark, kafka.servers, "streaming_lost", sent(step)) for step in STEPS[:3]]
    live.run(steps)
    kept, lost = (
        over_topic(live, kafka.servers, "streaming_lost", name, WINDOWS["tumbling"]) for name in ("of_kept", "of_lost")
    )
    before = backfilled(spark, kept)
    assert before[0]
    for part in ("offsets", "commits"):
        (live.checkpoint / part / "0").unlink()
    with pytest.raises(HistoryError, match="no longer has the batches 0: which records"):
        backfilled(spark, lost)
    assert len(make_plan(spark, kept).partitions) == 2, "a run has kept them"
    assert archived(spark, kept) == f"0 files of the checkpoint kept in {Tables.of(kept).checkpoint}", "each once"

    for part in ("offsets", "commits"):
        (live.checkpoint / part / "2").unlink()
    watermark = {"delay": "10 seconds", "checkpoint": str(live.checkpoint), "gaps": "approximate", "trigger": "200 ms"}
    guessed = over_topic(
        live, kafka.servers, "streaming_lost", "of_guessed", WINDOWS["tumbling"],
        watermark=watermark, live=live_section(live),
    )  # fmt: skip
    with planned_records(spark, guessed) as (plan, records):
        assert plan.fidelity == "approximate"
        said = "batches of the query are missing until "
        assert [reason.startswith(said) for reason in plan.fidelity_reasons] == [True, True]
        report = compare_planned(spark, guessed, plan, NoProgress(), records=records)
    assert {name for name, count in report.counts.items() if count} <= {"match", "late_arrivals", "not_closed"}
    assert report.counts["match"] + report.counts["late_arrivals"] == len(before[0])
    assert report.fidelity == "log_order"

    # Without any checkpoint each batch is a guess: near to what the query made.
    watermark = {"delay": "10 seconds", "gaps": "approximate", "trigger": "200 ms"}
    unknown = over_topic(
        live, kafka.servers, "streaming_lost", "of_unknown", WINDOWS["tumbling"],
        watermark=watermark, live=live_section(live),
    )  # fmt: skip
    with planned_records(spark, unknown) as (plan, records):
        assert plan.fidelity == "approximate" and len(plan.fidelity_reasons) == 1
        assert plan.records == sum(map(len, STEPS[:3]))
        found = execute(spark, unknown, plan, NoProgress(), records=records)
        report = compare_planned(spark, unknown, plan, NoProgress(), records=records)
    assert found.counts.pairs_on_time + found.counts.pairs_dropped == plan.records
    assert {name for name, count in report.counts.items() if count} <= {"match", "late_arrivals", "not_closed"}
    assert report.counts["match"] + report.counts["late_arrivals"] == len(before[0])

    metadata = live.checkpoint / "metadata"
    metadata.write_text('{"id":"00000000-0000-0000-0000-000000000000"}')
    with pytest.raises(HistoryError, match=r"another query .* deleted and begun anew"):
        backfilled(spark, kept)
