"""Replay of session windows.

Records of one key that lie within the gap of each other form a *complete* session: what batch gives.
Nothing that the live job did to one complete session can touch another, so each is decided alone. If none
of its records was behind the watermark when it arrived, the live job emitted exactly this session, once:
set operations find these. The others, few, are decided in Python workers (golden rules 24 to 28), which tell Spark
which records to aggregate together: `spark_jobs.replay.session_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, reduce

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.wall_clock import WallClockSessions
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.assign import END, START, closing, in_window_time, out_of_order, session_gap
from spark_jobs.replay.columns import (
    ARRIVAL,
    DROPPED,
    EVENT_TIME,
    FIRED,
    LATE,
    MICROS,
    NEVER,
    OFFSET,
    ON_TIME,
    PANE,
    PARTITION,
    STATE,
    Position,
    PositionColumns,
    admitted,
    identity_columns,
    is_within,
    long_arrays,
    position_names,
    record_position,
)
from spark_jobs.replay.grid import RegularGrid, divided
from spark_jobs.replay.in_memory_timeline import MAX_IN_MEMORY
from spark_jobs.replay.session_groups import replay_groups
from spark_jobs.replay.session_members import GROUP, SESSION_ROWS, RowKind
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec, complete_name
from spark_jobs.replay.timeline import CloseArrays, Thresholds, Timeline
from spark_jobs.replay.windows import no_state
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.joins import OTHER, others, same
from spark_jobs.spark.texts import as_text

SESSION_START = "rw_ts"
SESSION_END = "rw_end"
"""The bounds of a record's own session, before any merge (ms)."""
SESSION_NUMBER = "rw_session"
"""Which of its key's complete sessions a row is a part of."""
_TS = SESSION_START
_END = SESSION_END
_QUERY = "rw_query"
_BEHIND = "rw_behind"
_FEW_SESSIONS = 200_000
"""As many sessions at most are sent to every task, less than 100 MB; then their records are found without a shuffle."""
_GROUP_BYTES = 16
"""The first bytes of a digest that name a session; they lie beside each of its records."""
_CELLS = 200_000
"""The number of cells that a history is divided into, where the timeline of all partitions fits the driver's memory."""
_FEW_CELLS = 20_000
"""Their number at least; then the timeline of many partitions stays in Spark."""
_FORMER_CELLS = 200_000
"""Their number in timelines that were kept before the step of the cells was kept with them."""


@dataclass(frozen=True)
class SessionReplay:
    """Sessions (columns as `replay_windows`), late records (as `late_records`), and the failure, if any.

    The position at which a session fired is null unless exact positions were requested: most sessions are decided
    without it, and which ones depends on the grid. `failure` is the position at which Flink would have failed the job
    (rule 28). `handed_over`: how many sessions went through the sequential operator.
    """

    windows: DataFrame
    late: DataFrame
    failure: Position | None
    handed_over: int


@dataclass(frozen=True, slots=True)
class ThresholdCells:
    """Close positions all along a history: for the first point of each cell of a grid, or to the millisecond.

    One more cell holds the times before the grid's first point; the last cell holds all times after its last point.
    """

    grid: RegularGrid
    low: int
    high: int
    closes: CloseArrays

    @classmethod
    def around(cls, timeline: Timeline, times: TimeRange, step: int) -> ThresholdCells:
        """The cells of a history with these event times; `timeline` must be exact for their first points.

        `step`: their length (ms), where the timeline was made for these cells alone, else 0.
        """
        grid = RegularGrid(step or _step(times, _CELLS))
        first = grid.first_index_at_or_after(times.start) - 2
        count = grid.first_index_at_or_after(times.end) - first + 3
        low, high = (int(grid.ends(number, 1)[0]) for number in (first, first + count - 1))
        return cls(grid, low, high, timeline.close_arrays(grid, first, count, shift=1))  # C at each point itself

    def of(self, time: Column) -> Column:
        """The first point of the cell that holds `time`."""
        return self.grid.floor(F.least(F.greatest(time, F.lit(self.low - self.grid.step)), F.lit(self.high)))

    def closed_before(self, time: Column, frame: DataFrame) -> PositionColumns:
        """C of the first point of the cell that holds `time`: no later than C(time). Null before the grid."""
        return self.closes.at(self.of(time), frame)

    def closed_after(self, time: Column, frame: DataFrame) -> PositionColumns:
        """C of the next cell's first point: no earlier than C(time). Null where there is none."""
        return self.closes.at(self.of(time) + F.lit(self.grid.step), frame)

    def around_close(self, time: Column, frame: DataFrame) -> tuple[PositionColumns, PositionColumns]:
        """Two positions between which C(time) lies, both included; the same at a cell's first point."""
        at_point = self.closed_before(time, frame)
        at_next = self.closed_after(time, frame)
        is_point = (time == self.of(time)) & at_point.arrival.isNotNull()
        earliest = (F.coalesce(part, F.lit(MIN_TIMESTAMP)) for part in at_point.parts)
        latest = (
            F.when(is_point, known).otherwise(F.coalesce(later, F.lit(NEVER)))
            for known, later in zip(at_point.parts, at_next.parts, strict=True)
        )
        return PositionColumns(*earliest), PositionColumns(*latest)

    def closed(self, frame: DataFrame, x: str, prefix: str, timeline: Timeline) -> DataFrame:
        """Add `{prefix}_arrival/_major/_minor`: C of the column `x`, at its own millisecond.

        `timeline` must be exact in the cells that hold `x`. In each cell the rows are sorted together with the
        timeline's steps; the cell's first point has the maximum of all steps before.
        """
        position = PositionColumns(F.col("arrival"), F.col("major"), F.col("minor")).as_struct()
        queries = _in_cell(self, frame, x, F.struct("*").alias(_QUERY))
        steps = _in_cell(self, timeline.rows(frame.sparkSession), "x_from", position.alias("rw_closed"))
        order = Window.partitionBy("rw_cell").orderBy("rw_x_from", F.col(_QUERY).isNotNull())
        reached = F.max("rw_closed").over(order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
        answered = queries.unionByName(steps, allowMissingColumns=True).withColumn("rw_closed", reached)
        before = self.closed_before(F.col("rw_x_from"), frame).as_struct()
        found = answered.where(F.col(_QUERY).isNotNull()).withColumn("rw_closed", F.greatest("rw_closed", before))
        return found.select(f"{_QUERY}.*", *PositionColumns.of_struct(F.col("rw_closed")).aliased(prefix))


def _in_cell(cells: ThresholdCells, frame: DataFrame, time: str, value: Column) -> DataFrame:
    return frame.select(cells.of(F.col(time)).alias("rw_cell"), F.col(time).alias("rw_x_from"), value)


class FinerTimeline:
    """Makes a timeline that is exact to the millisecond in some cells; see `spark_jobs.replay.engine`."""

    def __init__(self, make: Callable[[Thresholds], Timeline], coarse: Timeline, is_exact: bool) -> None:
        self._make = make
        self.coarse = coarse
        self._is_exact = is_exact

    def exact_at(self, times: DataFrame, cells: ThresholdCells) -> Timeline:
        """A timeline that is exact for the `times` (column `x`), and for the first point of each cell that holds one.

        A cell with several of them is exact to the millisecond, one without any has no threshold at all.
        """
        if self._is_exact:
            return self.coarse
        of_cell = times.groupBy(cells.of(F.col("x")).alias("cell")).agg(F.min("x").alias("x"), F.max("x").alias("last"))
        table = of_cell.where(F.col("cell") >= F.lit(cells.low)).toArrow()
        if not table.num_rows:
            return self.coarse
        step = cells.grid.step
        cell, x, last = (table.column(name).to_numpy() for name in ("cell", "x", "last"))
        index = (cell - cells.low) // step
        count = (cells.high - cells.low) // step + 1
        only = np.full(count, MAX_TIMESTAMP, dtype=np.int64)  # no value reaches it
        only[index] = np.where(x == last, x, MIN_TIMESTAMP)
        below = np.full(count, cells.low - step, dtype=np.int64)
        below[index] = np.where(x == last, x, cell + (step - 1))
        below = np.maximum.accumulate(np.append(cells.low - step, below[:-1]))
        below[index] = cell
        arrays = long_arrays(times, {"only": only, "below": below})

        def floor(value: Column, shift: int) -> Column:
            reached = value + F.lit(shift)
            at = divided(cells.of(reached) - F.lit(cells.low), step).cast("int")
            single, lower = (F.get(arrays[name], at) for name in ("only", "below"))
            inside = F.when(single == F.lit(MIN_TIMESTAMP), reached).when(reached >= single, single).otherwise(lower)
            return F.when(at < 0, cells.grid.floor(reached)).otherwise(inside) - F.lit(shift)

        many = int((x != last).sum())
        most = 2 * len(cell) + many * step + 2
        return self._make(Thresholds(floor, (cells.high - cells.low) // most))


def _step(times: TimeRange, cells: int) -> int:
    return max(1, (times.end - times.start) // cells)


def coarse_thresholds(times: TimeRange, partitions: int) -> Thresholds:
    """The first points of cells that are fine enough to decide most sessions."""
    return _first_points(_step(times, min(_CELLS, max(_FEW_CELLS, MAX_IN_MEMORY // max(1, partitions) - 3))))


def kept_thresholds(times: TimeRange, step: int | None) -> Thresholds:
    """Thresholds of a timeline that another process has kept; `step` is the width of its cells (ms)."""
    return _first_points(step or _step(times, _FORMER_CELLS))


def _first_points(step: int) -> Thresholds:
    return Thresholds(RegularGrid(step).floor, step, step)


def with_sessions_columns(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    """Add the start of the record's own session, with a missing time as Flink has it, and its end.

    In a wall clock's time there is no missing one: Flink SQL fails the job.
    """
    records, windows = in_window_time(admitted(records, spec.after_watermark), spec.windows), spec.session_windows
    gap, ts = session_gap(windows, records), F.coalesce(F.col(EVENT_TIME), F.lit(MIN_TIMESTAMP))
    if isinstance(windows, WallClockSessions):
        records = records.where(F.col(EVENT_TIME).isNotNull())
    return records.withColumn(_TS, ts).withColumn(_END, F.col(_TS) + gap)


def in_micros(records: DataFrame, time: str) -> Column:
    """A bound of a record's own session in the unit in which the live job compares it: microseconds, or as it is."""
    return F.col(time) * F.lit(1000) + F.col(MICROS) if MICROS in records.columns else F.col(time)


def with_session_numbers(parts: DataFrame, spec: ReplaySpec, start: str, end: str) -> DataFrame:
    """Add `SESSION_NUMBER`: rows of a key that overlap or touch, from their `start` to their `end`, have one number."""
    keys = ", ".join(f"`{key}`" for key in spec.keys)
    by = f"PARTITION BY {keys} ORDER BY {start}" if keys else f"ORDER BY {start}"
    reach = F.expr(f"max({end}) OVER ({by} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)")
    number = F.expr(f"sum(rw_new) OVER ({by} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)")
    begins = F.when(reach.isNull() | (F.col(start) > reach), 1).otherwise(0)
    return parts.withColumn("rw_new", begins).withColumn(SESSION_NUMBER, number)


def sessionize(records: DataFrame, spec: ReplaySpec, suspicious: Column) -> DataFrame:
    """Complete sessions: keys, window_start, window_end, complete aggregates, count, `rw_suspicious`."""
    bounds = {"rw_from": in_micros(records, _TS), "rw_to": in_micros(records, _END)}
    numbered = with_session_numbers(records.withColumns({"rw_suspicious": suspicious, **bounds}), spec, *bounds)
    values = [F.expr(text).alias(complete_name(name)) for name, text in spec.aggregates.items()]
    return (
        numbered.groupBy(*spec.keys, SESSION_NUMBER)
        .agg(
            F.min(_TS).alias(START),
            F.max(_END).alias(END),
            *values,
            F.expr("count(*)").alias("rw_all"),
            F.max("rw_suspicious").alias("rw_suspicious"),
        )
        .drop(SESSION_NUMBER)
    )


def replay_sessions(
    records: DataFrame,
    spec: ReplaySpec,
    timeline: Timeline,
    finer: FinerTimeline,
    cells: ThresholdCells,
    span: TimeRange,
    times: TimeRange,
    *,
    cache: CachedFrames,
    exact_positions: bool,
) -> SessionReplay:
    """Sessions with a start in `span`. `timeline` must be exact for the first points of the `cells`.

    `times`: the event times that occur. `exact_positions`: look up the position of every firing.
    """
    base = spec.rules.session_records(with_sessions_columns(records, spec), spec)
    flushes = spec.flush and timeline.flushes
    complete_alone = spec.mode is Mode.COMPLETE  # whatever was late: a history may have no order
    suspicious, frontier = F.lit(False), F.lit(False)
    if not complete_alone:
        suspicious, frontier = spec.session_rules.suspicion(base, spec, cells, flushes)
    for read in _ranges_to_read(spec, span, times):
        part = base if read is None else read.of(base)
        sessions = _overlapping(sessionize(part, spec, suspicious), span)
        if read is None and complete_alone:
            break
        sessions = cache.keep(sessions.withColumn("rw_dirty", F.col("rw_suspicious") | frontier))
        length = F.sum(F.when(F.col("rw_dirty"), F.col(END) - F.col(START)))
        cut = F.lit(0) if read is None else F.count_if(read.may_cut())
        handed_over, length, cut_off = sessions.agg(F.count_if("rw_dirty"), length, cut).collect()[0]
        if not cut_off:
            break
    if complete_alone:
        whole = sessions.drop("rw_suspicious", "rw_dirty").withColumnRenamed("rw_all", ON_TIME).select("*", no_state())
        return SessionReplay(_chosen(whole, span), _no_late_rows(base, spec), None, 0)
    dirty = sessions.where("rw_dirty")
    clean = _clean_rows(sessions.where(~F.col("rw_dirty")), spec)
    if exact_positions:
        clean = _with_positions(clean, spec, cells, timeline)
    if not handed_over:
        return SessionReplay(_chosen(clean, span), _no_late_rows(base, spec), None, 0)

    group = F.unhex(F.sha2(as_text(*(f"`{key}`" for key in spec.keys), START), 256)).substr(1, _GROUP_BYTES)
    marked = dirty.withColumn(GROUP, group)
    members = cache.keep(members_of(part, marked, spec, max(1, length // handed_over), handed_over))
    work = SessionWork(spec, finer, cells, flushes, cache, exactly=exact_positions)
    classified, exact_timeline = spec.session_rules.operate_sessions(members, work)
    failed = classified.where(_is(RowKind.FAILURE)).agg(F.min(F.struct(*position_names("f")))).collect()[0][0]
    failure = None if failed is None else Position(*failed)
    faithful = _faithful_rows(classified, members, spec)
    late = _late_rows(classified, members, spec, span, cells, exact_timeline)
    combined = _with_complete(faithful, marked, classified, spec)
    if not exact_positions:
        combined = combined.withColumns(_no_position())
    return SessionReplay(_chosen(clean.unionByName(combined), span), late, failure, handed_over)


_GAPS_AROUND = 32
_WIDER = 8


@dataclass(frozen=True, slots=True)
class _RangeToRead:
    """Records of these event times are enough, if no session in question comes near the ends. `gap` in ms."""

    times: TimeRange
    gap: int

    def of(self, records: DataFrame) -> DataFrame:
        """The records with these event times, and those without one."""
        inside = is_within(F.col(_TS), self.times)
        return records.where(inside | (F.col(_TS) == F.lit(MIN_TIMESTAMP)))

    def may_cut(self) -> Column:
        """Whether a record that was not read may belong to the session."""
        near_start = F.col(START) < F.lit(self.times.start + self.gap)
        near_end = F.col(END) >= F.lit(self.times.end)
        return (near_start | near_end) & (F.col(START) != F.lit(MIN_TIMESTAMP))


def _ranges_to_read(spec: ReplaySpec, span: TimeRange, times: TimeRange) -> Iterator[_RangeToRead | None]:
    """Ever wider ranges of event times around `span`, while they are less than half of `times`; at last None: all.

    A session can be longer than any range, so each one is tried. Gaps by expression have no bound: all is read.
    """
    gap = spec.session_windows.longest_gap
    if gap is not None:
        around = max(_GAPS_AROUND * gap, (span.end - span.start) // _WIDER, 1)
        while 2 * (span.end - span.start + 2 * around) < times.end - times.start:
            yield _RangeToRead(TimeRange(span.start - around, span.end + around), gap)
            around *= _WIDER
    yield None


def _overlapping(sessions: DataFrame, span: TimeRange) -> DataFrame:
    """The complete sessions that can hold one with a start in `span`."""
    overlaps = (F.col(START) < F.lit(span.end)) & (F.col(END) > F.lit(span.start))
    return sessions.where(overlaps | (F.col(START) == F.lit(MIN_TIMESTAMP)))


def _chosen(rows: DataFrame, span: TimeRange) -> DataFrame:
    in_span = is_within(F.col(START), span)
    return rows.where(in_span | (F.col(START) == F.lit(MIN_TIMESTAMP)))


def suspicion(base: DataFrame, spec: ReplaySpec, cells: ThresholdCells, flushes: bool) -> tuple[Column, Column]:
    """Whether a record may have been behind the watermark, and whether a session may still be open.

    Both may be true needlessly, by less than a grid cell. A record with `r <= C(ts - 1)` touches no session
    that has fired: that one would end at or after `ts`, so the watermark would be at or above `ts - 1`. In a wall
    clock's time that is the soonest close of all that end there or later.
    """
    placed = F.greatest(F.col(_TS), F.lit(MIN_TIMESTAMP + 1))  # nothing is before a missing time
    soonest = closing(spec.windows, placed) - F.lit(out_of_order(spec.windows))
    closed_before = cells.closed_before(F.greatest(soonest, F.lit(cells.low)), base)
    suspicious = (soonest < F.lit(cells.low)) | ~record_position(base).not_after(closed_before)
    if flushes:
        return suspicious, F.lit(False)
    close = closing(spec.windows, F.col(END))
    upper = cells.closed_after(F.greatest(close, F.lit(cells.low)), base)
    beyond = close >= F.lit(cells.high - cells.grid.step - 1)
    return suspicious, beyond | upper.arrival.isNull() | (upper.arrival == F.lit(NEVER))


def _clean_rows(sessions: DataFrame, spec: ReplaySpec) -> DataFrame:
    """Emitted once, as they are complete: nothing late, nothing dropped, one pane."""
    return sessions.select(
        *spec.keys,
        START,
        END,
        *(F.col(complete_name(name)).alias(name) for name in spec.aggregates),
        *(F.col(complete_name(name)) for name in spec.aggregates if spec.mode is Mode.BOTH),
        F.col("rw_all").alias(ON_TIME),
        F.lit(0).cast("long").alias(LATE),
        F.lit(0).cast("long").alias(DROPPED),
        F.lit(0).alias(PANE),
        F.lit("closed").alias(STATE),
    ).withColumns(_no_position())


def _no_position() -> dict[str, Column]:
    return dict.fromkeys(position_names(FIRED), F.lit(None).cast("long"))


def _with_positions(clean: DataFrame, spec: ReplaySpec, cells: ThresholdCells, timeline: Timeline) -> DataFrame:
    """Where each of them fired."""
    unplaced = clean.drop(*_no_position()).withColumn("rw_x", closing(spec.windows, F.col(END)))
    return cells.closed(unplaced, "rw_x", FIRED, timeline).drop("rw_x")


def members_of(base: DataFrame, sessions: DataFrame, spec: ReplaySpec, span: int, count: int) -> DataFrame:
    """The records of the `count` complete sessions, with the session's group where it has one.

    A key may have thousands of these sessions: records meet only those that touch the same span of time. With spans as
    long as sessions are on average (ms), few sessions of a key touch one span, and few spans one session.
    """
    first, last = (divided(time, span) for time in (F.col(START), F.col(END) - F.lit(1)))
    groups = [GROUP] if GROUP in sessions.columns else []
    sessions = sessions.select(
        *others(spec.keys),
        F.col(START).alias("rw_low"),
        F.col(END).alias("rw_high"),
        F.explode(F.sequence(first, last)).alias("rw_span"),
        *groups,
    )
    meets = divided(F.col(_TS), span) == F.col("rw_span")
    inside = (F.col(_TS) >= F.col("rw_low")) & (F.col(_TS) < F.col("rw_high"))
    if count <= _FEW_SESSIONS:
        sessions = F.broadcast(sessions)
    joined = base.join(sessions, [*same(spec.keys), meets, inside])
    return joined.drop("rw_low", "rw_high", "rw_span", *(f"{OTHER}{key}" for key in spec.keys))


@dataclass(frozen=True, slots=True)
class SessionWork:
    """What the sequential operator needs beside the records. `exactly`: to the millisecond, for all sessions."""

    spec: ReplaySpec
    finer: FinerTimeline
    cells: ThresholdCells
    flushes: bool
    cache: CachedFrames
    exactly: bool


def operate(members: DataFrame, work: SessionWork) -> tuple[DataFrame, Timeline]:
    """What the live job made of each session that needs a look; and a timeline that is exact for its late records.

    What matters is on which side of a session's records each of its closes lies. Mostly the cells' first points show
    it. Closes are looked up to the millisecond for the other sessions, or for all (`exactly`).
    """
    spec, finer, cells, cache = work.spec, work.finer, work.cells, work.cache
    lateness = spec.allowed_lateness
    queried = members.select(
        GROUP,
        PARTITION,
        OFFSET,
        _TS,
        _END,
        *record_position(members).aliased("r"),
        closing(spec.windows, F.col(_END)).alias("rw_x_end"),
        _cleanup(F.col(_END), spec).alias("rw_x_cleanup"),
        F.coalesce(suspicion(members, spec, cells, work.flushes)[0], F.lit(True)).alias(_BEHIND),
    )
    columns = ["rw_x_end"] if lateness == 0 else ["rw_x_end", "rw_x_cleanup"]
    all_panes = spec.panes is Panes.ALL
    zone = spec.windows.zone if isinstance(spec.windows, WallClockSessions) else None
    run = partial(replay_groups, allowed_lateness=lateness, flush=work.flushes, all_panes=all_panes, zone=zone)

    def classified(placed: DataFrame, closes: list[str]) -> DataFrame:
        ordered = placed.repartition(F.col(GROUP)).sortWithinPartitions(GROUP, *position_names("r"))
        parts = [part for close in closes for part in position_names(close)]
        rows = ordered.select(GROUP, PARTITION, OFFSET, _TS, _END, *position_names("r"), *parts, _BEHIND)
        return cache.keep(rows.mapInArrow(run, SESSION_ROWS))

    def classified_exactly(queried: DataFrame, timeline: Timeline) -> DataFrame:
        for x in columns:
            queried = cells.closed(queried, x, x, timeline)
        return classified(queried, [x for x in columns for _ in ("earliest", "latest")])

    if work.exactly:
        return classified_exactly(queried, finer.coarse), finer.coarse
    placed = queried
    for x in columns:
        earliest, latest = cells.around_close(F.col(x), queried)
        placed = placed.select("*", *earliest.aliased(f"{x}_earliest"), *latest.aliased(f"{x}_latest"))
    first = classified(placed, [f"{x}_{bound}" for x in columns for bound in ("earliest", "latest")])
    unclear = queried.join(first.where(_is(RowKind.UNCLEAR)).select(GROUP), GROUP, "left_semi")
    late = first.where(_is(RowKind.LATE)).select(_cleanup(F.col(END), spec).alias("x"))
    times = reduce(DataFrame.unionByName, (unclear.select(F.col(x).alias("x")) for x in columns), late)
    timeline = finer.exact_at(times, cells)
    return first.where(~_is(RowKind.UNCLEAR)).unionByName(classified_exactly(unclear, timeline)), timeline


def _is(kind: RowKind) -> Column:
    return F.col("kind") == F.lit(kind.value)


def _cleanup(end: Column, spec: ReplaySpec) -> Column:
    """When the state of a session with this end is deleted; the lateness "forever" wraps around, as in Flink."""
    close, lateness = closing(spec.windows, end), spec.allowed_lateness
    return F.lit(MIN_TIMESTAMP) + (close - F.lit(1)) if lateness == MAX_TIMESTAMP else close + F.lit(lateness)


def _faithful_rows(classified: DataFrame, members: DataFrame, spec: ReplaySpec) -> DataFrame:
    of_window = classified.where(_is(RowKind.MEMBER))
    renamed = of_window.select(*(F.col(c).alias(f"rw_m_{c}") for c in of_window.columns))
    same = (
        (F.col(f"rw_m_{GROUP}") == F.col(GROUP))
        & (F.col("rw_m_partition") == F.col(PARTITION))
        & (F.col("rw_m_offset") == F.col(OFFSET))
    )
    joined = members.join(renamed, same)
    values = [F.expr(text).alias(name) for name, text in spec.aggregates.items()]
    return joined.groupBy(
        GROUP,
        *spec.keys,
        *(F.col(f"rw_m_{c}").alias(c) for c in (START, END, PANE)),
    ).agg(
        *values,
        F.count_if(~F.col("rw_m_late")).alias(ON_TIME),
        F.count_if("rw_m_late").alias(LATE),
        *PositionColumns(*map(F.min, position_names("rw_m_f"))).aliased(FIRED),
    )


def _with_complete(faithful: DataFrame, marked: DataFrame, classified: DataFrame, spec: ReplaySpec) -> DataFrame:
    """Faithful sessions beside the complete one where they are the same window; the rest stand alone."""
    outcomes = classified.groupBy(F.col(GROUP).alias("rw_classified_group")).agg(
        F.count_if(_is(RowKind.LATE)).alias("rw_lost"), F.count_if(_is(RowKind.MEMBER)).alias("rw_members")
    )
    complete = marked.join(outcomes, F.col(GROUP) == F.col("rw_classified_group"), "left").select(
        F.col(GROUP).alias("c_group"),
        *(F.col(k).alias(f"c_key_{i}") for i, k in enumerate(spec.keys)),
        F.col(START).alias("c_start"),
        F.col(END).alias("c_end"),
        *(complete_name(name) for name in spec.aggregates),
        "rw_all",
        "rw_members",
        F.coalesce("rw_lost", F.lit(0)).alias("c_dropped"),
    )
    same = (F.col(GROUP) == F.col("c_group")) & (F.col(START) == F.col("c_start")) & (F.col(END) == F.col("c_end"))
    how = "full" if spec.mode is Mode.BOTH else "left"
    joined = faithful.join(complete, same, how)
    emitted = F.col(GROUP).isNotNull()
    zero = F.lit(0).cast("long")
    return joined.select(
        *(F.when(emitted, F.col(k)).otherwise(F.col(f"c_key_{i}")).alias(k) for i, k in enumerate(spec.keys)),
        F.coalesce(START, "c_start").alias(START),
        F.coalesce(END, "c_end").alias(END),
        *(F.col(name) for name in spec.aggregates),
        *(F.col(complete_name(name)) for name in spec.aggregates if spec.mode is Mode.BOTH),
        F.coalesce(ON_TIME, zero).alias(ON_TIME),
        F.coalesce(LATE, zero).alias(LATE),
        F.coalesce("c_dropped", zero).alias(DROPPED),
        PANE,
        F.when(emitted, "closed")
        .when(F.col("c_dropped") == F.col("rw_all"), "all_late")
        .when(F.col("rw_members") > 0, "not_emitted")
        .otherwise("open")
        .alias(STATE),
        *position_names(FIRED),
    )


def _no_late_rows(base: DataFrame, spec: ReplaySpec) -> DataFrame:
    """No rows, in the columns of `_late_rows`."""
    return base.where(F.lit(False)).select(
        *spec.keys,
        *identity_columns(base),
        F.lit(1).cast("long").alias("windows_missed"),
        F.lit(True).alias("side_output"),
        F.col(_TS).alias(START),
        F.col(_END).alias(END),
        F.lit(None).cast("long").alias("missed_by"),
    )


def _late_rows(
    classified: DataFrame,
    members: DataFrame,
    spec: ReplaySpec,
    span: TimeRange,
    cells: ThresholdCells,
    timeline: Timeline,
) -> DataFrame:
    late = classified.where(_is(RowKind.LATE)).select(
        F.col(GROUP).alias("l_group"),
        F.col("partition").alias("l_partition"),
        F.col("offset").alias("l_offset"),
        START,
        END,
        _cleanup(F.col(END), spec).alias("rw_x"),
    )
    late = cells.closed(late, "rw_x", "l", timeline)
    same = (
        (F.col("l_group") == F.col(GROUP))
        & (F.col("l_partition") == F.col(PARTITION))
        & (F.col("l_offset") == F.col(OFFSET))
    )
    rows = members.join(late, same).select(
        *spec.keys,
        *identity_columns(members),
        F.lit(1).cast("long").alias("windows_missed"),
        F.lit(True).alias("side_output"),
        START,
        END,
        (F.col(ARRIVAL) - F.col("l_arrival")).alias("missed_by"),
    )
    return _chosen(rows, span)
