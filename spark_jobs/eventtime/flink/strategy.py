"""The watermark strategy of a live job: which generator, one per what, when it emits, and when a partition is idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_jobs.eventtime.flink.generators import WatermarkGenerator
from spark_jobs.eventtime.flink.suppliers import (
    GeneratorSupplier,
    Lag,
    Punctuated,
    RecordTime,
    RunningMaximum,
    SeveralGenerators,
)


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
        discovered: The partitions that the job did not know when it started, each with the time from which on it did.
            Before, such a partition does not hold the watermark back. Its records are read from then on.
        inputs: The strategies of a union's inputs where they differ, in the order of the subtasks; see `of_union`.
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
    discovered: tuple[tuple[int, int], ...] = ()
    inputs: tuple[WatermarkStrategy, ...] = ()

    @classmethod
    def of_union(cls, inputs: Sequence[WatermarkStrategy]) -> WatermarkStrategy:
        """The strategy of a job that reads several inputs, each with a watermark of its own, as one stream.

        Their subtasks are the channels of one valve, which takes the minimum. The inputs have no partition in common,
        and one timer: those without one take it from the others.
        """
        timer = next((one for one in inputs if one.interval), inputs[0])
        timed = tuple(replace(one, interval=timer.interval, timer_start=timer.timer_start) for one in inputs)
        first = timed[0]
        alike = all((one.generator, one.per_event) == (first.generator, first.per_event) for one in timed)
        same = alike and all((one.idleness, one.scope) == (first.idleness, first.scope) for one in timed)
        per_partition = all(one.scope is WatermarkScope.PARTITION for one in timed)
        return replace(
            first,
            generator=first.generator if alike else SeveralGenerators(),
            partitions=tuple(partition for one in timed for partition in one.partitions),
            subtasks=tuple(subtask for one in timed for subtask in one.subtasks),
            scope=WatermarkScope.PARTITION if per_partition else WatermarkScope.SUBTASK,
            discovered=tuple(known for one in timed for known in one.discovered),
            idleness=min((one.idleness for one in timed if one.idleness is not None), default=None),
            inputs=() if same else timed,
        )

    @property
    def of_subtasks(self) -> tuple[WatermarkStrategy, ...]:
        """The strategy of each subtask: that of its input in a union."""
        return tuple(one for one in self.inputs or (self,) for _ in one.subtasks)

    @property
    def of_generators(self) -> tuple[WatermarkStrategy, ...]:
        """The strategy of each generator, in the order of `generators`."""
        return tuple(one for one in self.inputs or (self,) for _ in one.generators)

    def over_one_maximum(self) -> tuple[WatermarkStrategy, Mapping[int, int]]:
        """A strategy with one generator for all inputs, and what has to be taken off each partition's times (ms).

        Where inputs follow the largest time and differ in the delay alone, it is that of the times less the delays.
        Where they differ in more, or do not differ, it is this one, and nothing is taken off.
        """
        maxima = [one.running_maximum for one in self.inputs if one.per_event == self.per_event]
        kinds = {None if maximum is None else maximum.time for maximum in maxima}
        shared = {RecordTime.EVENT_TIME: Lag(0), RecordTime.EVENT_TIME_OF_MARKERS: Punctuated(0)}
        generator = shared.get(kinds.pop() or RecordTime.NOTHING) if len(kinds) == 1 else None
        if generator is None or len(maxima) < len(self.inputs) or not isinstance(self.generator, SeveralGenerators):
            return self, {}
        delays = {
            partition: maximum.delay
            for one, maximum in zip(self.inputs, maxima, strict=True)
            if maximum is not None
            for partition in one.partitions
        }
        return WatermarkStrategy.of_union([replace(one, generator=generator) for one in self.inputs]), delays

    @property
    def generator_groups(self) -> tuple[tuple[int, ...], ...]:
        """The partitions that share one generator: singletons, or a subtask's; of a subtask without any an empty one.

        That subtask has no watermark, and so there is none.
        """
        if self.inputs:
            return tuple(group for one in self.inputs for group in one.generator_groups)
        if self.scope is WatermarkScope.SUBTASK:
            return self.subtasks
        return (*((partition,) for partition in self.partitions), *(one for one in self.subtasks if not one))

    @property
    def generators(self) -> tuple[tuple[int, ...], ...]:
        """The partitions of each generator, subtask by subtask; a subtask may have none."""
        if self.inputs:
            return tuple(group for one in self.inputs for group in one.generators)
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
