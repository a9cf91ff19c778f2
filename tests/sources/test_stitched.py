"""Hive or Iceberg for the past, Kafka for the recent: a real metastore and a real broker."""

# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import RewindowError
from spark_jobs.operations.archive import archive
from spark_jobs.runs.planning.plan import make_plan, plan_from_json, planned_records, read_planned
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import good
from spark_jobs.spark.gateway import query_execution
from tests.kafka import Sent, produce
from tests.sampling import sample
from tests.sources.conftest import BASE

pytestmark = pytest.mark.usefixtures("hive_metastore")

_NUMBERS = itertools.count()
PARTITIONS, RECORDS = 3, 120
OF_THE_RUN = ("run_id", "revision", "cause", "as_of", "valid_from", "valid_to")


@pytest.fixture(scope="module")
def log(spark, kafka: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, DataFrame]]:
    """A topic of some out-of-order records, and what it holds, with the broker's own times."""
    name = f"stitch_{next(_NUMBERS)}"
    kafka.create_topic(name, PARTITIONS, APPEND_TIME)
    numbers = random.Random(11)
    for _ in range(4):  # several batches: several append times
        sent = []
        for _ in range(RECORDS // 4):
            time = BASE + numbers.randrange(4 * 3_600_000)
            value = json.dumps({"t": time, "n": numbers.randrange(100), "timestamp": "of the payload"})
            sent.append(Sent(value, numbers.randrange(PARTITIONS), key=f"k{numbers.randrange(4)}"))
        produce(spark, kafka.servers, name, sent)
    frame = spark.read.format("kafka").option("kafka.bootstrap.servers", kafka.servers).option("subscribe", name).load()
    path = tmp_path_factory.mktemp("log") / "log"
    frame.select("partition", "offset", "timestamp", "key", "value").write.parquet(str(path))
    rows = spark.read.parquet(str(path)).cache()
    yield name, rows
    rows.unpersist()


@pytest.fixture
def table(spark, tmp_path: Path) -> Callable[[DataFrame], str]:
    """Makes a Hive table of these rows."""

    def make(rows: DataFrame) -> str:
        return hive_table(spark, rows, tmp_path / str(next(_NUMBERS)))

    return make


def hive_table(spark, rows: DataFrame, path: Path) -> str:
    name = f"default.past_{next(_NUMBERS)}"
    rows.coalesce(1).write.parquet(str(path))
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema)
    spark.sql(f"CREATE EXTERNAL TABLE {name} ({columns}) STORED AS PARQUET LOCATION '{path}'")
    return name


def iceberg_table(spark, rows: DataFrame) -> str:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.stitch_past")
    name = f"rewindow.stitch_past.past_{next(_NUMBERS)}"
    rows.coalesce(1).writeTo(name).using("iceberg").create()
    return name


def below(rows: DataFrame, ends: dict[int, int]) -> DataFrame:
    """The records below these end offsets."""
    return rows.where(" OR ".join(f"(`partition` = {p} AND `offset` < {end})" for p, end in ends.items()) or "false")


def definition(history: dict[str, Any], **sections: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "stitch",
            "history": history,
            "value": {"format": "json", "schema": "t BIGINT, n BIGINT, timestamp STRING"},
            "keys": {"k": "key"},
            "event_time": {"expression": "t", "unit": "ms"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": "20 min", "partitions": [0, 1, 2]},
            "window": {"type": "tumbling", "size": "1 h"},
            "aggregates": {"records": "count(*)", "total": "sum(n)"},
            "output": {"namespace": "stitch"},
            **sections,
        }
    )


def stitched(kafka: KafkaBroker, topic: str, table: str, columns: dict | None = None, **recent: Any) -> dict[str, Any]:
    past = {"table": table, "columns": columns or {}}
    return {"kind": "stitched", "past": past, "recent": {"servers": kafka.servers, "topic": topic, **recent}}


def of_hive(table: str) -> dict[str, Any]:
    position = {"partition": "partition", "offset": "offset", "arrival": "timestamp"}
    return {"kind": "hive", "table": table, "position": position}


def results(spark, pipeline: Pipeline) -> tuple[list, list]:
    """The windows and the late records that a run publishes."""
    with planned_records(spark, pipeline) as (plan, records):
        done = execute(spark, pipeline, plan, NoProgress(), records=records)
    windows = spark.table(done.tables.windows).drop(*OF_THE_RUN).collect()
    late = spark.table(done.tables.late).drop(*OF_THE_RUN).collect()
    return sorted(windows, key=str), sorted(late, key=str)


def test_a_past_is_read_up_to_its_end_and_the_topic_from_there_on(spark, kafka: KafkaBroker, log, table) -> None:
    topic, rows = log
    pipeline = definition(stitched(kafka, topic, table(below(rows, {0: 10, 1: 5}))))
    plan = make_plan(spark, pipeline)
    assert [part.start for part in plan.topic.ranges] == [10, 5, 0]
    assert plan.fidelity == "log_order" and plan.records == RECORDS
    again = plan_from_json(plan.to_json())
    frame = read_planned(spark, pipeline, again)
    assert "Exchange" not in query_execution(frame).executedPlan().toString()
    places = [(row.rw_partition, row.rw_offset) for row in good(frame).collect()]
    assert len(places) == len(set(places)) == RECORDS


@pytest.fixture(scope="module")
def alone(spark, kafka: KafkaBroker, log) -> tuple[list, list]:
    """What the topic alone gives."""
    found = results(spark, definition({"kind": "kafka", "servers": kafka.servers, "topic": log[0]}))
    assert found[1], "the example has late records"
    return found


@pytest.mark.long
def test_the_past_alone_gives_the_same_tables(spark, kafka: KafkaBroker, log, table, alone) -> None:
    hive = definition(of_hive(table(log[1])), value={"format": "json", "column": "value",
                      "schema": "t BIGINT, n BIGINT, timestamp STRING"}, keys={"k": "CAST(key AS STRING)"})  # fmt: skip
    assert results(spark, hive) == alone


_SPLITS = st.fixed_dictionaries({}, optional={p: st.integers(0, RECORDS // PARTITIONS) for p in range(PARTITIONS)})


@settings(max_examples=sample(2, 20))
@given(ends=_SPLITS, is_decoded=st.booleans(), make=st.sampled_from(["hive", "iceberg"]))
def test_any_split_gives_the_same_tables(
    spark, kafka: KafkaBroker, log, alone, tmp_path_factory, ends: dict[int, int], is_decoded: bool, make: str
) -> None:
    topic, rows = log
    past = below(rows, ends)
    columns = {}
    if is_decoded:
        fields = "from_json(CAST(value AS STRING), 't BIGINT, n BIGINT, timestamp STRING')"
        past = past.selectExpr("partition", "offset", "timestamp", "CAST(key AS STRING) AS name", f"{fields}.t AS t",
                               f"CAST({fields}.n AS STRING) AS amount", f"{fields}.timestamp AS note")  # fmt: skip
        columns = {"key": "name", "n": "CAST(amount AS BIGINT)", "timestamp": "note"}
    if make == "hive":
        name = hive_table(spark, past, tmp_path_factory.mktemp("past") / "t")
    else:
        name = iceberg_table(spark, past)
    assert results(spark, definition(stitched(kafka, topic, name, columns))) == alone


@pytest.mark.long
def test_the_snapshot_of_the_past_is_pinned_and_nothing_is_archived_into_it(spark, kafka: KafkaBroker, log) -> None:
    topic, rows = log
    name = iceberg_table(spark, below(rows, {0: 10, 1: 5}))
    pipeline = definition(stitched(kafka, topic, name))
    plan = plan_from_json(make_plan(spark, pipeline).to_json())
    assert plan.snapshot is not None and f"Iceberg table {name}, snapshot" in plan.source
    below(rows, {2: 3}).coalesce(1).writeTo(name).append()
    assert read_planned(spark, pipeline, plan).count() == RECORDS
    with pytest.raises(RewindowError, match="was not created by `rewindow archive`"):
        archive(spark, pipeline)


def refusal(spark, pipeline: Pipeline) -> str:
    with pytest.raises(RewindowError) as refused:
        make_plan(spark, pipeline)
    return str(refused.value)


def test_a_hole_between_the_two_is_refused_with_its_offsets(spark, kafka: KafkaBroker, log, table) -> None:
    _, rows = log
    name = f"hole_{next(_NUMBERS)}"
    kafka.create_topic(name, 1, APPEND_TIME)
    produce(spark, kafka.servers, name, [Sent(json.dumps({"t": BASE + n, "n": n})) for n in range(10)])
    kafka.delete_records(name, 0, before=6)
    past = table(rows.where("partition = 0 AND offset < 4"))
    watermark = {"generator": "bounded_out_of_orderness", "bound": "20 min"}
    said = refusal(spark, definition(stitched(kafka, name, past), watermark=watermark))
    assert "offsets 4 to 5 of partition 0 are missing: the table ends before offset 4, the topic begins at 6" in said
    accepted = definition(stitched(kafka, name, past, accept=["holes"]), name=name, watermark=watermark)
    plan = make_plan(spark, accepted)
    assert plan.records == 8 and "accept: holes" in plan.fidelity_reasons[0]


def test_a_topic_that_ends_before_its_past_is_refused(spark, kafka: KafkaBroker, log, table) -> None:
    name = f"short_{next(_NUMBERS)}"
    kafka.create_topic(name, PARTITIONS, APPEND_TIME)
    said = refusal(spark, definition(stitched(kafka, name, table(below(log[1], {0: 3})))))
    assert "the table holds partition 0 up to offset 2, and the topic ends at 0" in said


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": "name"}, "`n` is STRING in"),
        ({"n": "nam"}, "there is no column `nam`"),
        ({"zzz": "name"}, "is no field of value.schema, nor `value`, `key` or `headers`"),
        ({"key": "1"}, "`key` is INT in"),
    ],
)
def test_sides_that_do_not_fit_are_refused(spark, kafka: KafkaBroker, log, table, columns: dict, message: str) -> None:
    past = log[1].selectExpr("partition", "offset", "timestamp", "key AS name", "1L AS t", "2L AS n", "'' AS note")
    past = past.selectExpr("partition", "offset", "timestamp", "CAST(name AS STRING) AS name", "t", "n", "note")
    mapped = {"timestamp": "note", **columns}
    assert message in refusal(spark, definition(stitched(kafka, log[0], table(past), mapped)))
