"""Twelve records, and what the rules of each engine make of them: the drawing of `docs/engines.md`.

`python -m tests.tools.engine_drawing` writes it. Each engine's own sequential model runs the records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.kafka_streams.task import Task, Topology
from spark_jobs.eventtime.kafka_streams.windows import HoppingWindows
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import Batch, BatchKind
from spark_jobs.eventtime.windows import TumblingWindows
from tests.sequential.flink import LiveJob, Record
from tests.sequential.spark import BatchSettings, Query, ReadRecord, RunningQuery
from tests.tools.drawings import FOLDER, Drawing

_SIZE = 10 * MINUTE
_WAIT = 2 * MINUTE
_BATCH = 3


class Event(NamedTuple):
    """One record; its key has the partition for itself. `time` is in minutes."""

    partition: int
    time: int

    @property
    def key(self) -> str:
        return "ab"[self.partition]

    @property
    def timestamp(self) -> int:
        return self.time * MINUTE


EVENTS = [
    Event(*event)
    for event in [(0, 1), (1, 2), (0, 12), (1, 8), (0, 14), (0, 5), (1, 9), (1, 23), (0, 7), (1, 6), (0, 13), (1, 16)]
]


def dropped_by_flink() -> set[int]:
    """The numbers of the records that are late for a watermark: the minimum over both partitions, less 2 minutes."""
    strategy = WatermarkStrategy(BoundedOutOfOrderness(_WAIT), (0, 1), ((0, 1),))
    records = [Record(e.partition, n, n, e.key, e.timestamp) for n, e in enumerate(EVENTS)]
    return {late.record for late in LiveJob(strategy, TumblingWindows(_SIZE), 0).run(records, flush=False).late}


def dropped_by_kafka_streams() -> set[int]:
    """The numbers of the records that are late for the stream time of their own partition, grace 2 minutes."""
    tasks = [Task[int](Topology(HoppingWindows(_SIZE, _SIZE), _WAIT)) for _ in range(2)]
    results = [tasks[e.partition].process(e.key.encode(), e.timestamp, n, clock=n) for n, e in enumerate(EVENTS)]
    return {n for n, result in enumerate(results) if result.late}


def dropped_by_structured_streaming() -> set[int]:
    """The numbers of the records that are late for the watermark of the micro-batch before, delay 2 minutes."""
    query: RunningQuery[int] = RunningQuery(Query(TumblingWindows(_SIZE), OutputMode.APPEND))
    dropped: set[int] = set()
    before = watermark = 0
    for number, first in enumerate(range(0, len(EVENTS), _BATCH)):
        read = [ReadRecord(e.key, e.timestamp, first + n) for n, e in enumerate(EVENTS[first : first + _BATCH])]
        batch = Batch(number, BatchKind.COMMITTED, number, watermark, before)
        dropped |= {pair.element for pair in query.run(batch, read, BatchSettings()).dropped}
        latest = max(e.timestamp for e in EVENTS[: first + _BATCH])
        before, watermark = watermark, max(watermark, latest - _WAIT)
    return dropped


ENGINES = {
    "Flink": ("both partitions", dropped_by_flink),
    "Kafka Streams": ("own partition", dropped_by_kafka_streams),
    "Structured Streaming": ("batch by batch", dropped_by_structured_streaming),
}


def counts(dropped: Iterable[int]) -> Counter[tuple[str, int]]:
    """By key and start (minutes) how many records each window holds."""
    lost = set(dropped)
    return Counter((e.key, e.time // 10 * 10) for n, e in enumerate(EVENTS) if n not in lost)


def three_engines() -> Drawing:
    drawing = Drawing("Twelve records in the order of their arrival, and which of them each engine drops as late", 400)

    def x(number: int) -> float:
        return 178 + 43 * number

    drawing.text(8, 24, "event time, min", "q")
    drawing.text(8, 44, "partition and key", "q")
    for number, event in enumerate(EVENTS):
        drawing.text(x(number), 24, str(event.time), "h", anchor="middle")
        drawing.text(x(number), 44, f"{event.partition} {event.key}", "q", anchor="middle")
    for row, (name, (by, dropped_by)) in enumerate(ENGINES.items()):
        y = 80 + 46 * row
        dropped = dropped_by()
        drawing.text(8, y, name, "h")
        drawing.text(8, y + 17, by, "q")
        if name == "Structured Streaming":
            for first in range(0, len(EVENTS), _BATCH):
                drawing.box(x(first) - 17, y - 16, 43 * (_BATCH - 1) + 34, 34)
        else:
            drawing.path([(x(0) - 17, y + 1), (665, y + 1)], "g n")
        for number in range(len(EVENTS)):
            drawing.dot(x(number), y + 1, late=number in dropped)
    windows = sorted(counts(()))
    drawing.text(8, 246, "records in window", "q")
    places = [178 + 103 * column for column in range(len(windows))]
    for place, (key, start) in zip(places, windows, strict=True):
        drawing.text(place, 246, f"{key} [{start}, {start + 10})", "q")
    for row, (name, (_, dropped_by)) in enumerate(ENGINES.items()):
        found = counts(dropped_by())
        drawing.text(8, 276 + 28 * row, name, "h")
        for place, window in zip(places, windows, strict=True):
            others = {counts(other())[window] for _, other in ENGINES.values()}
            drawing.text(place, 276 + 28 * row, str(found[window]), "h o" if len(others) > 1 else "")
    drawing.text(8, 370, "Windows of 10 minutes; bound, grace and delay are 2 minutes. A cross: it was dropped.")
    drawing.text(8, 390, "Structured Streaming reads three records a batch: it judges by the batch before.", "q")
    return drawing


DRAWING = FOLDER / "three-engines.svg"

if __name__ == "__main__":
    DRAWING.write_text(three_engines().svg(), encoding="utf-8")
