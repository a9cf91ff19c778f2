"""The sessions that new records can have changed.

Records of one key that lie within the gap of each other form a complete session, and nothing that the live job did to
one complete session can touch another (`spark_jobs.replay.sessions`). So a night computes the complete sessions again
that hold a new record, with all that it joins, and those that were not closed for good. It reads their records alone,
and the whole log for the timeline: sessions reach back to closes that no state has kept to the millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.lakehouse.tables import starts_within
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.grid import divided
from spark_jobs.replay.sessions import (
    SESSION_END,
    SESSION_START,
    in_spans,
    meets_span,
    sessionize,
    with_sessions_columns,
)
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.affected import AffectedWindows, PreviousRun
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.joins import matching, same

_SEED = "rw_seed"
_CELL = "rw_cell"
_FOUND = "rw_suspicious"
_GAPS_IN_A_CELL = 8
_REACHES = (1, 8, 64)
"""By how many cells more is read around a session that goes on beyond what was read, time after time; then its key."""


@dataclass(frozen=True)
class AffectedSessions(AffectedWindows):
    """What new records can have changed: complete sessions that end in `recent` or later, and before it the `pairs`."""

    def in_scope(self, windows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        """The published sessions that are recomputed: the live job may have made several of a complete one."""
        recent = windows.where(starts_within(self.recent))
        if self.older is None or self.pairs is None:
            return recent
        older = windows.where(starts_within(self.older))
        return recent.unionByName(within_sessions(older, F.unix_millis("window_start"), self.pairs, keys))


def affected_sessions(
    old: DataFrame, new: DataFrame, spec: ReplaySpec, before: PreviousRun, published: TimeRange, cache: CachedFrames
) -> AffectedSessions:
    """The complete sessions that the `new` records are in, and those that were not closed for good. All are good."""
    open_from = _open_from(spec, before.steps.never_from)
    records = _marked(old, F.lit(False), spec).unionByName(_marked(new, F.lit(True), spec), allowMissingColumns=True)
    marked = records.withColumn(_SEED, F.col(_SEED) | (F.col(SESSION_END) >= F.lit(open_from)))
    sessions = cache.keep(_around_seeds(marked, spec, open_from, cache).select(*spec.keys, START, END))
    first, last = sessions.agg(F.min(START), F.max(END)).collect()[0]
    first, end = (published.end, published.end) if first is None else (first, max(last, published.end))
    low = min(max(open_from, min(first, published.start)), end)
    older = TimeRange(first, low) if first < low else None
    return AffectedSessions(TimeRange(low, end), older, cache.keep_keys(sessions.where(F.col(START) < F.lit(low))))


def _marked(records: DataFrame, is_seed: Column, spec: ReplaySpec) -> DataFrame:
    """The records that can be in a session, with the bounds of their own one."""
    placed = spec.rules.read(spec.rules.placed(records.where(F.col(EVENT_TIME).isNotNull())), spec)
    return spec.rules.session_records(with_sessions_columns(placed, spec), spec).withColumn(_SEED, is_seed)


def _open_from(spec: ReplaySpec, never_from: int) -> int:
    """From which end on (epoch ms) the watermark of the run before had not closed sessions for good."""
    if spec.allowed_lateness == MAX_TIMESTAMP or never_from == MIN_TIMESTAMP:
        return MIN_TIMESTAMP
    return never_from - spec.allowed_lateness


def _around_seeds(records: DataFrame, spec: ReplaySpec, open_from: int, cache: CachedFrames) -> DataFrame:
    """The complete sessions with a seed in them; all records from `open_from` on are seeds.

    Of earlier ones the cells of the time of each key are read that hold a seed or border on one, and more where a
    session goes on beyond them.
    """
    gap = spec.session_windows.longest_gap
    seeds = records.where(_SEED)
    if gap is None:
        return _sessions_of(matching(records, seeds.select(*spec.keys).distinct(), spec.keys), spec)
    width, names = _GAPS_IN_A_CELL * gap, (*spec.keys, _CELL)
    is_recent, is_early = F.col(SESSION_START) >= F.lit(open_from), F.col(_CELL) <= F.lit(open_from // width)
    recent, early = records.where(is_recent), records.where(~is_recent)
    celled = early.withColumn(_CELL, divided(F.col(SESSION_START), width))
    around = _cells(F.col(SESSION_START) - F.lit(gap), F.col(SESSION_END), width)
    cells = cache.keep_keys(seeds.select(*spec.keys, around).where(is_early).distinct())
    for reach in _REACHES:
        read = recent.unionByName(matching(celled, cells, names).drop(_CELL))
        sessions = cache.keep(_sessions_of(read, spec))
        ends = sessions.select(*spec.keys, _cells(F.col(START) - F.lit(gap), F.col(END), width)).where(is_early)
        missing = cache.keep_keys(matching(ends.distinct(), cells, names, "left_anti"))
        if missing.isEmpty():
            return sessions
        wider = F.explode(F.sequence(F.col(_CELL) - F.lit(reach), F.col(_CELL) + F.lit(reach))).alias(_CELL)
        cells = cache.keep_keys(cells.unionByName(missing.select(*spec.keys, wider)).distinct())
    return _sessions_of(matching(records, seeds.select(*spec.keys).distinct(), spec.keys), spec)


def _cells(first: Column, last: Column, width: int) -> Column:
    return F.explode(F.sequence(divided(first, width), divided(last, width))).alias(_CELL)


def _sessions_of(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    return sessionize(records, replace(spec, aggregates={}), F.col(_SEED)).where(_FOUND)


def within_sessions(rows: DataFrame, time: Column, sessions: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows of which `time` (epoch ms) lies in one of the complete sessions of their key."""
    mean = sessions.agg(F.avg(F.col(END) - F.col(START))).collect()[0][0]
    span = max(1, int(mean or 1))
    meets = [*same(keys), *meets_span(F.col("rw_at"), span)]
    return rows.withColumn("rw_at", time).join(in_spans(sessions, keys, span), meets, "left_semi").drop("rw_at")
