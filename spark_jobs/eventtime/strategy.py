"""The watermark strategy of a live job: which generator, one per what, when it emits, and when a partition is idle."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_jobs.eventtime.generators import WatermarkGenerator
from spark_jobs.eventtime.suppliers import GeneratorSupplier, RecordTime, RunningMaximum


class WatermarkScope(StrEnum):
    """What has a generator of its own: each partition (inside the source), or each source subtask (behind it)."""

    PARTITION = "partition"
    SUBTASK = "subtask"


@dataclass(frozen=True, slots=True)
class WatermarkStrategy:
    """Everything besides the records that a live job's watermark depends on. Durations and times are milliseconds.

    Attributes:
        generator: The kind of generator with its parameters.
        partitions: The registered partitions. One without records holds the watermark back (rule 5).
        subtasks: The partitions that each source subtask reads (rule 6).
        scope: One generator per partition or per subtask.
        per_event: Whether generators emit on every record; otherwise they emit at ticks.
        interval: The interval of the periodic timer; 0: no timer.
        timer_start: Ticks are due at `timer_start + k * interval`, k >= 1.
        idleness: The idleness timeout; None: no partition is ever idle.
        all_idle_emits_maximum: Flink's behaviour since 2.2 when all partitions are idle (rule 13).
    """

    generator: GeneratorSupplier
    partitions: tuple[int, ...]
    subtasks: tuple[tuple[int, ...], ...]
    scope: WatermarkScope = WatermarkScope.PARTITION
    per_event: bool = True
    interval: int = 0
    timer_start: int = 0
    idleness: int | None = None
    all_idle_emits_maximum: bool = True

    @property
    def generator_groups(self) -> tuple[tuple[int, ...], ...]:
        """The partitions that share one generator: singletons, or a subtask's partitions."""
        if self.scope is WatermarkScope.SUBTASK:
            return self.subtasks
        return tuple((partition,) for partition in self.partitions)

    @property
    def generators(self) -> tuple[tuple[int, ...], ...]:
        """The partitions of each generator, subtask by subtask; a subtask may have none."""
        if self.scope is WatermarkScope.SUBTASK:
            return self.subtasks
        return tuple((partition,) for subtask in self.subtasks for partition in subtask)

    def create_generator(self) -> WatermarkGenerator:
        """A new generator in its initial state."""
        return self.generator.create_generator(per_event=self.per_event, interval=self.interval)

    @property
    def running_maximum(self) -> RunningMaximum | None:
        """The maximum that each generator's watermark is; None if it depends on more than a maximum."""
        return self.generator.running_maximum(per_event=self.per_event)

    @property
    def is_invertible(self) -> bool:
        """Whether the watermark is a minimum of maxima and of nothing else, so that the records' order is not needed.

        Idleness is noticed at ticks, so without a timer it changes nothing.
        """
        maximum = self.running_maximum
        if maximum is None:
            return False
        if maximum.time is RecordTime.ARRIVAL:
            return self.idleness is None
        return self.idleness is None or self.interval == 0

    @property
    def emits_on_records(self) -> bool:
        """Whether a watermark moves with the record that moves it, not at the next tick."""
        return self.per_event or not self.generator.emits_at_ticks

    @property
    def sees_only_maxima_at_ticks(self) -> bool:
        """Whether one record a partition and tick, the one with the largest event time, gives the same watermark."""
        return not self.per_event and self.interval > 0 and self.generator.sees_only_the_maximum

    @property
    def follows_the_clock(self) -> bool:
        """Whether each tick emits its own time less a constant, for every partition that is not idle."""
        return self.generator.follows_the_clock and not self.per_event

    @property
    def moves_without_records(self) -> bool:
        """Whether a tick can move a generator that has seen no record since the tick before."""
        return self.generator.moves_without_records
