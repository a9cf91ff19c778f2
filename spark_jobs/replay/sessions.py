"""Replay of session windows.

Records of one key that lie within the gap of each other form a *complete* session: what batch gives.
Nothing that the live job did to one complete session can touch another, so each is judged alone. If none
of its records was behind the watermark when it arrived, the live job emitted exactly this session, once:
that is decided set by set. The others, few, go through the sequential operator one by one (golden rules
24 to 28), and Spark aggregates what it says belongs together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.assign import END, START, Span
from spark_jobs.replay.columns import (
    ARRIVAL,
    EVENT_TIME,
    NEVER,
    OFFSET,
    PARTITION,
    Held,
    PositionColumns,
    identity_columns,
    long_arrays,
    record_position,
)
from spark_jobs.replay.grid import RegularGrid
from spark_jobs.replay.session_groups import GROUP, JUDGED, replay_groups
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec, complete_name
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.replay.windows import DROPPED, FIRED, LATE, ON_TIME, PANE, STATE

_TS = "rw_ts"
_END = "rw_end"


@dataclass(frozen=True)
class SessionReplay:
    """Sessions (columns as `replay_windows`), late records (as `late_records`), and the failure, if any.

    `failure` is the position at which Flink would have failed the job (rule 28), as (arrival, major, minor).
    """

    windows: DataFrame
    late: DataFrame | None
    failure: tuple[int, int, int] | None
    handed_over: int


class FinerTimeline:
    """Makes a timeline that is exact to the millisecond where asked; see `spark_jobs.replay.engine`."""

    def __init__(self, make, coarse: Timeline, is_exact: bool) -> None:
        self._make = make
        self._coarse = coarse
        self._is_exact = is_exact

    def exact_in(self, grid: RegularGrid, cells: DataFrame, frame: DataFrame) -> Timeline:
        """A timeline that tells every millisecond apart in the given cells (column `cell`, grid numbers)."""
        if self._is_exact:
            return self._coarse
        wanted = np.array(sorted(row[0] for row in cells.distinct().limit(2_000_000).collect()), dtype=np.int64)
        if not len(wanted):
            return self._coarse
        flags = np.zeros(int(wanted[-1] - wanted[0]) + 1, dtype=np.int64)
        flags[wanted - wanted[0]] = 1
        array = long_arrays(frame, {"flags": flags})["flags"]

        def floor(value: Column) -> Column:
            start = grid.floor(value)
            flag = F.get(array, (grid.index(start) - F.lit(int(wanted[0]))).cast("int"))
            return F.when(flag == 1, value).otherwise(start)

        return self._make(Thresholds(floor))


def cell_grid(span: Span, points: int = 200_000) -> RegularGrid:
    """A grid fine enough to tell most sessions from those that need a closer look."""
    return RegularGrid(max(1, (span.end - span.start) // points))


def coarse_thresholds(grid: RegularGrid) -> Thresholds:
    return Thresholds(grid.floor)


def with_sessions_columns(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    """Add the event time with "missing" as Flink has it, and the end of the record's own session."""
    if spec.after_watermark:
        records = records.where(spec.after_watermark)
    gap = F.expr(spec.gap_expression).cast("bigint") if spec.gap_expression else F.lit(spec.windows.gap)
    ts = F.coalesce(F.col(EVENT_TIME), F.lit(MIN_TIMESTAMP))
    return records.withColumn(_TS, ts).withColumn(_END, F.col(_TS) + gap)


def sessionize(records: DataFrame, spec: ReplaySpec, suspicious: Column) -> DataFrame:
    """Complete sessions: keys, window_start, window_end, complete aggregates, count, `rw_suspicious`."""
    keys = ", ".join(f"`{key}`" for key in spec.keys)
    by = f"PARTITION BY {keys} ORDER BY {_TS}" if keys else f"ORDER BY {_TS}"
    reach = F.expr(f"max({_END}) OVER ({by} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)")
    numbered = (
        records.withColumn("rw_suspicious", suspicious)
        .withColumn("rw_new", F.when(reach.isNull() | (F.col(_TS) > reach), 1).otherwise(0))
        .withColumn("rw_session", F.expr(f"sum(rw_new) OVER ({by} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"))
    )
    values = [F.expr(text).alias(complete_name(name)) for name, text in spec.aggregates.items()]
    return numbered.groupBy(*spec.keys, "rw_session").agg(
        F.min(_TS).alias(START), F.max(_END).alias(END), *values,
        F.expr("count(*)").alias("rw_all"), F.max("rw_suspicious").alias("rw_suspicious"),
    ).drop("rw_session")  # fmt: skip


def replay_sessions(
    records: DataFrame,
    spec: ReplaySpec,
    timeline: Timeline,
    finer: FinerTimeline,
    grid: RegularGrid,
    span: Span,
    *,
    held: Held,
    exact_positions: bool,
) -> SessionReplay:
    """Sessions with a start in `span`; `timeline` tells at least the points of `grid` apart.

    `exact_positions` looks every firing's position up (for conformance).
    """
    base = with_sessions_columns(records, spec)
    flushes = spec.flush and timeline.flushes
    suspicious, frontier = _suspicion(base, spec, timeline, grid, span, flushes)
    sessions = sessionize(base, spec, suspicious)
    if spec.mode is Mode.COMPLETE:
        return SessionReplay(_chosen(sessions.drop("rw_all", "rw_suspicious"), span), None, None, 0)
    needs_closer_look = F.col("rw_suspicious") | frontier
    sessions = held.keep(sessions.withColumn("rw_dirty", needs_closer_look))
    dirty = sessions.where("rw_dirty")
    handed_over = dirty.count()
    clean = _clean_rows(sessions.where(~F.col("rw_dirty")), spec, timeline if exact_positions else None)
    if not handed_over:
        return SessionReplay(_chosen(clean, span), None, None, 0)

    group = F.sha2(F.to_json(F.struct(*spec.keys, START)), 256)
    marked = dirty.withColumn(GROUP, group)
    members_of = held.keep(_records_of(base, marked, spec))
    judged = held.keep(_operate(members_of, spec, finer, grid, flushes))
    failed = judged.where("kind = 'failure'").agg(F.min(F.struct("f_arrival", "f_major", "f_minor"))).collect()[0][0]
    failure = None if failed is None else (failed[0], failed[1], failed[2])
    faithful = _faithful_rows(judged, members_of, spec)
    late = _late_rows(judged, members_of, spec, span)
    combined = _with_complete(faithful, marked, judged, spec)
    return SessionReplay(_chosen(clean.unionByName(combined), span), late, failure, handed_over)


def _chosen(rows: DataFrame, span: Span) -> DataFrame:
    in_span = (F.col(START) >= F.lit(span.start)) & (F.col(START) < F.lit(span.end))
    return rows.where(in_span | (F.col(START) == F.lit(MIN_TIMESTAMP)))


def _suspicion(
    base: DataFrame, spec: ReplaySpec, timeline: Timeline, grid: RegularGrid, span: Span, flushes: bool
) -> tuple[Column, Column]:
    """Whether a record may have been behind the watermark, and whether a session may still be open.

    Both err on the safe side by less than a grid cell. A record with `r <= C(ts - 1)` touches no session
    that has fired: that one would end at or after `ts`, so the watermark would be at or above `ts - 1`.
    """
    first = grid.first_index_at_or_after(span.start) - 2
    count = grid.first_index_at_or_after(span.end) - first + 3
    cells = timeline.close_arrays(grid, first, count, shift=1)  # C at each grid point itself
    position = record_position(base)

    def cell(time: Column) -> Column:
        inside = F.least(
            F.greatest(time, F.lit(int(grid.ends(first, 1)[0]))), F.lit(int(grid.ends(first + count - 1, 1)[0]))
        )
        return grid.floor(inside)

    closed_before = cells.at(cell(F.col(_TS) - F.lit(1)), base)
    below_grid = F.col(_TS) <= F.lit(int(grid.ends(first, 1)[0]))
    suspicious = below_grid | ~position.not_after(closed_before)
    if flushes:
        return suspicious, F.lit(False)
    upper = cells.at(cell(F.col(END) - F.lit(1)) + F.lit(grid.step), base)
    beyond = F.col(END) >= F.lit(int(grid.ends(first + count - 2, 1)[0]))
    return suspicious, beyond | upper.arrival.isNull() | (upper.arrival == F.lit(NEVER))


def _clean_rows(sessions: DataFrame, spec: ReplaySpec, timeline: Timeline | None) -> DataFrame:
    """Emitted once, as they are complete: nothing late, nothing dropped, one pane."""
    columns = [
        *spec.keys, START, END,
        *(F.col(complete_name(name)).alias(name) for name in spec.aggregates),
        *(F.col(complete_name(name)) for name in spec.aggregates if spec.mode is Mode.BOTH),
        F.col("rw_all").alias(ON_TIME), F.lit(0).cast("long").alias(LATE), F.lit(0).cast("long").alias(DROPPED),
        F.lit(0).alias(PANE), F.lit("closed").alias(STATE),
    ]  # fmt: skip
    if timeline is None:
        unknown = PositionColumns(*(F.lit(None).cast("long"),) * 3)
        return sessions.select(*columns, *unknown.aliased(FIRED))
    with_x = sessions.withColumn("rw_x", F.col(END) - F.lit(1))
    return timeline.exact(with_x, "rw_x", FIRED).select(
        *columns, *(f"{FIRED}_{p}" for p in ("arrival", "major", "minor"))
    )


def _records_of(base: DataFrame, marked: DataFrame, spec: ReplaySpec) -> DataFrame:
    sessions = marked.select(
        *(F.col(key).alias(f"rw_key_{i}") for i, key in enumerate(spec.keys)),
        F.col(START).alias("rw_low"), F.col(END).alias("rw_high"), GROUP,
    )  # fmt: skip
    same = [F.col(key).eqNullSafe(F.col(f"rw_key_{i}")) for i, key in enumerate(spec.keys)]
    inside = (F.col(_TS) >= F.col("rw_low")) & (F.col(_TS) < F.col("rw_high"))
    joined = base.join(sessions, [*same, inside]) if same else base.join(sessions, inside)
    return joined.drop("rw_low", "rw_high", *(f"rw_key_{i}" for i in range(len(spec.keys))))


def _operate(members: DataFrame, spec: ReplaySpec, finer: FinerTimeline, grid: RegularGrid, flushes: bool) -> DataFrame:
    """Run the sequential operator over each session that needs it."""
    lateness = spec.allowed_lateness
    x_end = F.col(_END) - F.lit(1)
    if lateness == MAX_TIMESTAMP:
        x_cleanup = F.lit(MIN_TIMESTAMP) + (F.col(_END) - F.lit(2))
    else:
        x_cleanup = x_end + F.lit(lateness)
    queried = members.select(
        GROUP, PARTITION, OFFSET, _TS, _END, *record_position(members).aliased("r"),
        x_end.alias("rw_x_end"), x_cleanup.alias("rw_x_cleanup"),
    )  # fmt: skip
    asked = [grid.index(grid.floor(F.col(c))).alias("cell") for c in ("rw_x_end", "rw_x_cleanup")]
    usable = (F.col(_TS) > F.lit(MIN_TIMESTAMP)) if lateness != MAX_TIMESTAMP else F.lit(False)
    cells = queried.where(F.col(_TS) > F.lit(MIN_TIMESTAMP)).select(asked[0])
    cells = cells.unionByName(queried.where(usable).select(asked[1]))
    timeline = finer.exact_in(grid, cells, queried)
    looked_up = timeline.exact(timeline.exact(queried, "rw_x_end", "e"), "rw_x_cleanup", "c")
    ordered = looked_up.repartition(F.col(GROUP)).sortWithinPartitions(GROUP, "r_arrival", "r_major", "r_minor")
    run = partial(replay_groups, gap_lateness=lateness, flush=flushes, all_panes=spec.panes is Panes.ALL)
    return ordered.select(
        GROUP, PARTITION, OFFSET, _TS, _END, "r_arrival", "r_major", "r_minor",
        "e_arrival", "e_major", "e_minor", "c_arrival", "c_major", "c_minor",
    ).mapInArrow(run, JUDGED)  # fmt: skip


def _faithful_rows(judged: DataFrame, members: DataFrame, spec: ReplaySpec) -> DataFrame:
    of_window = judged.where("kind = 'member'")
    renamed = of_window.select(*(F.col(c).alias(f"rw_m_{c}") for c in of_window.columns))
    same = (
        (F.col(f"rw_m_{GROUP}") == F.col(GROUP))
        & (F.col("rw_m_partition") == F.col(PARTITION))
        & (F.col("rw_m_offset") == F.col(OFFSET))
    )
    joined = members.join(renamed, same)
    values = [F.expr(text).alias(name) for name, text in spec.aggregates.items()]
    return joined.groupBy(
        GROUP, *spec.keys, *(F.col(f"rw_m_{c}").alias(c) for c in (START, END, PANE)),
    ).agg(
        *values, F.count_if(~F.col("rw_m_late")).alias(ON_TIME), F.count_if("rw_m_late").alias(LATE),
        *(F.min(f"rw_m_f_{p}").alias(f"{FIRED}_{p}") for p in ("arrival", "major", "minor")),
    )  # fmt: skip


def _with_complete(faithful: DataFrame, marked: DataFrame, judged: DataFrame, spec: ReplaySpec) -> DataFrame:
    """Faithful sessions beside the complete one where they are the same window; the rest stand alone."""
    outcomes = judged.groupBy(F.col(GROUP).alias("rw_judged_group")).agg(
        F.count_if(F.col("kind") == "late").alias("rw_lost"), F.count_if(F.col("kind") == "member").alias("rw_members")
    )
    complete = marked.join(outcomes, F.col(GROUP) == F.col("rw_judged_group"), "left").select(
        F.col(GROUP).alias("c_group"), *(F.col(k).alias(f"c_key_{i}") for i, k in enumerate(spec.keys)),
        F.col(START).alias("c_start"), F.col(END).alias("c_end"),
        *(complete_name(name) for name in spec.aggregates),
        "rw_all", "rw_members", F.coalesce("rw_lost", F.lit(0)).alias("c_dropped"),
    )  # fmt: skip
    same = (F.col(GROUP) == F.col("c_group")) & (F.col(START) == F.col("c_start")) & (F.col(END) == F.col("c_end"))
    how = "full" if spec.mode is Mode.BOTH else "left"
    joined = faithful.join(complete, same, how)
    emitted = F.col(GROUP).isNotNull()
    zero = F.lit(0).cast("long")
    return joined.select(
        *(F.when(emitted, F.col(k)).otherwise(F.col(f"c_key_{i}")).alias(k) for i, k in enumerate(spec.keys)),
        F.coalesce(START, "c_start").alias(START), F.coalesce(END, "c_end").alias(END),
        *(F.col(name) for name in spec.aggregates),
        *(F.col(complete_name(name)) for name in spec.aggregates if spec.mode is Mode.BOTH),
        F.coalesce(ON_TIME, zero).alias(ON_TIME), F.coalesce(LATE, zero).alias(LATE),
        F.coalesce("c_dropped", zero).alias(DROPPED), PANE,
        F.when(emitted, "closed").when(F.col("c_dropped") == F.col("rw_all"), "all_late")
        .when(F.col("rw_members") > 0, "not_emitted").otherwise("open").alias(STATE),
        *(f"{FIRED}_{p}" for p in ("arrival", "major", "minor")),
    )  # fmt: skip


def _late_rows(judged: DataFrame, members: DataFrame, spec: ReplaySpec, span: Span) -> DataFrame:
    late = judged.where("kind = 'late'").select(
        F.col(GROUP).alias("l_group"), F.col("partition").alias("l_partition"), F.col("offset").alias("l_offset"),
        START, END, "f_arrival",
    )  # fmt: skip
    same = (
        (F.col("l_group") == F.col(GROUP))
        & (F.col("l_partition") == F.col(PARTITION))
        & (F.col("l_offset") == F.col(OFFSET))
    )
    rows = members.join(late, same).select(
        *spec.keys, *identity_columns(members),
        F.lit(1).cast("long").alias("windows_missed"), F.lit(True).alias("side_output"),
        START, END, (F.col(ARRIVAL) - F.col("f_arrival")).alias("missed_by"),
    )  # fmt: skip
    return _chosen(rows, span)
