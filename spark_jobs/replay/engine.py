"""The replay of one history: timeline first, then windows and late records that only read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.eventtime.windows import SessionWindows, SlidingWindows
from spark_jobs.replay.assign import END, START, latest_start
from spark_jobs.replay.band import Band
from spark_jobs.replay.columns import (
    ARRIVAL,
    EVENT_TIME,
    PositionColumns,
    identity_columns,
    position_names,
    record_position,
)
from spark_jobs.replay.grid import end_grid
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.inversion import invert, is_invertible
from spark_jobs.replay.restarts import restarted_timeline
from spark_jobs.replay.sessions import FinerTimeline, SessionReplay, ThresholdCells, coarse_thresholds, replay_sessions
from spark_jobs.replay.simulation import simulate
from spark_jobs.replay.spec import Mode, ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline, exact_thresholds, grid_thresholds
from spark_jobs.replay.windows import FIRED, late_records, replay_windows
from spark_jobs.spark.cached import CachedFrames

Position = tuple[int, int, int]
"""(arrival, major, minor); see `spark_jobs.replay.columns`."""


@dataclass(frozen=True)
class History:
    """Canonical records up to the as-of vector, and what the plan knows of them (epoch ms).

    `event_times` spans the event times that are there; `processing_time_end` is how far the live job's
    timer runs: the last arrival, unless the as-of says more.
    """

    records: DataFrame
    event_times: TimeRange
    processing_time_end: int


@dataclass(frozen=True)
class SavedTimeline:
    """The timeline of this very replay, made before: what it told, and its rows."""

    told: Mapping
    table: DataFrame | InMemoryTimeline


class Replay:
    """One replay; use it as a context manager, it holds cached tables.

    `state` is the timeline state of an earlier run that ended where `history.records` for the timeline
    begin: then `timeline_records` are the records after it, while `history.records` still hold all that
    the windows need. Closes that the watermark had passed by then are told by `earlier` alone, the steps of that run's
    timeline: without it none may be asked for (see `asks_for_old_closes`). `saved` is the timeline itself, where
    another process has made it.
    """

    def __init__(
        self,
        history: History,
        spec: ReplaySpec,
        *,
        state: Mapping | None = None,
        timeline_records: DataFrame | None = None,
        exact_positions: bool = False,
        earlier: InMemoryTimeline | None = None,
        saved: SavedTimeline | None = None,
    ) -> None:
        self.history = history
        self.spec = spec
        self._state = dict(state) if state else None
        self._timeline_records = history.records if timeline_records is None else timeline_records
        self._exact_positions = exact_positions
        self._earlier = earlier
        self._saved = saved
        self._held = CachedFrames()
        self._sessions: dict[TimeRange, SessionReplay] = {}

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.release()
        self._sessions.clear()

    @property
    def merges(self) -> bool:
        return isinstance(self.spec.windows, SessionWindows)

    @property
    def simulates(self) -> bool:
        """Whether the watermark needs the records' order, and so the sequential core."""
        return not is_invertible(self.spec.strategy)

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline of the whole history, made once."""
        if self._saved is not None:
            return Timeline.restored(self._saved.told, self._saved.table, self._thresholds())
        made = self._make(self._thresholds())
        return made if self._earlier is None else made.after(self._earlier)

    def _thresholds(self) -> Thresholds:
        if self.merges:
            if self.simulates or self._exact_positions:
                return exact_thresholds()
            return coarse_thresholds(self.history.event_times)
        regular = grid_thresholds(end_grid(self.spec.windows), self.spec.allowed_lateness)
        return _and_gaps(regular, self.spec) if _has_gaps(self.spec) else regular

    def _make(self, thresholds: Thresholds) -> Timeline:
        partitions = len(self.spec.strategy.partitions)
        fits_in_memory = thresholds.fits_in_memory(self.history.event_times, partitions)
        make = simulate if self.simulates else partial(invert, fits_in_memory=fits_in_memory)
        if self.spec.restarts:
            return restarted_timeline(
                self._timeline_records,
                self.spec.restarts,
                self.history.processing_time_end,
                lambda life, until: make(
                    life, self.spec.strategy, thresholds, processing_time_end=until, held=self._held
                ),
                self._held,
            )
        return make(
            self._timeline_records,
            self.spec.strategy,
            thresholds,
            processing_time_end=self.history.processing_time_end,
            held=self._held,
            state=self._state,
        )

    def windows(self, span: TimeRange, band: Band | None = None, only: DataFrame | None = None) -> DataFrame:
        """The windows with a start in `span`; see `replay_windows` for the columns. Sessions have no band.

        `only` (keys, `window_start`, `window_end` in epoch ms, distinct) leaves all other windows out.
        """
        if self.merges:
            return self.sessions(span).windows
        if self.spec.mode is Mode.COMPLETE:
            return replay_windows(self._usable, self.spec, None, span)
        return replay_windows(self._usable, self.spec, self.timeline, span, band, only)

    def late(self, span: TimeRange, chosen: TimeRange | None = None, records: DataFrame | None = None) -> DataFrame:
        """The late records of windows with a start in `chosen` (default `span`); see `late_records`.

        `records` asks for the late ones among these alone.
        """
        chosen = chosen or span
        if self.merges:
            return self.sessions(span).late
        asked = self._usable if records is None else records.where(F.col(EVENT_TIME).isNotNull())
        late = late_records(asked, self.spec, self.timeline, span, chosen)
        return late.unionByName(self._late_between_windows(span, asked)) if _has_gaps(self.spec) else late

    def sessions(self, span: TimeRange) -> SessionReplay:
        """The sessions with a start in `span`; worked out once, for their windows and their late records."""
        if span not in self._sessions:
            self._sessions[span] = self._replay_sessions(span)
        return self._sessions[span]

    def _replay_sessions(self, span: TimeRange) -> SessionReplay:
        finer = FinerTimeline(self._make, self.timeline, self.simulates or self._exact_positions)
        return replay_sessions(
            self.history.records,
            self.spec,
            self.timeline,
            finer,
            self.cells,
            span,
            held=self._held,
            exact_positions=self._exact_positions,
        )

    @cached_property
    def cells(self) -> ThresholdCells:
        """What the timeline knows, laid out cell by cell along the history."""
        return ThresholdCells.around(self.timeline, self.history.event_times)

    @cached_property
    def _usable(self) -> DataFrame:
        return self.history.records.where(F.col(EVENT_TIME).isNotNull())

    def missing_event_time(self) -> Position | None:
        """The first record without an event time, where that fails the live job (golden rule 29)."""
        if self.merges:
            return None
        missing = self.history.records.where(F.col(EVENT_TIME).isNull())
        if self.spec.after_watermark:
            missing = missing.where(self.spec.after_watermark)
        first = missing.agg(F.min(record_position(missing).as_struct())).collect()[0][0]
        return None if first is None else (first[0], first[1], first[2])

    def _late_between_windows(self, span: TimeRange, records: DataFrame) -> DataFrame:
        """Records that fall between windows (slide > size) and are behind: late by rule 20, in no window."""
        windows, lateness = self.spec.windows, self.spec.allowed_lateness
        if self.spec.after_watermark:
            records = records.where(self.spec.after_watermark)
        ts, start = F.col(EVENT_TIME), latest_start(windows)
        between = records.where(
            (ts >= start + F.lit(windows.size)) & (start >= F.lit(span.start)) & (start < F.lit(span.end))
        )
        if lateness == MAX_TIMESTAMP:  # Flink adds without a guard: the sum wraps around for ts > 0
            x = F.when(ts > 0, F.lit(MIN_TIMESTAMP) + (ts - F.lit(1))).otherwise(ts + F.lit(lateness))
        else:
            x = ts + F.lit(lateness)
        # The timeline tells every x apart, so the first point of a cell closes no later there than any x in it.
        earliest, _ = self.cells.around_close(x, between)
        perhaps = between.withColumn("rw_x", x).where(earliest.before(record_position(between)))
        placed = self.cells.closed(perhaps, "rw_x", "x", self.timeline)
        closed = PositionColumns.named("x")
        nothing = F.lit(None).cast("long")
        return placed.where(~record_position(placed).not_after(closed)).select(
            *self.spec.keys,
            *identity_columns(records),
            F.lit(0).cast("long").alias("windows_missed"),
            F.lit(True).alias("side_output"),
            nothing.alias(START),
            nothing.alias(END),
            (F.col(ARRIVAL) - closed.arrival).alias("missed_by"),
        )


def asks_for_old_closes(spec: ReplaySpec) -> bool:
    """Whether closes far below the watermark are asked for, of which an earlier run's state alone knows nothing.

    Sessions reach back from window to window. Between windows a lateness of "for ever" is added without a guard, and
    the sum wraps around to the lowest times there are (golden rule 20).
    """
    return isinstance(spec.windows, SessionWindows) or (_has_gaps(spec) and spec.allowed_lateness == MAX_TIMESTAMP)


def _has_gaps(spec: ReplaySpec) -> bool:
    return isinstance(spec.windows, SlidingWindows) and spec.windows.slide > spec.windows.size


def _and_gaps(regular: Thresholds, spec: ReplaySpec) -> Thresholds:
    """Between windows the close of every `ts + L` counts, at its own millisecond (golden rule 20)."""
    windows: SlidingWindows = spec.windows
    lateness = spec.allowed_lateness
    if lateness == MAX_TIMESTAMP:
        return regular

    def floor(value: Column, shift: int) -> Column:
        ts = value + F.lit(shift - lateness)
        start = latest_start(windows, ts)
        closes = F.when(ts >= start + F.lit(windows.size), ts).otherwise(start - F.lit(1))
        return F.greatest(regular.floor(value, shift), closes + F.lit(lateness - shift))

    return Thresholds(floor)


FIRED_COLUMNS = position_names(FIRED)
