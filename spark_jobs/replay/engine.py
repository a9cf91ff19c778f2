"""The replay of one history: first its timeline, then windows and late records, which only read the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.assign import END, START, in_instants, in_window_time, latest_start, out_of_order
from spark_jobs.replay.band import Band
from spark_jobs.replay.columns import (
    ARRIVAL,
    EVENT_TIME,
    FIRED,
    PositionColumns,
    admitted,
    identity_columns,
    is_within,
    position_names,
    record_position,
)
from spark_jobs.replay.deduplication import Closes, Deduplication, duplicates_in, is_kept, without
from spark_jobs.replay.grid import end_grid
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.rule_book import TASKS, GoneOn, OwnReplay, TimelineRequest
from spark_jobs.replay.sessions import (
    FinerTimeline,
    SessionReplay,
    ThresholdCells,
    coarse_thresholds,
    kept_thresholds,
    replay_sessions,
)
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline, exact_thresholds, grid_thresholds
from spark_jobs.replay.windows import complete_windows, late_records, replay_windows
from spark_jobs.spark.cached import CachedFrames


@dataclass(frozen=True)
class History:
    """Canonical records up to the end offsets, with facts from the plan (epoch ms).

    `event_times` spans the event times that occur. `processing_time_end` is the time up to which the live job's timer
    runs: the last arrival, or later where the end offsets are later.
    """

    records: DataFrame
    event_times: TimeRange
    processing_time_end: int


@dataclass(frozen=True)
class SavedTimeline:
    """The timeline of this same replay as another process saved it: `Timeline.to_document`, and its rows."""

    document: Mapping[str, Any]
    table: DataFrame | InMemoryTimeline


class Replay:
    """One replay. Use it as a context manager: it caches tables in Spark, and frees them at the end.

    Args:
        history: The records that the windows need.
        spec: What to compute.
        state: The timeline state of an earlier run (`Timeline.state`) to continue from.
        timeline_records: With `state`: the records that came after that run. Default: all of the history.
        exact_positions: Whether to look up the position of every firing of sessions, also of those that lost nothing.
        earlier: With `state`: the steps of that run's timeline. Only they know the closes that its watermark had
            passed; without them no such close may be looked up (see `needs_old_closes`).
        saved: The timeline itself, where another process has made it.
        set_aside: What `set_aside` gave in another process.
        is_placed: The history's records have gone through the rule book's `placed` already.
        gone_on: With `state`: the run that it goes on from, where the order of each partition decides.
    """

    def __init__(
        self,
        history: History,
        spec: ReplaySpec,
        *,
        state: Mapping[str, Any] | None = None,
        timeline_records: DataFrame | None = None,
        exact_positions: bool = False,
        earlier: InMemoryTimeline | None = None,
        saved: SavedTimeline | None = None,
        set_aside: DataFrame | None = None,
        is_placed: bool = False,
        gone_on: GoneOn | None = None,
    ) -> None:
        self._given = history
        self._not_placed = None if is_placed else history.records
        self.history = history if is_placed else replace(history, records=spec.rules.placed(history.records))
        self.history = replace(self.history, records=spec.rules.read(self.history.records, spec))
        self.spec = spec
        self._state = dict(state) if state else None
        self._timeline_records = (
            self.history.records if timeline_records is None else spec.rules.read(timeline_records, spec)
        )
        self._exact_positions = exact_positions
        self._earlier = earlier
        self._saved = saved
        self._set_aside = set_aside
        self._gone_on = gone_on
        self._cache = CachedFrames()
        self._sessions: dict[TimeRange, SessionReplay] = {}

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *_: object) -> None:
        self._cache.release()
        self._sessions.clear()

    @property
    def merges(self) -> bool:
        """Whether the windows are sessions."""
        return self.spec.has_sessions

    @cached_property
    def _own(self) -> OwnReplay | None:
        return self.spec.rules.own_replay(self.history.records, self.spec, self._cache, self._gone_on)

    @cached_property
    def entering(self) -> DataFrame:
        """The records that come to the windows: no duplicates, and none that was late for a deduplication."""
        records = self.deduplicated
        return records if self.spec.deduplication is None else records.where(is_kept(records))

    @cached_property
    def duplicates(self) -> int | None:
        """How many records of the history the live job dropped as duplicates; None: it has no deduplication."""
        return None if self.set_aside is None else duplicates_in(self.set_aside)

    @cached_property
    def set_aside(self) -> DataFrame | None:
        """The places of the records that a deduplication does not let through, found once; None: there is none."""
        if self.spec.deduplication is None:
            return None
        if self._set_aside is not None:
            return self._cache.keep(self._set_aside)
        return self._cache.keep(self.set_aside_of(self.spec.deduplication, self.history.records))

    def set_aside_of(self, deduplication: Deduplication, records: DataFrame) -> DataFrame:
        """The places of those of these records that it does not let through."""
        closes = self._exact_closes if deduplication.needs_closes else None
        return deduplication.set_aside(records, self.spec.after_watermark, closes)

    @cached_property
    def _exact_closes(self) -> Closes:
        """Closes to the millisecond, of a timeline of its own: the windows need no such one."""
        exact = self._make(exact_thresholds())
        cells = ThresholdCells.around(exact, self.history.event_times, 0)
        return partial(cells.closed, timeline=exact)

    @cached_property
    def deduplicated(self) -> DataFrame:
        """The records of the complete values; behind a deduplication `rw_kept` says which come to the windows."""
        return self._without_duplicates(self.history.records)

    def _without_duplicates(self, records: DataFrame) -> DataFrame:
        return records if self.set_aside is None else without(records, self.set_aside)

    @cached_property
    def timeline(self) -> Timeline:
        """The timeline of the whole history, computed once."""
        if self._saved is not None:
            return Timeline.restored(self._saved.document, self._saved.table, self._thresholds(self._saved))
        timeline = self._make(self._thresholds())
        if self._own is not None:
            timeline = replace(timeline, state={**timeline.state, TASKS: self._own.state()})
        return timeline if self._earlier is None else timeline.after(self._earlier)

    def with_last_panes(self) -> Replay:
        """A replay over this timeline with one row for each window, its last pane."""
        return self if self.spec.panes is Panes.LAST else self._with(replace(self.spec, panes=Panes.LAST))

    def with_aggregates(self, more: Mapping[str, str]) -> Replay:
        """A replay over this timeline with more aggregates (SQL by name)."""
        return self._with(replace(self.spec, aggregates={**self.spec.aggregates, **more}))

    def _with(self, spec: ReplaySpec) -> Replay:
        other = Replay(self.history, spec, is_placed=True, exact_positions=self._exact_positions)
        other.timeline, other.set_aside = self.timeline, self.set_aside
        other.has_own_timeline = self.has_own_timeline
        other._given, other._not_placed = self._given, self._not_placed
        return other

    def by(self, spec: ReplaySpec) -> Replay:
        """A replay of the same records by other rules; its timeline is made of these records."""
        return Replay(self._given, spec)

    def since(self, restart: int) -> Replay:
        """A replay of a job that begins with the records that arrived at `restart` (epoch ms) or later."""
        records = self._given.records.where(F.col(ARRIVAL) >= F.lit(restart))
        later = tuple(one for one in self.spec.restarts if one > restart)
        other = Replay(replace(self._given, records=records), replace(self.spec, restarts=later))
        other.set_aside = self.set_aside
        return other

    @cached_property
    def has_own_timeline(self) -> bool:
        """Whether the timeline is made of the history's records, and of nothing that an earlier process has kept."""
        return self._state is None and self._saved is None and self._timeline_records is self.history.records

    def _thresholds(self, kept: SavedTimeline | None = None) -> Thresholds:
        if self.merges:
            if self._exact_positions:
                return exact_thresholds()
            times = self.history.event_times
            if kept is not None:
                return kept_thresholds(times, kept.document.get("step"))
            return coarse_thresholds(times, len(self.spec.strategy.partitions))
        regular = grid_thresholds(end_grid(self.spec.aligned_windows), self.spec.allowed_lateness)
        regular = self.spec.rules.finer(regular, self.spec)
        return _and_gaps(regular, self.spec) if _has_gaps(self.spec) else regular

    def _make(self, thresholds: Thresholds) -> Timeline:
        return self.spec.rules.timeline(self.spec, self._request, thresholds)

    @cached_property
    def _request(self) -> TimelineRequest:
        return TimelineRequest(
            self._timeline_records,
            self.history.event_times,
            self.history.processing_time_end,
            self._cache,
            self._state,
        )

    def windows(self, span: TimeRange, band: Band | None = None, only: DataFrame | None = None) -> DataFrame:
        """The windows with a start in `span`; see `replay_windows` for the columns. Sessions have no band.

        `only` (keys, `window_start`, `window_end` in epoch ms, distinct) leaves all other windows out.
        """
        if self._own is not None:
            return self._own.windows(span)
        if self.merges:
            return self.sessions(span).windows
        if self.spec.mode is Mode.COMPLETE:
            return complete_windows(in_window_time(self._usable, self.spec.windows), self.spec, span)
        records = in_window_time(self._records_of(span, band), self.spec.windows)
        return replay_windows(records, self.spec, self.timeline, span, band, only)

    def handed_on(self, records: DataFrame, span: TimeRange) -> DataFrame:
        """The records with their times as the windows have them, and the position at which each comes to them."""
        times = TimeRange(span.start, span.end + 2 * self.spec.aligned_windows.longest)
        placed = in_window_time(records, self.spec.windows)
        return self.spec.rules.held_back(placed, self.spec, self.timeline, times)

    def _records_of(self, span: TimeRange, band: Band | None) -> DataFrame:
        """The records that decide windows with a start in `span`."""
        if self._not_placed is not None and (band is None or band.is_empty):
            unplaced = self.spec.rules.unplaced(self._not_placed, self.spec, span)
            if unplaced is not None:
                return unplaced.where(F.col(EVENT_TIME).isNotNull())
        return self._usable

    def late(self, span: TimeRange, chosen: TimeRange | None = None, records: DataFrame | None = None) -> DataFrame:
        """The late records of windows with a start in `chosen` (default `span`); see `late_records`.

        `records` restricts them to these records; it has no effect on sessions.
        """
        chosen = chosen or span
        if self._own is not None:
            return self._own.late(span, chosen)
        if self.merges:
            return in_instants(self.sessions(span).late)
        candidates = self._usable
        if records is not None:
            placed = self._without_duplicates(self.spec.rules.read(self.spec.rules.placed(records), self.spec))
            candidates = placed.where(F.col(EVENT_TIME).isNotNull())
        placed = in_window_time(candidates, self.spec.windows)
        late = in_instants(late_records(placed, self.spec, self.timeline, span, chosen))
        between = self.spec.rules.late_between_windows and _has_gaps(self.spec)
        return late.unionByName(self._late_between_windows(span, candidates)) if between else late

    def sessions(self, span: TimeRange) -> SessionReplay:
        """The sessions with a start in `span`; computed once, for their windows and their late records."""
        if span not in self._sessions:
            self._sessions[span] = self._replay_sessions(span)
        return self._sessions[span]

    def _replay_sessions(self, span: TimeRange) -> SessionReplay:
        finer = FinerTimeline(self._make, self.timeline, self._exact_positions)
        return replay_sessions(
            self.deduplicated,
            self.spec,
            self.timeline,
            finer,
            self.cells,
            span,
            self.history.event_times,
            cache=self._cache,
            exact_positions=self._exact_positions,
        )

    @cached_property
    def cells(self) -> ThresholdCells:
        """The timeline's close positions, cell by cell along the history."""
        step = self.timeline.thresholds.step if self.merges else 0
        return ThresholdCells.around(self.timeline, self.history.event_times, step)

    @cached_property
    def _usable(self) -> DataFrame:
        return self.deduplicated.where(F.col(EVENT_TIME).isNotNull())

    def _late_between_windows(self, span: TimeRange, records: DataFrame) -> DataFrame:
        """Records between two windows (slide > size) that are behind the watermark: late by rule 20, in no window."""
        windows, lateness = self.spec.aligned_windows, self.spec.allowed_lateness
        records = admitted(records, self.spec.after_watermark)
        ts, start = F.col(EVENT_TIME), latest_start(windows)
        if self.spec.deduplication is not None:
            records = records.where(is_kept(records))
        between = records.where((ts >= start + F.lit(windows.longest)) & is_within(start, span))
        if lateness == MAX_TIMESTAMP:  # Flink adds without a guard: the sum wraps around for ts > 0
            x = F.when(ts > 0, F.lit(MIN_TIMESTAMP) + (ts - F.lit(1))).otherwise(ts + F.lit(lateness))
        else:
            x = ts + F.lit(lateness)
        # The timeline is exact for every x here, so the first point of a cell closes no later than any x in it.
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


def needs_old_closes(spec: ReplaySpec) -> bool:
    """Whether the replay looks up closes far below the watermark, which an earlier run's state alone does not have.

    Sessions reach back from window to window. Between windows a lateness of "forever" is added without a guard, and
    the sum wraps around to the lowest times there are (golden rule 20). A deduplication compares each record with the
    watermark that it met. What a subtask holds back is known from the start alone.
    """
    if spec.deduplication is not None and spec.deduplication.needs_closes:
        return True
    if spec.rules.holds_back(spec) or out_of_order(spec.windows):
        return True
    return spec.has_sessions or (_has_gaps(spec) and spec.allowed_lateness == MAX_TIMESTAMP)


def _has_gaps(spec: ReplaySpec) -> bool:
    return not spec.has_sessions and spec.aligned_windows.leaves_gaps


def _and_gaps(regular: Thresholds, spec: ReplaySpec) -> Thresholds:
    """Between windows every `ts + L` is a threshold of its own, to the millisecond (golden rule 20)."""
    windows, lateness = spec.aligned_windows, spec.allowed_lateness
    if lateness == MAX_TIMESTAMP:
        return regular

    def floor(value: Column, shift: int) -> Column:
        ts = value + F.lit(shift - lateness)
        start = latest_start(windows, ts)
        closes = F.when(ts >= start + F.lit(windows.longest), ts).otherwise(start - F.lit(1))
        return F.greatest(regular.floor(value, shift), closes + F.lit(lateness - shift))

    return Thresholds(floor)


FIRED_COLUMNS = position_names(FIRED)
