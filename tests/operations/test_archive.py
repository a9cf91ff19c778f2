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
from spark_jobs.operations.archive import archive, migrate
from spark_jobs.runs.plan import make_plan
from spark_jobs.sources.archive_table import ArchiveTable, archived_in
from spark_jobs.submit import application
from tests.kafka import Sent, produce
from tests.processes import start_python
from tests.sources.conftest import BASE

pytestmark = pytest.mark.usefixtures("hive_metastore")

_NUMBERS = itertools.count()


def events(count: int, partition: int = 0) -> list[Sent]:
    return [Sent(json.dumps({"t": BASE + n}), partition, key=f"k{n}", headers={"h": str(n)}) for n in range(count)]


def definition(kafka: KafkaBroker, topic: str, database: str) -> dict[str, Any]:
    return {
        "name": "p",
        "history": {
            "kind": "stitched",
            "past": {"table": f"{database}.log"},
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
def pipeline(spark, kafka: KafkaBroker, tmp_path: Path) -> Pipeline:
    number = next(_NUMBERS)
    topic, database = f"archived_{number}", f"archive_{number}"
    kafka.create_topic(topic, 2, APPEND_TIME)
    spark.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path / 'warehouse'}'")
    return Pipeline.model_validate(definition(kafka, topic, database))


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
    database = pipeline.history.past.table.partition(".")[0]
    (tmp_path / "p.yaml").write_text(json.dumps(definition(kafka, topic, database)))
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


@pytest.mark.long
def test_a_killed_run_leaves_nothing_and_the_next_one_appends_once(
    spark, kafka: KafkaBroker, pipeline: Pipeline, hive_metastore, tmp_path: Path
) -> None:
    topic = pipeline.history.recent.topic
    produce(spark, kafka.servers, topic, events(4))
    killed = start_python(
        """
        import os, signal, sys
        from pathlib import Path
        from spark_jobs.operations import archive
        from spark_jobs.definition import Pipeline
        from spark_jobs.spark.session import spark_session
        from spark_jobs.sources.archive_table import ArchiveTable
        ArchiveTable.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        uri, home, content = sys.argv[1:]
        spark = spark_session("killed", home=Path(home), metastore=uri, master="local[1]")
        archive.archive(spark, Pipeline.model_validate_json(content))
        """,
        hive_metastore.uri, str(tmp_path / "other"), pipeline.model_dump_json(by_alias=True, exclude_none=True),
    )  # fmt: skip
    _, err = killed.communicate(timeout=300)
    assert killed.returncode == -9, err
    table = ArchiveTable.find(spark, pipeline.history.past.table)
    assert table is not None and table.batches == () and places(spark, pipeline) == []
    assert archive(spark, pipeline).records == 4
    assert places(spark, pipeline) == [(0, number) for number in range(4)]
    folders = [folder.name for folder in (tmp_path / "warehouse").rglob("batch=*")]
    assert len(folders) == 1


def test_two_runs_at_once_append_once(spark, kafka: KafkaBroker, pipeline: Pipeline, monkeypatch) -> None:
    produce(spark, kafka.servers, pipeline.history.recent.topic, events(3))
    add = ArchiveTable.add

    def after_another(table: ArchiveTable, batch) -> None:
        monkeypatch.setattr(ArchiveTable, "add", add)
        archive(spark, pipeline)
        add(table, batch)

    monkeypatch.setattr(ArchiveTable, "add", after_another)
    with pytest.raises(RewindowError, match="Another archive run may have been faster"):
        archive(spark, pipeline)
    assert places(spark, pipeline) == [(0, 0), (0, 1), (0, 2)]


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


def test_a_table_of_another_layout_is_refused(spark, pipeline: Pipeline) -> None:
    spark.sql(f"CREATE TABLE {pipeline.history.past.table} (x INT) STORED AS PARQUET")
    with pytest.raises(RewindowError, match="was not created by `rewindow archive`"):
        archive(spark, pipeline)


def into_iceberg(pipeline: Pipeline) -> Pipeline:
    """The pipeline with an Iceberg table in the place of the Hive table."""
    table = "rewindow." + pipeline.history.past.table
    content = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
    content["history"]["past"]["table"] = table
    return Pipeline.model_validate(content)


def columns_of(frame):
    return frame.select("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")


@pytest.mark.long
def test_an_iceberg_archive_has_each_record_once_whatever_happens_in_between(
    spark, kafka: KafkaBroker, pipeline: Pipeline, monkeypatch
) -> None:
    hive, pipeline, topic = pipeline, into_iceberg(pipeline), pipeline.history.recent.topic
    table = pipeline.history.past.table
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
    # The same records as in Hive, and as a history: stitched, and alone.
    archive(spark, hive)
    assert columns_of(spark.table(table)).exceptAll(columns_of(spark.table(hive.history.past.table))).isEmpty()
    plan = make_plan(spark, pipeline)
    assert (plan.records, [part.start for part in plan.topic.ranges]) == (8, [4, 4])
    content = pipeline.model_dump(mode="json", by_alias=True, exclude_none=True)
    content["history"] = {"kind": "table", "table": table, "preset": "rewindow_archive"}
    content["value"]["column"] = "value"
    content["keys"] = {"p": "partition"}
    alone = make_plan(spark, Pipeline.model_validate(content))
    assert (alone.records, alone.event_times) == (plan.records, plan.event_times)


@pytest.mark.long
def test_a_hive_archive_moves_into_an_iceberg_table_once(spark, kafka: KafkaBroker, pipeline: Pipeline) -> None:
    hive, pipeline, topic = pipeline, into_iceberg(pipeline), pipeline.history.recent.topic
    source = hive.history.past.table
    with pytest.raises(RewindowError, match=r"there is no such archive.*under `history\.past\.metastore`"):
        migrate(spark, pipeline, source)
    with pytest.raises(RewindowError, match=r"this is a Hive table.*table: lake.raw.flights"):
        migrate(spark, hive, source)
    produce(spark, kafka.servers, topic, events(3))
    archive(spark, hive)
    produce(spark, kafka.servers, topic, events(2, partition=1))
    archive(spark, hive)
    assert migrate(spark, pipeline, source, dry_run=True).batch is None
    assert not spark.catalog.tableExists(pipeline.history.past.table)
    moved = migrate(spark, pipeline, source)
    assert (moved.batch, moved.records) == (0, 5)
    assert migrate(spark, pipeline, source).batch is None
    produce(spark, kafka.servers, topic, events(1))
    assert archive(spark, pipeline).records == 1
    assert places(spark, pipeline) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    archive(spark, hive)
    produce(spark, kafka.servers, topic, events(1))
    archive(spark, hive)
    with pytest.raises(RewindowError, match="has records already, and not those of partition 0 up to offset 5"):
        migrate(spark, pipeline, source)
