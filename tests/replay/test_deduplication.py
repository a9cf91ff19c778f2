"""Duplicates before the windows on Spark: as the recorded operators of Flink, and whatever the chunks are."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, supplier_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.deduplication import Deduplication, FirstByProcessingTime, FirstByRowTime
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.spec import ReplaySpec
from tests.golden.deduplication_cases import CASES, DeduplicationCase, run_sequential
from tests.sampling import sample

SIZE = 20
SCHEMA = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_id STRING, rw_event_time BIGINT"
FEW = [path for path in CASES if path.stem in ("row_time_150_6", "keyed_state_read_60_0")]


def deduplication_of(case: DeduplicationCase) -> Deduplication:
    within = case.config["within_ms"]
    if case.config["kind"] == "row_time":
        return FirstByRowTime(("rw_id",), within)
    return FirstByProcessingTime(("rw_id",), within, case.config["update_type"] == "on_read_and_write")


def replay_of(spark: SparkSession, case: DeduplicationCase) -> Replay:
    kind = GeneratorKind(case.config["watermark"]["kind"])
    lag = case.config["watermark"]["lag_ms"]
    partitions = tuple(range(case.config["partitions"]))
    strategy = WatermarkStrategy(supplier_of(kind, lag=lag, bound=lag), partitions, (partitions,))
    spec = ReplaySpec(
        FLINK,
        strategy,
        TumblingWindows(SIZE, 0),
        0,
        (),
        {"n": "count(*)", "total": "sum(rw_event_time)"},
        flush=False,
        deduplication=deduplication_of(case),
    )
    times = [record[4] for record in case.records]
    records: DataFrame = spark.createDataFrame(case.records, SCHEMA)
    return Replay(History(records, TimeRange(min(times), max(times) + 1), case.records[-1][2]), spec)


def windows_in(replay: Replay, *spans: TimeRange) -> set[tuple]:
    return {
        (row["window_start"], row["n"], row["total"], row["n__complete"], row["records_dropped"], row["state"])
        for span in spans
        for row in replay.windows(span).collect()
    }


@pytest.mark.parametrize("path", sample(FEW, CASES), ids=lambda path: path.stem)
def test_on_spark_the_same_records_enter_the_windows_in_whatever_chunks(path: Path, quick_spark) -> None:
    case = DeduplicationCase.load(path)
    given, late = run_sequential(case)
    place = {(record[0], record[1]): i for i, record in enumerate(case.records)}
    ids = [record[3] for record in case.records]
    taken = {record for record, _ in given}
    with replay_of(quick_spark, case) as replay:
        entering = {place[row[0], row[1]] for row in replay.entering.select("rw_partition", "rw_offset").collect()}
        assert entering == taken
        # Of an id of which nothing goes on the first record, which was late, is in the complete values.
        never = {ids.index(id) for id in set(ids) - {ids[i] for i in taken}}
        assert never <= late
        assert replay.duplicates == len(case.records) - len(taken) - len(never)

        high = max(record[4] for record in case.records) // SIZE * SIZE + SIZE
        whole = windows_in(replay, TimeRange(0, high))
        middle = high // SIZE // 2 * SIZE
        assert windows_in(replay, TimeRange(0, middle), TimeRange(middle, high)) == whole
        counted: dict[int, Counter] = defaultdict(Counter)
        watermarks = [None, *case.watermarks()]
        for i in taken | never:
            start = case.records[i][4] // SIZE * SIZE
            before = watermarks[i]
            in_time = i in taken and (before is None or before < start + SIZE - 1)
            counted[start].update(n=in_time, total=case.records[i][4] * in_time, complete=1, dropped=not in_time)
        last = watermarks[-1]
        expected = set()
        for start, sums in counted.items():
            is_out = last is not None and last >= start + SIZE - 1 and sums["n"]
            state = "closed" if is_out else "open" if sums["n"] else "all_late"
            values = (sums["n"], sums["total"]) if is_out else (None, None)
            expected.add((start, *values, sums["complete"], sums["dropped"], state))
        assert whole == expected
        assert replay.late(TimeRange(0, high)).count() == sum(sums["dropped"] for sums in counted.values())
