"""What to replay, as data: the event-time half of a pipeline definition, without its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from spark_jobs.eventtime.strategy import WatermarkStrategy
from spark_jobs.eventtime.windows import WindowAssigner


class Mode(StrEnum):
    """Which values to compute."""

    FAITHFUL = "faithful"
    COMPLETE = "complete"
    BOTH = "both"


class Panes(StrEnum):
    """Which firings of a window to keep: the last, or every refinement."""

    LAST = "last"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """One replay. Durations are milliseconds.

    `keys` name columns of the canonical records; `aggregates` maps a column name to a Spark SQL aggregate.
    `after_watermark` is an SQL filter behind the watermark assigner: what it rejects still moves the
    watermark. `flush`: the end of input fires what is open; otherwise the job is frozen as it stands.
    `restarts` are the instants (epoch ms) at which the live job's watermark began anew.
    `gap_expression` gives a session's gap per record, in ms, in place of the assigner's fixed gap.
    """

    strategy: WatermarkStrategy
    windows: WindowAssigner
    allowed_lateness: int
    keys: tuple[str, ...]
    aggregates: Mapping[str, str]
    after_watermark: str | None = None
    mode: Mode = Mode.BOTH
    panes: Panes = Panes.LAST
    flush: bool = True
    gap_expression: str | None = None
    restarts: tuple[int, ...] = ()

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
