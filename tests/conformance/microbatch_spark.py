"""Runs a Structured Streaming case through the Spark engine.

What was held at the end is what one more batch with the highest watermark lets out. In complete mode a row comes with
every batch: a record is counted with each batch from its own on, whose number is one more key.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, supplier_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import Batch, BatchKind, BatchLog, OffsetRanges
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import ARRIVAL, DROPPED, PANE
from spark_jobs.replay.deduplication import SparkDeduplication, without
from spark_jobs.replay.engine import FIRED_COLUMNS, History, Replay
from spark_jobs.replay.spark.microbatches import MicroBatches
from spark_jobs.replay.spark.rules import StructuredStreamingRules
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from tests.conformance.microbatch_case import MicroBatchCase
from tests.conformance.microbatch_compare import MicroBatchOutcome, Run, row_of
from tests.sequential.spark import BatchSettings, running_batches

_AS_OF = "as_of_batch"
_INPUT = 1000
"""Partitions of input i are numbered from i * 1000 on."""
_FAR = 2**40
_AGGREGATES = {"n": "count(*)", "members": "collect_list(nth)"}
_FIRED = FIRED_COLUMNS[0]


def run_spark(spark: SparkSession, case: MicroBatchCase) -> MicroBatchOutcome:
    """Run the case through the Spark engine. A batch that ran more than once has the settings of its last run."""
    records = _records(spark, case)
    rules, deduplication = _rules(case)
    complete = case.output_mode is OutputMode.COMPLETE
    keys = (_AS_OF, "key") if complete else ("key",)
    if complete:
        records = rules.placed(records)
        if deduplication is not None:
            records = without(records, deduplication.set_aside(records, None, None))
        records = _with_each_batch(spark, records, rules)
    strategy = WatermarkStrategy(supplier_of(GeneratorKind.NONE), (0,), ((0,),))
    windows = case.windows or case.session_windows
    panes = Panes.LAST if complete else Panes.ALL
    spec = ReplaySpec(
        rules,
        strategy,
        windows,
        0,
        keys,
        _AGGREGATES,
        mode=Mode.FAITHFUL,
        panes=panes,
        flush=False,
        deduplication=None if complete else deduplication,
    )
    times = [record.timestamp for record in case.records if record.timestamp is not None]
    event_times = TimeRange(min(times, default=0), max(times, default=0) + 1)
    span = TimeRange(event_times.start - _FAR, event_times.end + _FAR)
    if case.windows is not None:
        span = case.windows.covering(event_times)
    with Replay(History(records, event_times, 0), spec, exact_positions=True, is_placed=complete) as replay:
        session = replay.sessions(span) if replay.merges else None
        found = replay.windows(span) if session is None else session.windows
        note = "" if session is None or not session.handed_over else f"{session.handed_over} sessions by the model"
        taken = found.where(F.col(PANE).isNotNull()).select(*keys, START, END, "members", _FIRED).collect()
        dropped = 0
        if session is None:
            per_window = found.select(*keys, START, END, DROPPED).distinct()
            dropped = per_window.agg(F.sum(DROPPED)).collect()[0][0] or 0
    return _outcome(case, rules.batches, taken, dropped, note)


def _records(spark: SparkSession, case: MicroBatchCase) -> DataFrame:
    rows = []
    for i, record in enumerate(case.records):
        if not record.passes:
            continue
        gap = None
        if record.session_end is not None and record.timestamp is not None:
            gap = record.session_end - record.timestamp
        place = (record.input * _INPUT + record.partition, record.offset)
        rows.append((*place, 0, record.timestamp, None if record.key is None else str(record.key), record.id, gap, i))
    schema = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT, key STRING, "
    identity = "STRING" if not rows or not isinstance(rows[0][5], int) else "BIGINT"
    return spark.createDataFrame(rows, schema + f"id {identity}, gap BIGINT, nth INT")


def _rules(case: MicroBatchCase) -> tuple[StructuredStreamingRules, SparkDeduplication | None]:
    running = [(b, case.settings(case.start_of(b.number))) for b in running_batches(case.batches)]
    last = running[-1][0]
    if case.output_mode is OutputMode.APPEND:
        end = Batch(last.number + 1, BatchKind.PENDING, last.timestamp + 1, _FAR * 1000, last.watermark)
        running.append((end, BatchSettings()))
    multiple = np.array([settings.allow_multiple for _, settings in running])
    log = BatchLog.of(batch for batch, _ in running)
    batches = MicroBatches.of(log, multiple, _ranges(case), case.ticks_per_ms)
    deduplication = None
    if case.deduplication is not None:
        delays = tuple(
            (time, settings.delay) for time, (_, settings) in zip(batches.times.tolist(), running, strict=True)
        )
        deduplication = SparkDeduplication(case.deduplication, ("id",), delays, batches)
    return StructuredStreamingRules(batches, case.output_mode, running[0][1].merge_locally), deduplication


def _ranges(case: MicroBatchCase) -> dict[int, OffsetRanges]:
    """What the batches have read: of each file one batch, of each partition one range a batch."""
    if case.config["source"] == "file":
        return {
            record.input * _INPUT + record.partition: OffsetRanges.of([0], [1_000_000], [batch])
            for record, batch in zip(case.records, case.batch_of_record, strict=True)
            if batch is not None
        }
    sources = {source: i for i, source in enumerate(case.sources)}
    return {sources[place.source] * _INPUT + place.number: read for place, read in case.batches.ranges.items()}


def _with_each_batch(spark: SparkSession, records: DataFrame, rules: StructuredStreamingRules) -> DataFrame:
    batches = rules.batches
    rows = list(zip(batches.numbers.tolist(), batches.times.tolist(), strict=True))
    later = spark.createDataFrame(rows, f"{_AS_OF} BIGINT, rw_as_of_time BIGINT")
    return records.join(later, F.col("rw_as_of_time") >= F.col(ARRIVAL)).drop("rw_as_of_time")


def _outcome(
    case: MicroBatchCase, batches: MicroBatches, taken: list[Any], dropped: int, note: str
) -> MicroBatchOutcome:
    number_at = dict(zip(batches.times.tolist(), batches.numbers.tolist(), strict=True))
    last = running_batches(case.batches)[-1].number
    rows: dict[Run, list[list[Any]]] = {}
    held: list[list[Any]] = []
    entered: set[tuple[int, int | None, int | None]] = set()
    keys = {str(record.key): record.key for record in case.records if record.key is not None}
    for row in taken:
        batch = row[_AS_OF] if case.output_mode is OutputMode.COMPLETE else number_at[row[_FIRED]]
        found = row_of(case, keys.get(row["key"]), row[START], row[END], row["members"])
        if batch > last:
            held.append(found)
        else:
            rows.setdefault((batch, case.start_of(batch)), []).append(found)
        start, end = (None, None) if case.windows is None else (row[START], row[END])
        entered |= {(i, start, end) for i in row["members"]}
    pairs, ignored = _pairs(case)
    outcome = MicroBatchOutcome(
        rows=rows,
        held=held,
        dropped=[list(pair) for pair in sorted(pairs - entered, key=repr)],
        ignored=ignored,
        unread=[i for i, batch in enumerate(case.batch_of_record) if batch is None],
        note=note,
        details={"records_dropped": dropped},
    )
    again = {
        (run["batch"], run["start"])
        for run in case.expected["batches"]
        if (run["batch"], case.start_of(run["batch"])) in rows
    }
    same = {run: rows[run[0], case.start_of(run[0])] for run in again}
    return replace(outcome, rows={**same, **rows})


def _pairs(case: MicroBatchCase) -> tuple[set[tuple[int, int | None, int | None]], list[int]]:
    """Every (record, window) pair that was read, and the records that are in no window."""
    pairs: set[tuple[int, int | None, int | None]] = set()
    ignored: list[int] = []
    for i, (record, batch) in enumerate(zip(case.records, case.batch_of_record, strict=True)):
        if batch is None:
            continue
        own: list[tuple[int, int | None, int | None]] = []
        if record.passes and record.timestamp is not None:
            if case.windows is not None:
                own = [(i, window.start, window.end) for window in case.windows.assign(record.timestamp)]
            elif record.session_end is not None and record.session_end > record.timestamp:
                own = [(i, None, None)]
        pairs |= set(own)
        if not own:
            ignored.append(i)
    return pairs, ignored
