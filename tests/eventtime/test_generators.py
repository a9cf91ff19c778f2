"""What each generator emits (rules 1, 4 and 8), and what its supplier answers about it.

In the tables each column is one step: a record with this event time (`*`: a marker; `a:`: of the stream `a`; `-`: no
event time), or a tick of the timer. `out` is the watermark emitted at that step. All times are milliseconds.
"""

from __future__ import annotations

import pytest

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.suppliers import (
    AdvanceAfterWait,
    Ascending,
    AverageOfLast,
    BoundedOutOfOrderness,
    Custom,
    GeneratorKind,
    GeneratorSupplier,
    Interleaved,
    Lag,
    NoWatermarks,
    Punctuated,
    RecordTime,
    RunningMaximum,
    TimeLag,
    supplier_of,
)
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from tests.eventtime.drawing import table

INTERVAL = 10

PER_EVENT = {
    "ascending: one millisecond behind the maximum": (
        Ascending(),
        """
        record | 7 11 9  15
        out    | 6 10 10 14
        """,
    ),
    "bounded: the bound and one millisecond behind the maximum": (
        BoundedOutOfOrderness(4),
        """
        record | 7 11 9 15
        out    | 2 6  6 10
        """,
    ),
    "lag: without the millisecond": (
        Lag(4),
        """
        record | 7 11 9 15
        out    | 3 7  7 11
        """,
    ),
    "average of the last 2: fewer at the start, rounded down": (
        AverageOfLast(2, 1),
        """
        record | 7 12 20 -  5
        out    | 6 8  15 .  11
        """,
    ),
    "time lag: behind the arrival, whatever the event time (here a record a millisecond, from 0 on)": (
        TimeLag(5),
        """
        record | 700 3  90
        out    | -5  -4 -3
        """,
    ),
    "punctuated: at markers alone, and behind the marker, not the maximum": (
        Punctuated(2),
        """
        record | 7 9* 30 8*
        out    | . 7  .  6
        """,
    ),
    "interleaved: the minimum over the streams seen so far": (
        Interleaved(1),
        """
        record | a:10 b:5 a:20 b:12
        out    | 8    3   3    10
        """,
    ),
    "interleaved, with the streams listed: nothing before all have been seen": (
        Interleaved(1, ("a", "b")),
        """
        record | a:10 a:20 b:12
        out    | .    .    10
        """,
    ),
    "none: never": (
        NoWatermarks(),
        """
        record | 7 9
        out    | . .
        """,
    ),
}

PERIODIC = {
    "ascending: at ticks alone": (
        Ascending(),
        """
        record | 7 11 .  9 .
        tick   | . .  t  . t
        out    | . .  10 . 10
        """,
    ),
    "time lag: the tick's time, with or without records": (
        TimeLag(5),
        """
        record | 7 . . .
        tick   | . t t t
        out    | . 5 15 25
        """,
    ),
    "punctuated: at the marker, not at the tick": (
        Punctuated(2),
        """
        record | 9* . 20*
        tick   | .  t .
        out    | 7  . 18
        """,
    ),
    "advance after wait: the maximum follows the ticks after a quiet time strictly longer than the wait": (
        AdvanceAfterWait(4, 20),
        """
        record | 105 .   .   .   .   107 .
        tick   | .   t   t   t   t   .   t
        out    | .   100 100 130 140 .   140
        """,
    ),
    "none: never": (
        NoWatermarks(),
        """
        record | 7 .
        tick   | . t
        out    | . .
        """,
    ),
}


class Emitted:
    """Remembers what a generator emits."""

    def __init__(self) -> None:
        self.watermarks: list[int] = []

    def emit_watermark(self, watermark: int) -> None:
        self.watermarks.append(watermark)


def event(cell: str, arrival: int) -> Event:
    stream, _, rest = cell.rpartition(":")
    time = rest.rstrip("*")
    return Event(MIN_TIMESTAMP if time == "-" else int(time), arrival, rest.endswith("*"), stream or None)


def check(supplier: GeneratorSupplier, drawing: str, *, per_event: bool) -> None:
    generator = supplier.create_generator(per_event=per_event, interval=0 if per_event else INTERVAL)
    now = 0
    for arrival, step in enumerate(table(drawing)):
        emitted = Emitted()
        if step["record"]:
            generator.on_event(event(step["record"], arrival), emitted)
        else:
            now += INTERVAL
            generator.on_periodic_emit(now, emitted)
        assert emitted.watermarks == ([int(step["out"])] if step["out"] else []), step


@pytest.mark.parametrize("name", PER_EVENT)
def test_per_event_a_generator_emits_what_is_drawn(name: str) -> None:
    check(*PER_EVENT[name], per_event=True)


@pytest.mark.parametrize("name", PERIODIC)
def test_a_periodic_generator_emits_what_is_drawn(name: str) -> None:
    check(*PERIODIC[name], per_event=False)


@pytest.mark.parametrize("kind", GeneratorKind)
def test_every_kind_has_one_supplier_that_makes_its_generator(kind: GeneratorKind) -> None:
    supplier = supplier_of(
        kind,
        bound=3,
        lag=3,
        last=2,
        wait=5,
        reference="tests.golden.custom_generators:EveryNth",
        parameters={"n": 2, "lag_ms": 3},
    )
    assert supplier.kind is kind
    one, other = (supplier.create_generator(per_event=True, interval=0) for _ in range(2))
    assert one is not other
    assert one.snapshot() == other.snapshot()


@pytest.mark.parametrize(
    ("supplier", "maximum"),
    [
        (Ascending(), RunningMaximum(RecordTime.EVENT_TIME, 1)),
        (BoundedOutOfOrderness(30), RunningMaximum(RecordTime.EVENT_TIME, 31)),
        (Lag(30), RunningMaximum(RecordTime.EVENT_TIME, 30)),
        (Punctuated(30), RunningMaximum(RecordTime.EVENT_TIME_OF_MARKERS, 30)),
        (TimeLag(30), RunningMaximum(RecordTime.ARRIVAL, 30)),
        (NoWatermarks(), RunningMaximum(RecordTime.NOTHING, 0)),
        (AverageOfLast(3, 30), None),
        (AdvanceAfterWait(30, 5), None),
        (Interleaved(30), None),
        (Custom("module:Class"), None),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_supplier_names_the_maximum_that_its_watermark_is(supplier, maximum) -> None:
    assert supplier.running_maximum(per_event=True) == maximum


FOLLOWED = {
    RecordTime.EVENT_TIME: lambda record: [record.timestamp],
    RecordTime.EVENT_TIME_OF_MARKERS: lambda record: [record.timestamp] if record.marker else [],
    RecordTime.ARRIVAL: lambda record: [record.arrival],
    RecordTime.NOTHING: lambda record: [],
}


@pytest.mark.parametrize(
    "name", [n for n, (supplier, _) in PER_EVENT.items() if supplier.running_maximum(per_event=True)]
)
def test_the_watermarks_of_a_generator_reach_the_maximum_that_its_supplier_names(name: str) -> None:
    supplier, drawing = PER_EVENT[name]
    maximum = supplier.running_maximum(per_event=True)
    times: list[int] = []
    emitted: list[int] = []
    for arrival, step in enumerate(table(drawing)):
        times += FOLLOWED[maximum.time](event(step["record"], arrival))
        emitted += [int(step["out"])] if step["out"] else []
        assert max(emitted, default=None) == (max(times) - maximum.delay if times else None)


def test_at_ticks_a_time_lag_follows_the_clock_and_is_no_maximum() -> None:
    assert TimeLag(5).running_maximum(per_event=False) is None


@pytest.mark.parametrize("supplier", [TimeLag(5), AdvanceAfterWait(4, 20), Custom("module:Class")], ids=str)
def test_these_generators_can_move_at_a_tick_without_records(supplier: GeneratorSupplier) -> None:
    assert supplier.moves_without_records


@pytest.mark.parametrize(
    ("supplier", "parameter", "tolerance"),
    [
        (Ascending(), "bound", 0),
        (BoundedOutOfOrderness(30), "bound", 30),
        (AdvanceAfterWait(30, 5), "bound", 30),
        (Interleaved(30), "bound", 30),
        (Lag(20), "lag", 20),
        (AverageOfLast(3, 20), "lag", 20),
        (TimeLag(20), "lag", 20),
        (Punctuated(20), "lag", 20),
        (NoWatermarks(), None, 0),
        (Custom("module:Class"), None, 0),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_a_supplier_names_the_parameter_that_makes_the_watermark_wait(supplier, parameter, tolerance) -> None:
    assert (supplier.tolerance_parameter, supplier.tolerance) == (parameter, tolerance)
