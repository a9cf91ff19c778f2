"""The watermark strategy of a live job as data: which generator, where it stands, when it emits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark_jobs.eventtime import generators as g


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


class Scope(StrEnum):
    """Where a generator stands: one a partition (inside the source), or one a source subtask (behind it)."""

    PARTITION = "partition"
    SUBTASK = "subtask"


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Everything that a live job's watermark is a function of, beside its records.

    Durations and times are milliseconds. `partitions` are the registered ones: one without records holds
    the watermark (rule 5). `subtasks` partitions them over source subtasks (rule 6). `interval` 0 means no
    periodic timer; ticks are due at `timer_start + k * interval`, k >= 1. `all_idle_emits_maximum` is
    Flink's behaviour since 2.2 (rule 13).
    """

    kind: GeneratorKind
    partitions: tuple[int, ...]
    subtasks: tuple[tuple[int, ...], ...]
    scope: Scope = Scope.PARTITION
    per_event: bool = True
    interval: int = 0
    timer_start: int = 0
    idleness: int | None = None
    all_idle_emits_maximum: bool = True
    bound: int = 0
    lag: int = 0
    last: int = 1
    wait: int = 0
    streams: tuple[str, ...] = ()
    custom_class: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def delay(self) -> int:
        """What the generators that follow a maximum take off it (rule 1; `lag` has no 1 ms)."""
        match self.kind:
            case GeneratorKind.ASCENDING:
                return 1
            case GeneratorKind.BOUNDED:
                return self.bound + 1
            case _:
                return self.lag

    @property
    def generator_groups(self) -> tuple[tuple[int, ...], ...]:
        """The partitions that share one generator: singletons, or a subtask's partitions."""
        if self.scope is Scope.SUBTASK:
            return self.subtasks
        return tuple((partition,) for partition in self.partitions)

    def create_generator(self) -> g.WatermarkGenerator:
        """A new generator in its initial state."""
        match self.kind:
            case GeneratorKind.ASCENDING | GeneratorKind.BOUNDED | GeneratorKind.LAG:
                return g.DelayedMaximum(self.delay, self.per_event)
            case GeneratorKind.PUNCTUATED:
                return g.PunctuatedMarkers(self.lag)
            case GeneratorKind.ADVANCE_AFTER_WAIT:
                return g.AdvanceAfterWait(self.bound, self.wait, self.interval, self.per_event)
            case GeneratorKind.AVERAGE_OF_LAST:
                return g.AverageOfLast(self.last, self.lag, self.per_event)
            case GeneratorKind.TIME_LAG:
                return g.TimeLag(self.lag, self.per_event)
            case GeneratorKind.INTERLEAVED:
                return g.InterleavedStreams(self.bound, self.per_event, self.streams)
            case GeneratorKind.CUSTOM:
                return g.CustomGenerator(self.custom_class, self.parameters)
            case GeneratorKind.NONE:
                return g.NoWatermarks()

    @property
    def moves_without_records(self) -> bool:
        """Whether a tick can move a generator that saw no record since the tick before."""
        return self.kind in (
            GeneratorKind.ADVANCE_AFTER_WAIT,
            GeneratorKind.TIME_LAG,
            GeneratorKind.CUSTOM,
        )
