"""The windows and late records that tasks on Spark give, against the sequential model over random histories."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.kafka_streams.replay import Application, TaskReplay, with_streams_columns
from spark_jobs.replay.kafka_streams.tasks import KEY
from spark_jobs.replay.spec import Mode
from spark_jobs.spark.cached import CachedFrames
from tests.conformance.kstreams_case import StreamsCase, StreamsOutcome
from tests.conformance.kstreams_sequential import run_sequential
from tests.conformance.kstreams_spark import case_records, case_restarts, run_spark
from tests.eventtime.kafka_streams.histories import random_case
from tests.sampling import seeds

EVERYTHING = TimeRange(0, 2**60)


@dataclass(frozen=True)
class Spec:
    """What of a `ReplaySpec` a replay by tasks reads."""

    mode: Mode = Mode.BOTH
    keys: tuple[str, ...] = ("key",)
    aggregates: dict[str, str] = field(
        default_factory=lambda: {"held": "sort_array(collect_list(rw_offset))", "total": "sum(value)"}
    )


def replayed(spark, case: StreamsCase, mode: Mode = Mode.BOTH) -> tuple[list[Any], list[Any]]:
    """The windows and the late records."""
    application = Application(case.topology, case_restarts(case))
    with CachedFrames() as cache:
        replay = TaskReplay(case_records(spark, case), Spec(mode), application, cache)  # type: ignore[arg-type]
        return replay.windows(EVERYTHING).collect(), replay.late(EVERYTHING, EVERYTHING).collect()


def last_rows(case: StreamsCase, outcome: StreamsOutcome) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """By key, start and end: of the row that came out last the sum of the values, and how many records it holds."""
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in outcome.rows:
        identity = (row[2], row[3], row[4])
        if row[6] is not None:
            last[identity] = (row[6], row[7])
        elif case.config["emission"] == "each_update":
            last.pop(identity, None)
    return last


def in_time(case: StreamsCase) -> Counter[tuple[Any, ...]]:
    """How many records each window holds if none is late; of hopping and tumbling windows, by definition."""
    held: Counter[tuple[Any, ...]] = Counter()
    window = case.config["window"]
    advance = window.get("advance", window.get("size"))
    for record in case.records:
        if record.key is None or record.timestamp < 0:
            continue
        for start in range(record.timestamp // advance * advance, -1, -advance):
            if start + window["size"] <= record.timestamp:
                break
            held[record.key, start, start + window["size"]] += 1
    return held


@pytest.mark.parametrize("seed", seeds(3, 200))
def test_the_tasks_give_what_the_sequential_model_gives(quick_spark, seed: int) -> None:
    case = random_case(seed)
    outcome = run_sequential(case)
    windows, late = replayed(quick_spark, case)
    closed = {(w.key, w.window_start, w.window_end): (len(w.held), w.total) for w in windows if w.state == "closed"}
    assert closed == last_rows(case, outcome)
    assert all(w.held is None and w.total is None for w in windows if w.state != "closed")
    assert len({(w.key, w.window_start, w.window_end) for w in windows}) == len(windows)

    skipped: dict[tuple[int, int], list[Any]] = defaultdict(list)
    for number, start, end, *_ in outcome.skipped:
        record = case.records[number]
        skipped[record.partition, record.offset].append((end, start))
    assert {(r.rw_partition, r.rw_offset): (r.windows_missed, r.window_end, r.window_start) for r in late} == {
        record: (len(missed), *max(missed)) for record, missed in skipped.items()
    }
    assert sum(w.records_dropped for w in windows) == len(outcome.skipped)


def test_keys_that_are_a_microsecond_apart_are_two(quick_spark) -> None:
    keys = quick_spark.range(2).select(F.timestamp_micros("id").alias("k"))
    assert with_streams_columns(keys, ("k",)).select(KEY).distinct().count() == 2


def test_every_row_of_a_random_history_comes_out_of_spark_as_of_the_model(quick_spark) -> None:
    for seed in seeds(2, 50):
        seed += 300
        case = random_case(seed)
        spark, model = run_spark(quick_spark, case), run_sequential(case)
        assert (spark.rows, spark.skipped, spark.ignored, spark.waiting) == (
            model.rows,
            model.skipped,
            model.ignored,
            model.waiting,
        ), seed


@pytest.mark.parametrize("kind", ["tumbling", "hopping"])
def test_complete_windows_hold_all_records_whatever_was_late(quick_spark, kind: str) -> None:
    case = next(c for c in map(random_case, range(1000)) if c.config["window"]["kind"] == kind and len(c.records) > 30)
    windows, _ = replayed(quick_spark, case, Mode.COMPLETE)
    assert {(w.key, w.window_start, w.window_end): len(w.held__complete) for w in windows} == in_time(case)


@pytest.mark.parametrize("kind", ["sliding", "session"])
def test_complete_windows_are_those_of_a_log_in_the_order_of_its_times(quick_spark, kind: str) -> None:
    cases = (random_case(seed, restarts=False) for seed in range(1000))
    case = next(c for c in cases if c.config["window"]["kind"] == kind and len(c.records) > 30)
    windows, _ = replayed(quick_spark, case, Mode.COMPLETE)
    records = sorted((r for r in case.records if r.timestamp >= 0), key=lambda r: (r.timestamp, r.partition, r.offset))
    config = {**case.config, "emission": "each_update"}
    in_order = StreamsCase(case.path, {**case.document, "config": config, "records": [list(r) for r in records]})
    assert {(w.key, w.window_start, w.window_end): (len(w.held__complete), w.total__complete) for w in windows} == (
        last_rows(in_order, run_sequential(in_order))
    )


def test_the_condition_of_a_window_is_said(quick_spark) -> None:
    """A window that the store lost, one that waits, one whose records were all late."""
    config = {"partitions": 1, "window": {"kind": "tumbling", "size": 10}, "grace_ms": 0}
    records = [[0, n, 1_000 + n, "a", ts, 1] for n, ts in enumerate([1, 100, 3, 113])]
    for emission, states in {
        "each_update": {0: "closed", 100: "closed", 110: "closed"},
        "suppress_until_window_closes": {0: "closed", 100: "closed", 110: "open"},
        "emit_on_window_close": {0: "not_emitted", 100: "closed", 110: "open"},
    }.items():
        document = {"config": {**config, "emission": emission, "emit_interval_ms": 0}, "records": records}
        windows, late = replayed(quick_spark, StreamsCase(__file__, document))  # type: ignore[arg-type]
        assert {w.window_start: w.state for w in windows} == states
        assert [(w.records_dropped, w.records_on_time) for w in windows if w.window_start == 0] == [(1, 1)]
        assert [(r.rw_offset, r.windows_missed, r.side_output, r.missed_by) for r in late] == [(2, 1, True, 1)]
