"""When a partition or a stream is idle, and what that does to the watermark (rules 9 to 14 and 31).

Each column of a drawing is 10 ms of processing time, from 0 on. The timer ticks at every column but the first; a tick
comes before the record of its column. The idleness timeout is 30 ms. Rows `p0`, `p1`: a letter is a record of that
partition. Rows `idle 0`, `idle 1`, `stream`: `I` where the partition or the stream is idle after the column.
"""

from __future__ import annotations

import pytest

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.signals import PartitionStatusChanged, Signal, StreamStatusChanged, WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import Ascending, GeneratorSupplier, Punctuated

STEP = 10


class Rows:
    """The rows of a drawing, and those that a source really gives for its records."""

    def __init__(self, drawing: str) -> None:
        lines = (line.partition("|") for line in drawing.splitlines() if line.strip())
        self.expected = {name.strip(): cells.rstrip() for name, _, cells in lines}
        self.length = max(map(len, self.expected.values()))
        self.expected = {name: cells.ljust(self.length, ".") for name, cells in self.expected.items()}

    def replay(self, source: Source) -> dict[str, str]:
        idle: dict[str, bool] = {}
        rows = dict.fromkeys(self.expected, "")
        for column in range(self.length):
            signals: list[Signal] = [s for tick in source.ticks(column * STEP) for s in tick.signals]
            for partition in (0, 1):
                mark = self.expected.get(f"p{partition}", "").ljust(self.length)[column]
                if mark not in " .":
                    event = Event(column * STEP, column * STEP, marker=mark == "m")
                    signals += source.on_event(partition, event)
            for signal in signals:
                match signal:
                    case PartitionStatusChanged(partition, is_idle):
                        idle[f"idle {partition}"] = is_idle
                    case StreamStatusChanged(is_idle):
                        idle["stream"] = is_idle
                    case WatermarkEmitted():
                        pass
            for name in rows:
                is_record_row = name.startswith("p")
                rows[name] += self.expected[name][column] if is_record_row else ".I"[idle.get(name, False)]
        return rows


def source_of(generator: GeneratorSupplier, partitions: int = 1, **more) -> Source:
    ids = tuple(range(partitions))
    strategy = {"interval": STEP, "idleness": 30, "subtasks": (ids,)} | more
    return Source(WatermarkStrategy(generator, ids, **strategy))


CASES = {
    "idle at the first probe strictly more than the timeout after the second quiet one": (
        Ascending(),
        1,
        """
        p0     |x.........
        idle 0 |......IIII
        """,
    ),
    "a record starts it all over": (
        Ascending(),
        1,
        """
        p0     |x....x.........
        idle 0 |...........IIII
        """,
    ),
    "a partition without any record counts from the first tick": (
        Ascending(),
        2,
        """
        p0     |xxxxxxxxxx
        p1     |
        idle 1 |.....IIIII
        idle 0 |..........
        """,
    ),
    "per event a record makes the partition active at once": (
        Ascending(),
        1,
        """
        p0     |x........x...
        idle 0 |......III....
        """,
    ),
    "a punctuated partition is active again at its next marker, not at a record": (
        Punctuated(0),
        1,
        """
        p0     |m.......xxm..
        idle 0 |......IIII...
        """,
    ),
    "all partitions idle: the stream is idle, and active again with a higher watermark": (
        Ascending(),
        2,
        """
        p0     |x.........x..
        p1     |x.........x..
        idle 0 |......IIII...
        idle 1 |......IIII...
        stream |......IIII...
        """,
    ),
    "one active partition keeps the stream active": (
        Ascending(),
        2,
        """
        p0     |x.........
        p1     |xxxxxxxxxx
        idle 0 |......IIII
        stream |..........
        """,
    ),
    "before its first watermark the stream is idle after the timeout, whatever its records do": (
        Punctuated(0),
        1,
        """
        p0     |xxxxxxxxxm.
        idle 0 |...........
        stream |.....IIII..
        """,
    ),
    "a first watermark in time keeps it active": (
        Punctuated(0),
        1,
        """
        p0     |xxmxxxxxxx
        stream |..........
        """,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_partitions_and_streams_are_idle_as_drawn(name: str) -> None:
    generator, partitions, drawing = CASES[name]
    rows = Rows(drawing)
    assert rows.replay(source_of(generator, partitions)) == rows.expected


def test_without_a_timer_no_partition_becomes_idle() -> None:
    rows = Rows("""
        p0     |x...........x
        idle 0 |.............
        """)
    assert rows.replay(source_of(Ascending(), interval=0)) == rows.expected


def test_a_generator_per_subtask_gives_no_partition_a_status() -> None:
    rows = Rows("""
        p0     |x.........
        idle 0 |..........
        stream |......IIII
        """)
    assert rows.replay(source_of(Ascending(), scope=WatermarkScope.SUBTASK)) == rows.expected


def watermarks(source: Source, records: dict[int, list[int]], until: int) -> list[int]:
    """The watermarks emitted; `records`: by arrival, the partitions of its records (event time = arrival)."""
    signals: list[Signal] = []
    for arrival in [*sorted(records), until]:
        signals += [s for tick in source.ticks(arrival) for s in tick.signals]
        for partition in records.get(arrival, []):
            signals += source.on_event(partition, Event(arrival, arrival))
    return [s.watermark for s in signals if isinstance(s, WatermarkEmitted)]


def test_an_idle_partition_does_not_hold_the_watermark() -> None:
    source = source_of(Ascending(), 2)
    assert watermarks(source, {0: [0, 1], 5: [0]}, until=100)[-1] == 4, "partition 1 stands at -1"


@pytest.mark.parametrize(("emits_maximum", "last"), [(True, 4), (False, -1)])
def test_all_idle_the_watermark_jumps_to_the_maximum_since_flink_2_2(emits_maximum: bool, last: int) -> None:
    source = source_of(Ascending(), 2, all_idle_emits_maximum=emits_maximum)
    assert watermarks(source, {0: [0, 1], 5: [0]}, until=15)[-1] == -1, "before anyone is idle: the minimum"
    found = watermarks(source, {}, until=200)
    assert (found[-1] if found else -1) == last


def test_back_but_behind_a_partition_holds_the_watermark_until_it_has_caught_up() -> None:
    source = source_of(Ascending(), 2)
    busy = {arrival: [0] for arrival in range(5, 100, 5)}
    assert watermarks(source, {0: [0, 1]} | busy, until=95)[-1] == 94
    source.on_event(1, Event(50, 96))
    assert watermarks(source, {97: [0]}, until=97) == []
    assert source.watermark == 94
    source.on_event(1, Event(96, 98))
    assert source.watermark == 95
