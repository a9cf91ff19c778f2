"""What the engine asks of Spark: no Python worker, no needless shuffle or sort on the hot path."""

from __future__ import annotations

import itertools

import pytest

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import Ascending, BoundedOutOfOrderness, NoWatermarks, Punctuated
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import CumulativeWindows, SlidingWindows, TumblingWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.inversion import first_reached
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.spark.gateway import jvm, query_execution
from tests.sampling import first_of

RECORDS = (
    "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT, rw_marker BOOLEAN, k STRING, v BIGINT"
)
WINDOWS = [TumblingWindows(1000), SlidingWindows(3000, 1000), CumulativeWindows(4000, 1000)]
GENERATORS = [BoundedOutOfOrderness(300), Ascending(), Punctuated(0), NoWatermarks()]
LATENESS = [0, 1500, MAX_TIMESTAMP]


def plan_of(frame) -> str:
    return query_execution(frame).executedPlan().toString()


@pytest.fixture(scope="module")
def records(spark, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("records") / "records")
    rows = [(i % 2, i // 2, i * 100, i * 90, i % 5 == 0, "ab"[i % 3 == 0], i) for i in range(60)]
    spark.createDataFrame(rows, RECORDS).write.parquet(folder)
    return spark.read.parquet(folder)


@pytest.mark.parametrize(
    ("windows", "generator", "per_event", "lateness"),
    first_of(list(itertools.product(WINDOWS, GENERATORS, [True, False], LATENESS))[::5], 5),
)
def test_windows_are_replayed_set_by_set_without_python(records, windows, generator, per_event, lateness) -> None:
    strategy = WatermarkStrategy(generator, (0, 1), ((0, 1),), per_event=per_event, interval=0 if per_event else 200)
    spec = ReplaySpec(FLINK, strategy, windows, lateness, ("k",), {"n": "count(*)", "s": "sum(v)"})
    with Replay(History(records, TimeRange(0, 5400), 5900), spec) as replay:
        assert strategy.is_invertible
        plans = [plan_of(replay.windows(TimeRange(-4000, 6000))), plan_of(replay.timeline.rows(records.sparkSession))]
        plans.append(plan_of(replay.late(TimeRange(-4000, 6000))))
    for plan in plans:
        assert "Python" not in plan
        assert "Arrow" not in plan.replace("ArrowConverters", "")


def test_faithful_and_complete_come_out_of_one_hash_aggregation_with_one_shuffle(records) -> None:
    strategy = WatermarkStrategy(BoundedOutOfOrderness(300), (0, 1), ((0, 1),))
    spec = ReplaySpec(FLINK, strategy, TumblingWindows(1000), 0, ("k",), {"n": "count(*)", "s": "sum(v)"})
    with Replay(History(records, TimeRange(0, 5400), 5900), spec) as replay:
        plan = plan_of(replay.windows(TimeRange(-4000, 6000)))
    assert plan.count("Exchange") == 1
    assert plan.count("Scan parquet") == 1
    assert "Sort" not in plan


def test_a_record_is_looked_up_once_and_its_partition_and_offset_only_at_equal_arrivals(spark, records) -> None:
    strategy = WatermarkStrategy(BoundedOutOfOrderness(300), (0, 1), ((0, 1),))
    spec = ReplaySpec(FLINK, strategy, TumblingWindows(1000), 0, ("k",), {"n": "count(*)", "s": "sum(v)"})
    debug = getattr(jvm(spark).org.apache.spark.sql.execution.debug, "package$")
    with Replay(History(records, TimeRange(0, 5400), 5900), spec) as replay:
        replay.timeline  # noqa: B018 - made before, as it would be with adaptive execution
        spark.conf.set("spark.sql.adaptive.enabled", "false")  # which shows no code before it has run
        try:
            plan = query_execution(replay.windows(TimeRange(-4000, 6000))).executedPlan()
            stages = getattr(debug, "MODULE$").codegenString(plan).split("== Subtree")
        finally:
            spark.conf.unset("spark.sql.adaptive.enabled")
    scan = next(stage for stage in stages if "FileScan" in stage)
    loop = scan[scan.index("void hashAgg_doAggregateWithKeys") :]
    assert "project_subExpr" not in loop  # what is evaluated before the comparison, for every record
    assert "getArray" not in loop
    before_tie = loop[: loop.index("GenericInternalRow")]
    assert before_tie.count("numElements()") == 1


def test_the_timeline_reads_positions_and_event_times_only(records) -> None:
    from spark_jobs.replay.timeline import exact_thresholds

    strategy = WatermarkStrategy(BoundedOutOfOrderness(300), (0, 1), ((0, 1),))
    plan = plan_of(first_reached(records, strategy, exact_thresholds()))
    assert "ReadSchema: struct<rw_partition:int,rw_offset:bigint,rw_arrival:bigint,rw_event_time:bigint>" in plan
    assert "Sort" not in plan
