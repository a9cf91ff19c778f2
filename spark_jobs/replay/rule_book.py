"""The rule book of one live engine: what of a replay is that engine's own.

Everything else of a replay is the same for all engines: windows, aggregates, faithful and complete values, chunks. A
rule book is chosen once, where a spec is made from a pipeline (`spark_jobs.replay.from_pipeline`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.band import Wider
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, record_position
from spark_jobs.replay.deduplication import Deduplication, is_kept
from spark_jobs.replay.timeline import CloseArrays, Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames

if TYPE_CHECKING:
    from spark_jobs.definition import Pipeline
    from spark_jobs.replay.other_values import OtherValue
    from spark_jobs.replay.sessions import SessionWork, ThresholdCells
    from spark_jobs.replay.spec import ReplaySpec


class Emission(StrEnum):
    """When a window that has taken a record gives a row.

    `at_close`: when the watermark passes its end, and again for each record that is late but allowed. `each_batch`: in
    each micro-batch that it took a record in, with all that it holds then.
    """

    AT_CLOSE = "at_close"
    EACH_BATCH = "each_batch"


@dataclass(frozen=True, slots=True)
class TimelineRequest:
    """What a timeline is made of. `processing_time_end` and `event_times` as in `History` (epoch ms).

    `state`: what an earlier run's timeline has left; None: `records` are the history from its start. `kept`: what a
    rule book keeps for further thresholds of the same records.
    """

    records: DataFrame
    event_times: TimeRange
    processing_time_end: int
    cache: CachedFrames
    state: dict[str, Any] | None = None
    kept: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoneOn:
    """The run that a replay goes on from which decides by the order of each partition.

    `state`: what its `OwnReplay.state` gave. `as_of`: its end offsets. `windows`: those of its published windows that
    may be others now (`RuleBook.reached`), in the columns of `replay_windows`, with `IS_TOUCHED`.
    """

    state: Mapping[str, Any]
    as_of: Mapping[int, int]
    windows: DataFrame


TASKS = "tasks"
"""Of `Timeline.state` what an `OwnReplay` has left."""
IS_TOUCHED = "rw_is_touched"
"""Whether new records may have changed the complete values of a window."""


class OwnReplay(Protocol):
    """Windows and late records that an engine decides by itself, not by a look-up of closes."""

    def windows(self, span: TimeRange) -> DataFrame:
        """The windows with a start in `span`, in the columns of `replay_windows`."""
        ...

    def late(self, span: TimeRange, chosen: TimeRange) -> DataFrame:
        """As `late_records`."""
        ...

    def state(self) -> dict[str, Any]:
        """What a later run needs to go on from here, as values that JSON can hold."""
        ...


class RuleBook(ABC):
    """One live engine: how its timeline is made, when a record is late, and which panes come out."""

    late_between_windows: ClassVar[bool] = False
    """Whether a record that lies between two windows can be late (golden rule 20 of Flink)."""
    closes_by_partition: ClassVar[bool] = False
    """Whether each partition closes its windows by itself, so that the close of one says nothing of another's."""
    knows_every_step: ClassVar[bool] = False
    """Whether the timeline has every step of the watermark, whatever thresholds it was made for."""

    @classmethod
    def of(cls, pipeline: Pipeline, recorded: object | None) -> RuleBook:
        """The rules of a definition. `recorded`: what the live job has written down of its reading, where it has."""
        return cls()

    @property
    def emission(self) -> Emission:
        """When windows give rows."""
        return Emission.AT_CLOSE

    @property
    def gives_open_windows(self) -> bool:
        """Whether a window has a row before it closes."""
        return False

    @property
    def may_be_out_until(self) -> int | None:
        """Open windows that end at or before this instant may have given a row: nobody knows. None: none has."""
        return None

    @property
    def wider(self) -> tuple[Wider, ...]:
        """In which ranges of processing time less is known of when a record was read."""
        return ()

    @property
    def decides_by_order(self) -> bool:
        """Whether the order of a whole partition decides, so that each replay reads it from its start."""
        return False

    def deduplication(self, pipeline: Pipeline) -> Deduplication | None:
        """What the live job does about duplicates; None: nothing.

        The canonical records have what duplicates share in a column of their own.
        """
        return None

    def other_values(self, spec: ReplaySpec, *, is_whole: bool) -> Iterable[OtherValue]:
        """Replays with another value of a field that neither log nor live job tells; of each field the likeliest first.

        `is_whole`: the timeline is made of the history's records, and of nothing that an earlier process has kept.
        """
        return ()

    @abstractmethod
    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        """When the live job's watermark passed which value; exact for the `thresholds`."""

    def own_replay(
        self, records: DataFrame, spec: ReplaySpec, cache: CachedFrames, before: GoneOn | None = None
    ) -> OwnReplay | None:
        """What decides the windows in place of the timeline; None: the timeline does.

        `before`: the run that it goes on from. Its windows are then those that may be others now, and its late records
        those of new ones.
        """
        return None

    @property
    def forgets_records(self) -> bool:
        """Whether records that windows took in may be in none of their rows, so that rows do not say how many."""
        return False

    def why_not_gone_on(self, state: Mapping[str, Any]) -> str:
        """Why no replay can go on from this state of an `own_replay`; empty: it can."""
        return "the order of each partition decides: it is read as a whole"

    def reached(self, windows: DataFrame, new: DataFrame, spec: ReplaySpec, state: Mapping[str, Any]) -> DataFrame:
        """The published windows that may be others with the `new` records, with `IS_TOUCHED`.

        `windows`: keys, `window_start` and `window_end` (epoch ms). `state`: of that run's `own_replay`.
        """
        raise TypeError("no replay of these rules goes on from another one")

    def is_read(self, spec: ReplaySpec) -> Column:
        """Whether the live job's windows and watermark read a canonical record."""
        return F.lit(True)

    def read(self, records: DataFrame, spec: ReplaySpec) -> DataFrame:
        """The canonical records that the live job's windows and watermark read."""
        return records

    def with_watermark(self, records: DataFrame, spec: ReplaySpec) -> DataFrame | None:
        """The records that have a watermark, with `rw_watermark`: the one just before each (epoch ms; null: none yet).

        None: the steps of the timeline say it. Records with earlier event times than these need not be there.
        """
        return None

    def placed(self, records: DataFrame) -> DataFrame:
        """The canonical records with their arrival as the live job's rules have it."""
        return records

    def finer(self, thresholds: Thresholds, spec: ReplaySpec) -> Thresholds:
        """The thresholds of aligned windows, with more where something else is decided at other times."""
        return thresholds

    def holds_back(self, spec: ReplaySpec) -> bool:
        """Whether records come to the windows behind their own positions."""
        return False

    def closes(self, closes: CloseArrays, spec: ReplaySpec, timeline: Timeline) -> CloseArrays:
        """The closes of windows, with what else `comes_before` looks up."""
        return closes

    def held_back(self, records: DataFrame, spec: ReplaySpec, timeline: Timeline, span: TimeRange) -> DataFrame:
        """The records with the position at which each comes to the windows (`HANDED`); null where it is its own.

        `span` holds their event times, which are as the windows count them.
        """
        return records

    def unplaced(self, records: DataFrame, spec: ReplaySpec, span: TimeRange) -> DataFrame | None:
        """The records that the live job has read, where they decide the windows of `span` without being `placed`.

        None: they do not.
        """
        return None

    def comes_before(self, closes: CloseArrays, index: Column, records: DataFrame) -> Column:
        """Whether a record is processed before the close of its window, which is number `index` of `closes`.

        Most records arrive sooner after their event time than any window closes after its end. A window's end is later
        than the event time, so these come before the close, and need no look-up.
        """
        looked_up = record_position(records).not_after(closes.at_index(index, records))
        if closes.least_delay is None:
            return looked_up & is_kept(records)
        soon = F.col(ARRIVAL) - F.lit(closes.least_delay) < F.col(EVENT_TIME)
        return F.call_function("if", soon, F.lit(True), looked_up) & is_kept(records)

    def is_undecided(self, closes: CloseArrays, index: Column, records: DataFrame) -> Column | None:
        """Whether only the job's own moment decides if a record comes before the close of its window; None: never."""
        return None

    def session_records(self, records: DataFrame, spec: ReplaySpec) -> DataFrame:
        """The records that can be in a session, of those with `rw_ts` and `rw_end`, their own session's bounds."""
        return records


class SessionRules(RuleBook):
    """A rule book whose sessions are found by set operations, as far as these can decide."""

    @abstractmethod
    def suspicion(
        self, records: DataFrame, spec: ReplaySpec, cells: ThresholdCells, flushes: bool
    ) -> tuple[Column, Column]:
        """Whether a record may be late or touch a session that was out, and whether a session may still be open.

        The second is a column of complete sessions. Both may be true needlessly: such sessions go through
        `operate_sessions`.
        """

    @abstractmethod
    def operate_sessions(self, members: DataFrame, work: SessionWork) -> tuple[DataFrame, Timeline]:
        """What the live job made of complete sessions that set operations cannot decide: rows of `SESSION_ROWS`.

        Also returns a timeline that is exact for their late records.
        """
