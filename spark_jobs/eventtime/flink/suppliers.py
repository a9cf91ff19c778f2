"""Generator suppliers: one frozen class for each kind of watermark generator.

A supplier holds the parameters of one kind, makes its generators (Flink's `WatermarkGeneratorSupplier`), and answers
what the engines ask about the kind: whether its watermark is a plain maximum, what it can see, whether it moves without
records. A new kind of generator is a new class here, a class in `spark_jobs.eventtime.flink.generators`, and a line in
`supplier_of`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal

from spark_jobs.eventtime.flink import generators as g


class GeneratorKind(StrEnum):
    """The generators that a definition can name."""

    ASCENDING = "ascending"
    BOUNDED = "bounded_out_of_orderness"
    LAG = "lag"
    AVERAGE_OF_LAST = "average_of_last"
    TIME_LAG = "time_lag"
    PUNCTUATED = "punctuated"
    ADVANCE_AFTER_WAIT = "advance_after_wait"
    INTERLEAVED = "interleaved"
    CUSTOM = "custom"
    NONE = "none"


class RecordTime(StrEnum):
    """Which time of a record a maximum is taken of."""

    EVENT_TIME = "event_time"
    EVENT_TIME_OF_MARKERS = "event_time_of_markers"
    ARRIVAL = "arrival"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class RunningMaximum:
    """A watermark of the form `max(time of the records so far) - delay`, in milliseconds (rule 1)."""

    time: RecordTime
    delay: int


class GeneratorSupplier(ABC):
    """The parameters of one kind of generator, and what follows from the kind. Durations are milliseconds."""

    __slots__ = ()

    kind: ClassVar[GeneratorKind]

    sees_only_the_maximum: ClassVar[bool] = False
    """Whether the largest event time since the last tick tells the generator as much as all records since then."""

    moves_without_records: ClassVar[bool] = False
    """Whether a tick can move a generator that has seen no record since the last tick."""

    follows_the_clock: ClassVar[bool] = False
    """Whether periodic emission gives the tick's time less the tolerance, whatever the records are."""

    emits_at_ticks: ClassVar[bool] = True
    """Whether periodic emission applies: false for generators that emit on records only, whatever the mode."""

    tolerance_parameter: ClassVar[Literal["bound", "lag"] | None] = None
    """The parameter with which a user makes the watermark wait longer; None where there is none."""

    @property
    def tolerance(self) -> int:
        """The value of `tolerance_parameter`; 0 where there is none."""
        return getattr(self, self.tolerance_parameter or "", 0)

    def running_maximum(self, *, per_event: bool) -> RunningMaximum | None:
        """The maximum that the watermark of one generator is; None if it depends on more than a maximum.

        Args:
            per_event: Whether the job emits on every record, not at ticks.
        """
        return None

    @abstractmethod
    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        """A new generator in its initial state.

        Args:
            per_event: Whether the job emits on every record, not at ticks.
            interval: The interval of the job's periodic timer; 0 if it has none.
        """


class DelayedMaximum(GeneratorSupplier):
    """`max ts - delay`."""

    __slots__ = ()

    sees_only_the_maximum = True
    tolerance_parameter = "bound"

    @property
    def delay(self) -> int:
        """The tolerance and 1 ms: as Flink counts."""
        return self.tolerance + 1

    def running_maximum(self, *, per_event: bool) -> RunningMaximum:
        return RunningMaximum(RecordTime.EVENT_TIME, self.delay)

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.DelayedMaximum(self.delay, per_event)


@dataclass(frozen=True, slots=True)
class Ascending(DelayedMaximum):
    """`max ts - 1`: Flink's `forMonotonousTimestamps`."""

    kind = GeneratorKind.ASCENDING


@dataclass(frozen=True, slots=True)
class BoundedOutOfOrderness(DelayedMaximum):
    """`max ts - bound - 1`: Flink's `forBoundedOutOfOrderness`."""

    bound: int

    kind = GeneratorKind.BOUNDED


@dataclass(frozen=True, slots=True)
class Lag(DelayedMaximum):
    """`max ts - lag`: the legacy convention, without the 1 ms."""

    lag: int

    kind = GeneratorKind.LAG
    tolerance_parameter = "lag"

    @property
    def delay(self) -> int:
        return self.lag


@dataclass(frozen=True, slots=True)
class AverageOfLast(GeneratorSupplier):
    """`floor(mean of the last N timestamps) - lag`, with N = `last`."""

    last: int
    lag: int

    kind = GeneratorKind.AVERAGE_OF_LAST
    tolerance_parameter = "lag"

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.AverageOfLast(self.last, self.lag, per_event)


@dataclass(frozen=True, slots=True)
class TimeLag(GeneratorSupplier):
    """`processing time - lag`. Per event it is the maximum of the arrivals; at ticks the clock moves it."""

    lag: int

    kind = GeneratorKind.TIME_LAG
    follows_the_clock = True
    sees_only_the_maximum = True
    moves_without_records = True
    tolerance_parameter = "lag"

    def running_maximum(self, *, per_event: bool) -> RunningMaximum | None:
        return RunningMaximum(RecordTime.ARRIVAL, self.lag) if per_event else None

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.TimeLag(self.lag, per_event)


@dataclass(frozen=True, slots=True)
class Punctuated(GeneratorSupplier):
    """`ts - lag` at each marker record."""

    lag: int

    kind = GeneratorKind.PUNCTUATED
    emits_at_ticks = False
    tolerance_parameter = "lag"

    def running_maximum(self, *, per_event: bool) -> RunningMaximum:
        return RunningMaximum(RecordTime.EVENT_TIME_OF_MARKERS, self.lag)

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.PunctuatedMarkers(self.lag)


@dataclass(frozen=True, slots=True)
class AdvanceAfterWait(GeneratorSupplier):
    """`max ts - bound - 1`, which advances by itself after a quiet time of `wait` (rule 8)."""

    bound: int
    wait: int

    kind = GeneratorKind.ADVANCE_AFTER_WAIT
    sees_only_the_maximum = True
    moves_without_records = True
    tolerance_parameter = "bound"

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.AdvanceAfterWait(self.bound, self.wait, interval, per_event)


@dataclass(frozen=True, slots=True)
class Interleaved(GeneratorSupplier):
    """The minimum over the logical streams of `max ts - bound - 1`. No `streams`: those seen so far count."""

    bound: int
    streams: tuple[str, ...] = ()

    kind = GeneratorKind.INTERLEAVED
    tolerance_parameter = "bound"

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.InterleavedStreams(self.bound, per_event, self.streams)


@dataclass(frozen=True, slots=True)
class Custom(GeneratorSupplier):
    """A user's class, `module:Class`, made with `parameters`. Nothing is known about it."""

    reference: str
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    kind = GeneratorKind.CUSTOM
    moves_without_records = True

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.CustomGenerator(self.reference, self.parameters)


@dataclass(frozen=True, slots=True)
class NoWatermarks(GeneratorSupplier):
    """Never emits: only the end of input closes windows."""

    kind = GeneratorKind.NONE
    sees_only_the_maximum = True
    emits_at_ticks = False

    def running_maximum(self, *, per_event: bool) -> RunningMaximum:
        return RunningMaximum(RecordTime.NOTHING, 0)

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        return g.NoWatermarks()


@dataclass(frozen=True, slots=True)
class SeveralGenerators(GeneratorSupplier):
    """Stands for the generators of a union's inputs where they differ: each input has its own."""

    kind = GeneratorKind.CUSTOM
    moves_without_records = True

    def create_generator(self, *, per_event: bool, interval: int) -> g.WatermarkGenerator:
        raise TypeError("each input of a union has its own generator")


_SUPPLIERS: dict[GeneratorKind, type[GeneratorSupplier]] = {
    supplier.kind: supplier
    for supplier in (
        *(Ascending, BoundedOutOfOrderness, Lag, AverageOfLast, TimeLag),
        *(Punctuated, AdvanceAfterWait, Interleaved, Custom, NoWatermarks),
    )
}


def supplier_of(kind: GeneratorKind, **parameters: Any) -> GeneratorSupplier:
    """The supplier of a kind with those of the parameters that the kind takes: for definitions and case files.

    `parameters` are named as the fields of the suppliers are; a custom class is the `reference`.
    """
    supplier: Any = _SUPPLIERS[kind]
    return supplier(**{name: parameters[name] for name in supplier.__dataclass_fields__ if name in parameters})
