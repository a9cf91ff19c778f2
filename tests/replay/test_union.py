"""The timeline of several inputs with a watermark each, and the same one from every record in position order."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness, Punctuated
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.flink.making import TimelineMaker
from spark_jobs.replay.flink.simulation import simulate
from spark_jobs.replay.flink.thinned import is_thinnable
from spark_jobs.replay.grid import RegularGrid
from spark_jobs.replay.timeline import grid_thresholds
from spark_jobs.spark.cached import CachedFrames
from tests.replay.closes import COLUMNS, check, points
from tests.replay.histories import BEGIN, History, LogRecord, random_history, random_union, with_discoveries
from tests.sampling import sample, seeds


def over_one_maximum(history: History) -> History:
    """The history whose generator is one for all inputs, where there is one."""
    strategy, delays = history.strategy.over_one_maximum()
    records = [r._replace(timestamp=r.timestamp - delays.get(r.partition, 0)) for r in history.records]
    return replace(history, strategy=strategy, records=records)


@settings(max_examples=sample(40, 3_000))
@given(seed=st.integers(0, 2**40))
def test_aggregates_of_inputs_that_differ_in_idleness_or_delay_close_windows_where_all_records_do(seed: int) -> None:
    history = over_one_maximum(random_union(random.Random(seed)))
    if is_thinnable(history.strategy):
        check(history)


@pytest.mark.parametrize("seed", seeds(2, 120))
def test_spark_makes_the_timeline_of_a_union_that_one_task_makes_of_every_record(
    quick_spark: SparkSession, seed: int
) -> None:
    draw = random.Random(f"union {seed}")
    assert_as_every_record(quick_spark, random_union(draw, density=6), draw)


@pytest.mark.parametrize("seed", seeds(1, 120))
def test_a_partition_that_is_discovered_later_counts_from_then_on_in_a_timeline_by_inversion(
    quick_spark: SparkSession, seed: int
) -> None:
    draw = random.Random(f"discovered {seed}")
    history = random_history(draw, density=6) if seed % 2 else random_union(draw, density=6)
    plain = {"generator": BoundedOutOfOrderness(draw.choice([0, 2_000])), "idleness": None}
    inputs = [replace(one, **plain) for one in history.strategy.inputs]
    own = tuple(subtask for subtask in history.strategy.subtasks if subtask)  # as a definition has them
    whole = WatermarkStrategy.of_union(inputs) if inputs else replace(history.strategy, subtasks=own, **plain)
    history = replace(history, strategy=whole)  # a minimum of maxima: all else is made record by record
    found = with_discoveries(history, draw)
    while not found.strategy.discovered:
        found = with_discoveries(history, draw)
    assert_as_every_record(quick_spark, found, draw)


def assert_as_every_record(quick_spark: SparkSession, history: History, draw: random.Random) -> None:
    """The timeline, also continued from a cut, is the one that one task makes of every record."""
    rows = [(r.arrival, r.partition, r.offset, r.timestamp, r.marker) for r in history.records]
    records = quick_spark.createDataFrame(rows, COLUMNS)
    times = [r.timestamp for r in history.records]
    span = TimeRange(min(times, default=0), max(times, default=0) + 1)
    thresholds = grid_thresholds(RegularGrid(history.grid), 0)
    with CachedFrames() as cache:
        strategy = history.strategy
        expected = simulate(records, strategy, thresholds, processing_time_end=history.until, cache=cache)
        made = TimelineMaker(strategy, span, cache).timeline(records, thresholds, history.until)
        steps, every = made.steps, expected.steps
        assert steps is not None and every is not None
        x = points(history, -(2**62))
        assert steps.at(x).tolist() == every.at(x).tolist()
        assert made.flushes == expected.flushes
        if not rows:
            return
        cut = history.records[history.cut(draw) - 1].arrival
        maker = TimelineMaker(strategy, span, cache)
        first = maker.timeline(records.where(f"rw_arrival <= {cut}"), thresholds, cut)
        news = records.where(f"rw_arrival > {cut}")
        goes_on = TimelineMaker(strategy, span, cache).timeline(news, thresholds, history.until, first.state).steps
        assert goes_on is not None
        later = points(history, max(first.watermark_below, -(2**62)))
        assert goes_on.at(later).tolist() == every.at(later).tolist()


def test_each_input_has_a_deadline_of_its_own_for_its_first_watermark() -> None:
    """An input without markers yet is idle after its own timeout, though another one has a longer one (rule 31)."""
    first = WatermarkStrategy(Punctuated(0), (0,), ((0,),), interval=100, timer_start=BEGIN, idleness=300)
    other = replace(first, partitions=(1,), subtasks=((1,),), idleness=30_000)
    records = [LogRecord(BEGIN + 50 * n, n % 2, n // 2, BEGIN + 50 * n, n % 2 == 1) for n in range(400)]
    check(History(WatermarkStrategy.of_union([first, other]), records, BEGIN + 20_000, 500))
