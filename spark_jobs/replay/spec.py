"""One replay as data: the event-time part of a pipeline definition, without its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from spark_jobs.definition.mode import Mode
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.windows import AlignedWindows, AnySessionWindows, AnyWindows
from spark_jobs.replay.deduplication import Deduplication
from spark_jobs.replay.rule_book import RuleBook


class Panes(StrEnum):
    """Which firings of a window the result has: the last, or all."""

    LAST = "last"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """One replay, by the `rules` of the live job's engine. Durations are milliseconds.

    `keys` name columns of the canonical records; `aggregates` maps a column name to a Spark SQL aggregate.
    `after_watermark` is an SQL filter behind the watermark assigner: the records that it rejects still move the
    watermark. `flush`: the end of input fires the open windows; otherwise they stay open.
    `restarts` are the instants (epoch ms) at which the live job was restarted, with a watermark from nothing.
    `deduplication`: what it does about duplicates, behind the filter and before the windows.
    """

    rules: RuleBook
    strategy: WatermarkStrategy
    windows: AnyWindows
    allowed_lateness: int
    keys: tuple[str, ...]
    aggregates: Mapping[str, str]
    after_watermark: str | None = None
    mode: Mode = Mode.BOTH
    panes: Panes = Panes.LAST
    flush: bool = True
    restarts: tuple[int, ...] = ()
    deduplication: Deduplication | None = None

    @property
    def has_sessions(self) -> bool:
        """Whether the windows are sessions, which follow the records and merge."""
        return not isinstance(self.windows, AlignedWindows)

    @property
    def aligned_windows(self) -> AlignedWindows:
        """The windows of a replay without sessions. Raises TypeError for sessions."""
        if not isinstance(self.windows, AlignedWindows):
            raise TypeError(f"{type(self.windows).__name__} lie where the records are, not on a grid")
        return self.windows

    @property
    def session_windows(self) -> AnySessionWindows:
        """The windows of a replay with sessions. Raises TypeError for other windows."""
        if isinstance(self.windows, AlignedWindows):
            raise TypeError(f"{type(self.windows).__name__} are not sessions")
        return self.windows

    def pairs(self, records: int) -> int:
        """About how many pairs of record and window so many records make: the rows of a shuffle, at most."""
        if self.has_sessions or self.aligned_windows.assigns_one:
            return records
        return records * -(-self.aligned_windows.longest // self.windows.usual_step)

    @property
    def output_columns(self) -> tuple[str, ...]:
        """The aggregate columns of a result, in order: faithful `name`, complete `name__complete`."""
        columns: list[str] = []
        for name in self.aggregates:
            if self.mode is not Mode.COMPLETE:
                columns.append(name)
            if self.mode is not Mode.FAITHFUL:
                columns.append(complete_name(name))
        return tuple(columns)


def complete_name(name: str) -> str:
    """The column of the complete value of the aggregate `name`."""
    return f"{name}__complete"
