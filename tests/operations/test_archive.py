"""The archive keeps a topic's records with their positions, exactly once."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportOptionalSubscript=false
from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.commits import fast_forward
from spark_jobs.operations.archive import archive
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.sources.lake.archive_table import archived_in
from spark_jobs.submit import application
from tests.kafka import Sent, produce
from tests.sources.conftest import BASE

_NUMBERS = itertools.count()


def events(count: int, partition: int = 0) -> list[Sent]:
    return [Sent(json.dumps({"t": BASE + n}), partition, key=f"k{n}", headers={"h": str(n)}) for n in range(count)]


def definition(kafka: KafkaBroker, topic: str, table: str) -> dict[str, Any]:
    return {
        "name": "p",
        "history": {
            "kind": "stitched",
            "past": {"table": table},
            "recent": {"servers": kafka.servers, "topic": topic},
        },
        "value": {"format": "json", "schema": "t BIGINT"},
        "keys": {"h": "headers['h']"},
        "event_time": {"expression": "t", "unit": "ms"},
        "watermark": {"generator": "ascending"},
        "window": {"type": "tumbling", "size": "1 h"},
        "aggregates": {"n": "count(*)"},
    }


@pytest.fixture
def pipeline(kafka: KafkaBroker) -> Pipeline:
    number = next(_NUMBERS)
    topic = f"archived_{number}"
    kafka.create_topic(topic, 2, APPEND_TIME)
    return Pipeline.model_validate(definition(kafka, topic, f"rewindow.archive_{number}.log"))


def places(spark, pipeline: Pipeline) -> list[tuple[int, int]]:
    rows = spark.table(pipeline.history.past.table).collect()
    return sorted((row.partition, row.offset) for row in rows)


def test_only_what_is_new_is_appended_and_positions_are_kept(
    spark, kafka: KafkaBroker, pipeline: Pipeline, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pipeline.history.recent.topic
    produce(spark, kafka.servers, topic, events(3) + events(2, partition=1))
    first = archive(spark, pipeline)
    assert (first.batch, first.records) == (0, 5)
    assert archive(spark, pipeline).batch is None
    produce(spark, kafka.servers, topic, events(2, partition=1))
    assert archive(spark, pipeline, as_of={0: 3, 1: 3}).records == 1
    assert archive(spark, pipeline, dry_run=True).ranges[0].start == 3
    (tmp_path / "p.yaml").write_text(json.dumps(definition(kafka, topic, pipeline.history.past.table)))
    monkeypatch.setattr("sys.argv", ["main", "--archive", str(tmp_path / "p.yaml")])
    application.main()
    assert capsys.readouterr().out == f"1 records appended to {pipeline.history.past.table} as batch 2\n"
    assert places(spark, pipeline) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
    live = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("subscribe", topic)
    live = live.option("includeHeaders", "true").load()
    columns = ["partition", "offset", "timestamp", "timestampType", "key", "value"]
    kept = spark.table(pipeline.history.past.table).withColumnRenamed("timestamp_type", "timestampType")
    assert live.select(columns).exceptAll(kept.select(columns)).isEmpty()
    plan = make_plan(spark, pipeline)
    assert (plan.records, [part.start for part in plan.topic.ranges]) == (7, [3, 4])


def test_offsets_that_hold_no_records_are_archived_too(spark, kafka: KafkaBroker, pipeline: Pipeline) -> None:
    """Else the end of a transaction would look like a hole when retention has gone past it."""
    from tests.kafka import Producer

    topic = pipeline.history.recent.topic
    producer = Producer(spark, kafka.servers, f"archive-{topic}")
    producer.client.beginTransaction()
    producer.send(topic, events(2))
    producer.client.commitTransaction()
    producer.close()
    assert archive(spark, pipeline).records == 2
    kafka.delete_records(topic, 0, before=3)
    produce(spark, kafka.servers, topic, events(1))
    assert archive(spark, pipeline).records == 1
    assert places(spark, pipeline) == [(0, 0), (0, 1), (0, 3)]


def test_a_topic_made_again_is_not_appended_to_the_old_one(spark, kafka: KafkaBroker, pipeline: Pipeline) -> None:
    topic = pipeline.history.recent.topic
    produce(spark, kafka.servers, topic, events(1))
    archive(spark, pipeline)
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2, APPEND_TIME)
    produce(spark, kafka.servers, topic, events(5))
    with pytest.raises(RewindowError, match="deleted and created again since it was archived"):
        archive(spark, pipeline)
    with pytest.raises(RewindowError, match="deleted and created again since it was archived"):
        make_plan(spark, pipeline)


def test_a_table_that_is_no_archive_is_refused(spark, pipeline: Pipeline) -> None:
    table = pipeline.history.past.table
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {table} (x INT) USING iceberg")
    with pytest.raises(RewindowError, match="was not created by `rewindow archive`"):
        archive(spark, pipeline)


def test_a_hive_table_is_no_archive(spark, kafka: KafkaBroker) -> None:
    defined = Pipeline.model_validate(definition(kafka, "any", "raw.log"))
    assert not defined.is_archived
    with pytest.raises(RewindowError, match=r"this is a Hive table.*table: lake.raw.flights"):
        archive(spark, defined, dry_run=True)


@pytest.mark.long
def test_an_iceberg_archive_has_each_record_once_whatever_happens_in_between(
    spark, kafka: KafkaBroker, pipeline: Pipeline, monkeypatch
) -> None:
    topic, table = pipeline.history.recent.topic, pipeline.history.past.table
    produce(spark, kafka.servers, topic, events(3) + events(2, partition=1))

    assert [(one.partition, one.end) for one in archive(spark, pipeline, dry_run=True).ranges] == [(0, 3), (1, 2)]
    assert not spark.catalog.tableExists(table)

    def killed(*_: object) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("spark_jobs.operations.archive.fast_forward", killed)
        archive(spark, pipeline)
    assert places(spark, pipeline) == []
    first = archive(spark, pipeline)
    assert (first.batch, first.records) == (0, 5)
    # Each file has the offsets of one partition that arrived on one day.
    bounds = "readable_metrics.`{0}`.lower_bound, readable_metrics.`{0}`.upper_bound"
    files = spark.sql(f"SELECT {bounds.format('partition')}, {bounds.format('offset')} FROM {table}.files").collect()
    assert sorted(map(tuple, files)) == [(0, 0, 0, 2), (1, 1, 0, 1)]
    assert spark.sql(f"SHOW CREATE TABLE {table}").first()[0].count("days(timestamp)") == 1
    assert archive(spark, pipeline).batch is None
    produce(spark, kafka.servers, topic, events(2, partition=1))
    # Two runs at once: the slower one is refused.
    move = fast_forward

    def after_another(*arguments) -> bool:
        patched.setattr("spark_jobs.operations.archive.fast_forward", move)
        assert archive(spark, pipeline).records == 2
        return move(*arguments)

    with monkeypatch.context() as patched, pytest.raises(RewindowError, match="Another archive run may have been"):
        patched.setattr("spark_jobs.operations.archive.fast_forward", after_another)
        archive(spark, pipeline)
    assert places(spark, pipeline) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]
    assert archived_in(spark, table).ends == {0: 3, 1: 4}
    # Somebody compacts the table, and expires the snapshots that have the offsets.
    spark.sql(f"CALL rewindow.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    now = "TIMESTAMP '2999-01-01'"
    spark.sql(f"CALL rewindow.system.expire_snapshots(table => '{table}', older_than => {now}, retain_last => 1)")
    assert archived_in(spark, table).ends == {0: 3, 1: 4}
    produce(spark, kafka.servers, topic, events(1))
    third = archive(spark, pipeline)
    assert (third.batch, third.records) == (2, 1)
    assert set(spark.sql(f"SELECT name FROM {table}.refs").toPandas()["name"]) == {"main"}
    # As a history: stitched, and alone.
    plan = make_plan(spark, pipeline)
    assert (plan.records, [part.start for part in plan.topic.ranges]) == (8, [4, 4])
    content = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
    content["history"] = {"kind": "table", "table": table, "preset": "rewindow_archive"}
    content["value"]["column"] = "value"
    content["keys"] = {"p": "partition"}
    alone = make_plan(spark, Pipeline.model_validate(content))
    assert (alone.records, alone.event_times) == (plan.records, plan.event_times)
