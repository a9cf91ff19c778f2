"""Runs, nights and comparisons of Kafka Streams applications, whose topic is one of a real broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.eventtime.kafka_streams.task import Row, Task
from spark_jobs.replay.kafka_streams.rules import application_of
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java
from tests.kafka import Sent, produce
from tests.runs.accounts import check_account
from tests.sampling import first_of

START = 1_357_034_400_000
TOPIC = "streams_input"
APPLICATIONS: dict[str, dict[str, Any]] = {
    "tumbling_suppress": {"window": {"type": "tumbling", "size": "10 s"}, "emission": "on_close"},
    "hopping_each_update": {"window": {"type": "hopping", "size": "10 s", "advance": "4 s"}, "emission": "each_update"},
    "session_suppress": {"window": {"type": "session", "gap": "2 s"}, "emission": "on_close"},
    "sliding_each_update": {"window": {"type": "sliding", "time_difference": "3 s"}, "emission": "each_update"},
    "tumbling_restarted": {
        "window": {"type": "tumbling", "size": "10 s"},
        "emission": "on_close",
        "watermark": {"grace": "3 s", "restarts": [{"offsets": {0: 40, 1: 30}}]},
    },
}


@dataclass(frozen=True, order=True)
class Read:
    """One record of the input topic."""

    partition: int
    offset: int
    key: str
    time: int
    value: int


def random_records(seed: int, count: int) -> list[Read]:
    """Of two partitions, each with keys of its own; some come late."""
    rng, offsets, now, records = Random(seed), [0, 0], START, []
    for _ in range(count):
        now += rng.choice([0, 100, 700, 1500])
        key = rng.choice("abcd")
        partition = ord(key) % 2
        late = rng.choice([0, 0, 0, 500, 3_000, 9_000, 20_000])
        records.append(Read(partition, offsets[partition], key, max(START, now - late), rng.randint(1, 99)))
        offsets[partition] += 1
    return records


def defined(name: str, servers: str, **more: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": name,
            "engine": "kafka_streams",
            "history": {"kind": "kafka", "servers": servers, "topic": TOPIC},
            "value": {"format": "json", "schema": "k STRING, ts BIGINT, v BIGINT"},
            "keys": {"k": "k"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "watermark": {"grace": "3 s"},
            "aggregates": {"n": "count(*)", "total": "sum(v)"},
            "output": {"namespace": "streams"},
            **APPLICATIONS[name],
            **more,
        }
    )


def application_rows(pipeline: Pipeline, records: list[Read]) -> list[tuple[Read, Row[Read]]]:
    """Every row of the application, by the sequential model, which gives what the real library gave."""
    application = application_of(pipeline)
    rows = []
    for partition in (0, 1):
        task: Task[Read] = Task(application.topology)
        restarts = list(application.restarts.get(partition, ()))
        for record in (r for r in records if r.partition == partition):
            while restarts and restarts[0].is_before(record.offset, 0):
                task.restart(restarts.pop(0).state)
            processed = task.process(record.key.encode(), record.time, record, clock=record.time)
            rows += [(record, row) for row in processed.rows]
    return rows


def last_values(pipeline: Pipeline, records: list[Read]) -> dict[tuple[str, int, int], tuple[int, int]]:
    """By key, start and end: count and sum of the row that came out last."""
    last = {}
    for _, row in application_rows(pipeline, records):
        identity = (row.key.decode(), row.window.start, row.window.end)
        if row.aggregate is None:
            last.pop(identity, None)
        else:
            held = row.aggregate.contents.elements()
            last[identity] = (len(held), sum(r.value for r in held))
    return last


def send(spark, servers: str, records: list[Read]) -> None:
    sent = [Sent(json.dumps({"k": r.key, "ts": r.time, "v": r.value}), r.partition) for r in records]
    produce(spark, servers, TOPIC, sent)


@pytest.fixture(scope="module")
def first_day() -> list[Read]:
    return random_records(7, 120)


@pytest.fixture(scope="module")
def servers(spark, kafka: KafkaBroker, first_day: list[Read]) -> Iterator[str]:
    kafka.create_topic(TOPIC, 2, APPEND_TIME)
    send(spark, kafka.servers, first_day)
    yield kafka.servers


def backfilled(spark, pipeline: Pipeline) -> Any:
    with planned_records(spark, pipeline) as (plan, records):
        return execute(spark, pipeline, plan, NoProgress(), records=records)


def published(spark, result) -> dict[tuple[str, int, int], tuple[int, int]]:
    found = spark.sql(
        f"SELECT k, unix_millis(window_start), unix_millis(window_end), n, total FROM {result.tables.windows} "
        "WHERE valid_to IS NULL AND n IS NOT NULL"
    )
    return {(row[0], row[1], row[2]): (row[3], row[4]) for row in found.collect()}


@pytest.mark.parametrize("name", first_of(APPLICATIONS))
def test_a_backfill_publishes_the_rows_that_the_application_gave_last(spark, servers, first_day, name: str) -> None:
    pipeline = defined(name, servers)
    result = backfilled(spark, pipeline)
    assert published(spark, result) == last_values(pipeline, first_day)
    check_account(result)


NEVER_RESTARTED_SO = {"grace": "3 s", "restarts": [{"offsets": {0: 56, 1: 56}}]}


def compared(spark, kafka: KafkaBroker, topic: str, rows: list[dict[str, Any]], name: str, **more: Any) -> Verdicts:
    """What a comparison finds where these rows are in the output topic."""
    kafka.create_topic(topic, 1, APPEND_TIME)
    produce(spark, kafka.servers, topic, [Sent(json.dumps(row)) for row in rows])
    value = {"format": "json", "schema": "k STRING, s BIGINT, e BIGINT, n BIGINT"}
    source = {"kind": "kafka", "servers": kafka.servers, "topic": topic, "value": value}
    live = {"source": source, "window": {"start": "s", "end": "e", "unit": "ms"}, "values": {"n": "n"}}
    return run_compare(spark, defined(name, kafka.servers, live=live, **more), NoProgress())


@pytest.mark.parametrize(
    ("name", "changed"), first_of([("tumbling_suppress", 1), ("tumbling_suppress", 0), ("session_suppress", 0)])
)
def test_a_comparison_finds_each_row_of_the_application_and_one_that_was_changed(
    spark, kafka: KafkaBroker, servers: str, first_day: list[Read], name: str, changed: int
) -> None:
    rows = emitted_rows(defined(name, servers), first_day)
    rows[0]["n"] += changed
    report = compared(spark, kafka, f"streams_{name}_{changed}", rows, name)
    windows = len({(row["k"], row["s"], row["e"]) for row in rows})
    verdicts = report.counts
    # A complete session that came out in other pieces counts as late arrivals, too.
    assert verdicts.get("match", 0) + verdicts.get("late_arrivals", 0) >= windows - changed
    assert verdicts.get("mismatch", 0) == changed
    assert not {"missing", "extra", "timing", "undecided"} & {name for name, count in verdicts.items() if count}


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "said", "was", "label"),
    first_of(
        [
            ("tumbling_suppress", {"watermark": NEVER_RESTARTED_SO}, {}, "matches_with_restarts"),
            ("hopping_each_update", {}, {"emission": "on_close"}, "matches_with_emission_on_close"),
        ]
    ),
)
def test_a_comparison_names_the_field_that_the_application_s_rows_contradict(
    spark,
    kafka: KafkaBroker,
    servers: str,
    first_day: list[Read],
    name: str,
    said: dict[str, Any],
    was: dict[str, Any],
    label: str,
) -> None:
    rows = emitted_rows(defined(name, servers, **was), first_day)
    report = compared(spark, kafka, f"streams_not_{name}", rows, name, **said)
    labels = [report.labels.get(one, {}) for one in ("mismatch", "missing", "extra") if report.counts.get(one)]
    assert labels
    assert {name for found in labels for name in found} == {label}


@pytest.mark.long
@pytest.mark.parametrize("name", ["tumbling_suppress", "session_suppress"])
def test_a_comparison_with_the_rows_of_a_real_application_finds_no_difference(
    spark, kafka: KafkaBroker, tmp_path: Path, name: str
) -> None:
    records, topic, rows = random_records(11, 400), f"real_{name}", f"real_{name}_rows"
    for made, partitions in ((topic, 2), (rows, 1)):
        kafka.create_topic(made, partitions, APPEND_TIME)
    sent = [Sent(json.dumps({"k": r.key, "ts": r.time, "v": r.value}), r.partition, r.key) for r in records]
    produce(spark, kafka.servers, topic, sent)
    jars = fetch_jars("org.apache.kafka:kafka-streams-test-utils:4.1.1", "Kafka Streams")
    source = Path(__file__).parent / "application" / "Application.java"
    command = [str(find_java().executable), "-Xmx512m", "-cp", f"{jars}/*", str(source)]
    given = [kafka.servers, topic, rows, name.partition("_")[0], str(len(records)), str(tmp_path / "state")]
    done = subprocess.run([*command, *given], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]

    value = {"format": "json", "schema": "k STRING, s BIGINT, e BIGINT, n BIGINT"}
    live = {
        "source": {"kind": "kafka", "servers": kafka.servers, "topic": rows, "value": value},
        "window": {"start": "s", "end": "e", "unit": "ms"},
        "values": {"n": "n"},
    }
    history = {"kind": "kafka", "servers": kafka.servers, "topic": topic}
    own = {"namespace": "streams_real"}  # the tables of another topic are other tests'
    report = run_compare(spark, defined(name, kafka.servers, history=history, live=live, output=own), NoProgress())
    found = {verdict for verdict, count in report.counts.items() if count}
    assert {"match", "late_arrivals"} <= found <= {"match", "late_arrivals", "not_closed", "all_late"}
    assert report.counts["match"] > 20


def emitted_rows(pipeline: Pipeline, records: list[Read]) -> list[dict[str, Any]]:
    """The rows as the application writes them to its topic."""
    return [
        {
            "k": row.key.decode(),
            "s": row.window.start,
            "e": row.window.end,
            "n": len(row.aggregate.contents.elements()),
        }
        for _, row in application_rows(pipeline, records)
        if row.aggregate is not None
    ]


@pytest.mark.long
def test_a_night_gives_the_tables_of_a_backfill_from_scratch(spark, servers: str, first_day: list[Read]) -> None:
    name = "tumbling_suppress"
    nightly = defined(name, servers, output={"namespace": "streams_nights"})
    result = reconcile(spark, nightly, NoProgress())
    assert published(spark, result) == last_values(nightly, first_day)
    later = [replace(r, time=r.time + 60_000, offset=1_000 + n) for n, r in enumerate(random_records(8, 60))]
    send(spark, servers, later)
    result = reconcile(spark, nightly, NoProgress())
    assert result.continued_from is not None
    assert published(spark, result) == last_values(nightly, [*first_day, *later])
