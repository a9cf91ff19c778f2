"""Whole runs from a real broker: what Flink emitted for the flights, and a broker that goes away in the middle."""

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.demo.kafka_sample import END_OF_INPUT, LIVE_TOPIC, load_emitted
from spark_jobs.demo.run import FIRST_NIGHT, compare, emitted_by_flink, faithful_windows
from spark_jobs.errors import HistoryError, SourceError
from spark_jobs.runs.life.store import DEFINITION, RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, plan_from_json, planned_records
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import open_history
from tests.conftest import KAFKA_PASSWORD
from tests.kafka import Sent, produce

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "tests" / "data" / "flights"
OF_THE_RUN = ("run_id", "revision", "cause", "as_of", "valid_from", "valid_to")


@pytest.mark.long
def test_the_live_jobs_windows_of_the_sample_come_in_two_parts(kafka: KafkaBroker) -> None:
    emitted = pq.read_table(SAMPLE / "emitted_hourly.parquet", columns=["watermark"]).column("watermark").to_pylist()
    before_the_end = sum(watermark < END_OF_INPUT for watermark in emitted)
    first = load_emitted(kafka, before=FIRST_NIGHT)
    assert 0 < first < before_the_end
    assert load_emitted(kafka) == 0, "the topic has them, and perhaps corrections"
    assert first + load_emitted(kafka, since=FIRST_NIGHT) == before_the_end
    assert sum(kafka.end_offsets(LIVE_TOPIC).values()) == before_the_end


@pytest.mark.long
def test_the_flights_in_a_topic_give_what_flink_emitted(spark, kafka: KafkaBroker) -> None:
    pipeline = load_pipeline(ROOT / "dags" / "pipelines" / "departures_kafka.yaml", {"REWINDOW_KAFKA": kafka.servers})
    with planned_records(spark, pipeline) as (plan, records):
        result = execute(spark, pipeline, plan, NoProgress(), records=records)
    assert (plan.fidelity, plan.fidelity_reasons, plan.warnings) == ("log_order", (), ())
    assert compare(faithful_windows(spark, result.tables), emitted_by_flink(spark, SAMPLE)).equal
    late = spark.read.parquet(str(SAMPLE / "late_hourly.parquet")).select("partition", "offset")
    assert compare(spark.table(result.tables.late).select("partition", "offset"), late).equal


@pytest.fixture
def own_broker(spark, tmp_path: Path):
    """A broker of the test's own, with a small topic, that the test may end."""
    broker = KafkaBroker(tmp_path / "kafka", heap="256m").start()
    try:
        broker.create_topic("t", 1, APPEND_TIME)
        produce(spark, broker.servers, "t", [Sent(f"{1_357_034_400_000 + n}") for n in range(50)])
        yield broker
    finally:
        broker.kill()


def of_broker(broker: KafkaBroker, read_timeout: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "trouble",
            "history": {"kind": "kafka", "servers": broker.servers, "topic": "t", "read_timeout": read_timeout},
            "value": {"format": "text"},
            "event_time": {"expression": "value", "unit": "ms"},
            "watermark": {"generator": "ascending"},
            "window": {"type": "tumbling", "size": "10 ms"},
            "aggregates": {"n": "count(*)"},
            "output": {"namespace": "trouble"},
        }
    )


def test_a_broker_that_goes_away_ends_the_run_and_a_rerun_gives_the_same_tables(spark, own_broker: KafkaBroker) -> None:
    pipeline = of_broker(own_broker, "4 s")
    plan = make_plan(spark, pipeline)

    def run() -> list:
        with planned_records(spark, pipeline, plan_from_json(plan.to_json())) as (again, records):
            result = execute(spark, pipeline, again, NoProgress(), records=records)
        return sorted(spark.table(result.tables.windows).drop(*OF_THE_RUN).collect())

    first = run()
    with planned_records(spark, pipeline, plan) as (again, records):
        own_broker.kill()
        with pytest.raises(SourceError, match="the brokers have stopped answering") as refused:
            execute(spark, pipeline, again, NoProgress(), records=records)
    assert "\n" not in str(refused.value) and "the tables are as they were" in str(refused.value)
    assert sorted(spark.table("rewindow.trouble.trouble").drop(*OF_THE_RUN).collect()) == first
    own_broker.start()
    assert run() == first


@pytest.mark.long
def test_a_broker_that_comes_back_in_time_is_waited_for(spark, own_broker: KafkaBroker) -> None:
    pipeline = of_broker(own_broker, "1 min")
    opened = open_history(spark, pipeline)
    own_broker.kill()
    back = threading.Timer(2, own_broker.start)
    back.start()
    try:
        assert opened.frame.count() == 50
    finally:
        back.join()


@pytest.mark.long
def test_a_broker_that_stands_still_for_a_while_is_waited_for(spark, own_broker: KafkaBroker) -> None:
    pipeline = of_broker(own_broker, "60 s")
    plan = make_plan(spark, pipeline)
    os.kill(own_broker.pid, signal.SIGSTOP)
    again = threading.Timer(4, os.kill, (own_broker.pid, signal.SIGCONT))
    again.start()
    try:
        with planned_records(spark, pipeline, plan) as (planned, records):
            result = execute(spark, pipeline, planned, NoProgress(), records=records)
    finally:
        again.join()
    assert result.counts.pairs_on_time + result.counts.pairs_dropped == 50


@pytest.mark.parametrize("few", [pytest.param(0, id="long"), pytest.param(100, id="short", marks=pytest.mark.long)])
def test_each_night_reads_a_topic_from_where_the_last_one_ended(
    spark, kafka: KafkaBroker, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`few`: how many records of a topic are kept in memory for all of a night."""
    monkeypatch.setattr("spark_jobs.sources.spool.FEW_RECORDS", few)
    topic = f"nights_{few}"
    kafka.create_topic(topic, 1, APPEND_TIME)
    defined = {
        "history": {"kind": "kafka", "servers": kafka.servers, "topic": topic},
        "value": {"format": "text"},
        "event_time": {"expression": "value", "unit": "ms"},
        "watermark": {"generator": "bounded_out_of_orderness", "bound": "20 ms"},
        "window": {"type": "tumbling", "size": "10 ms"},
        "aggregates": {"n": "count(*)"},
        "output": {"namespace": topic},
    }
    nightly, full = (Pipeline.model_validate({"name": name} | defined) for name in ("nightly", "full"))
    early, late = ([Sent(f"{1_357_034_400_000 + n}") for n in times] for times in (range(100), (3, 95, 180, 41, 200)))
    produce(spark, kafka.servers, topic, early)
    assert reconcile(spark, nightly, NoProgress()).continued_from is None
    produce(spark, kafka.servers, topic, late)
    second = reconcile(spark, nightly, NoProgress())
    assert second.continued_from is not None and second.counts.records_read == len(late)
    with planned_records(spark, full) as (plan, records):
        execute(spark, full, plan, NoProgress(), records=records)
    tables = [spark.table(f"rewindow.{topic}.{p.name}").drop(*OF_THE_RUN).collect() for p in (nightly, full)]
    assert sorted(tables[0]) == sorted(tables[1])
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 1, APPEND_TIME)
    produce(spark, kafka.servers, topic, early)
    with pytest.raises(HistoryError, match="the topic was created again"):
        reconcile(spark, nightly, NoProgress())
    with pytest.raises(HistoryError, match="the topic was created again"):
        make_plan(spark, nightly)
    with planned_records(spark, nightly, another_log=True) as (plan, records):
        execute(spark, nightly, plan, NoProgress(), records=records)
    windows = spark.table(f"rewindow.{topic}.{nightly.name}")
    assert sum(row[0] for row in windows.select("n__complete").collect()) == len(early)


def test_a_password_is_in_no_table_no_document_and_no_log(
    spark, kafka: KafkaBroker, rewindow_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    monkeypatch.setenv("KAFKA_JAAS", f'{module} required username="alice" password="{KAFKA_PASSWORD}";')
    pipeline = Pipeline.model_validate(
        {
            "name": "behind_a_login",
            "history": {
                "kind": "kafka", "servers": kafka.sasl_servers, "topic": "flights", "end": {0: 50, 1: 50, 2: 50},
                "options": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
                "secrets": {"sasl.jaas.config": "KAFKA_JAAS"},
            },
            "value": {"format": "json", "schema": "sched_dep STRING"},
            "event_time": {"expression": "sched_dep", "unit": "iso"},
            "watermark": {"generator": "ascending"},
            "window": {"type": "tumbling", "size": "1 h"},
            "aggregates": {"n": "count(*)"},
            "output": {"namespace": "behind_a_login"},
        }
    )  # fmt: skip
    with planned_records(spark, pipeline) as (plan, records):
        result = execute(spark, pipeline, plan, NoProgress(), records=records)
    assert result.counts.pairs_on_time + result.counts.pairs_dropped == 150
    folder = RunStore.configured().folder(result.run_id)
    assert folder.read_text(Plan.FILE) and folder.read_text(DEFINITION) is not None
    for name in spark.sql("SHOW TABLES IN rewindow.behind_a_login").collect():
        rows = spark.table(f"rewindow.behind_a_login.{name['tableName']}").collect()
        assert KAFKA_PASSWORD not in repr(rows)
    files = [file for file in rewindow_home.rglob("*") if file.is_file()]
    assert any(file.suffix == ".log" for file in files) and any(result.run_id in str(file) for file in files)
    assert [file for file in files if KAFKA_PASSWORD.encode() in file.read_bytes()] == []


def of_two_topics(broker: KafkaBroker, name: str) -> Pipeline:
    of = [
        {
            "name": topic,
            "history": {"kind": "kafka", "servers": broker.servers, "topic": f"union_{topic}"},
            "value": {"format": "text"},
            "event_time": {"expression": "value", "unit": "ms"},
            "watermark": watermark,
        }
        for topic, watermark in (
            ("orders", {"generator": "bounded_out_of_orderness", "bound": "20 ms"}),
            ("returns", {"generator": "ascending"}),
        )
    ]
    return Pipeline.model_validate(
        {
            "name": name,
            "history": {"kind": "union", "of": of},
            "window": {"type": "tumbling", "size": "10 ms"},
            "aggregates": {"n": "count(*)", "last": "max(value)"},
            "end_of_input": "freeze",
            "output": {"namespace": "two_topics"},
        }
    )


@pytest.mark.long
def test_two_topics_are_one_stream_night_after_night(spark, kafka: KafkaBroker) -> None:
    at = 1_357_034_400_000
    for topic, partitions in (("union_orders", 2), ("union_returns", 1)):
        kafka.create_topic(topic, partitions, APPEND_TIME)
    nights, whole = of_two_topics(kafka, "by_night"), of_two_topics(kafka, "as_a_whole")
    for first in (0, 40):
        orders = [Sent(f"{at + n - (30 if n % 7 == 0 else 0)}", n % 2) for n in range(first, first + 40)]
        produce(spark, kafka.servers, "union_orders", orders)
        # What comes from the other topic lags, and holds all windows open.
        produce(spark, kafka.servers, "union_returns", [Sent(f"{at + n}") for n in range(first, first + 10)])
        result = reconcile(spark, nights, NoProgress())
    assert result.continued_from is not None, result.note
    with planned_records(spark, whole) as (plan, records):
        execute(spark, whole, plan, NoProgress(), records=records)
    assert plan.topic is None and [pins.topic.topic for pins in plan.inputs] == ["union_orders", "union_returns"]
    assert plan.as_of == {0: 40, 1: 40, 10_000: 20} and plan.fidelity == "log_order"
    tables = [spark.table(f"rewindow.two_topics.{name}").drop(*OF_THE_RUN) for name in ("by_night", "as_a_whole")]
    assert sorted(map(repr, tables[0].collect())) == sorted(map(repr, tables[1].collect()))
    closed = tables[0].where("n IS NOT NULL").selectExpr("unix_millis(window_end) e").collect()
    assert max(row["e"] for row in closed) == at + 40, "the returns have come to 49 ms"
    produce(spark, kafka.servers, "union_returns", [Sent(f"{at + 100}")])
    plan_again = plan_from_json(plan.to_json())
    with planned_records(spark, whole, plan_again) as (_, again):
        assert again.count() == 100
