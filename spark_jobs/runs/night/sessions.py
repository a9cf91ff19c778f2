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
from spark_jobs.replay.sessions import SESSION_END, SESSION_START, sessionize, with_sessions_columns
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.affected import AffectedWindows, PreviousRun
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.joins import matching, others, same

_SEED = "rw_seed"
_CELL = "rw_cell"
_FOUND = "rw_suspicious"
_GAPS_IN_A_CELL = 8
_REACHES = (1, 8, 64)
"""By how many cells more is read around a session that goes on beyond what was read, time after time; then its key."""


@dataclass(frozen=True)
class AffectedSessions(AffectedWindows):
    """What new records can have changed: what lies within complete sessions, the `pairs`. `recent` is empty."""

    def in_scope(self, windows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        """The published sessions that are recomputed: the live job may have made several of a complete one."""
        if self.older is None or self.pairs is None:
            return windows.where(F.lit(False))
        inside = windows.where(starts_within(self.older))
        return within_sessions(inside, F.unix_millis("window_start"), self.pairs, keys)


def affected_sessions(
    old: DataFrame, new: DataFrame, spec: ReplaySpec, before: PreviousRun, published: TimeRange, cache: CachedFrames
) -> AffectedSessions:
    """The complete sessions that the `new` records are in, and those that were not closed for good. All are good."""
    records = _marked(old, F.lit(False), spec).unionByName(_marked(new, F.lit(True), spec), allowMissingColumns=True)
    marked = records.withColumn(_SEED, F.col(_SEED) | _was_open(spec, before.steps.never_from))
    sessions = cache.keep_keys(_around_seeds(marked, spec, cache).select(*spec.keys, START, END))
    first, last = sessions.agg(F.min(START), F.max(END)).collect()[0]
    older = None if first is None else TimeRange(first, last)
    end = published.end if older is None else older.end
    return AffectedSessions(TimeRange(end, end), older, sessions)


def _marked(records: DataFrame, is_seed: Column, spec: ReplaySpec) -> DataFrame:
    """The records that can be in a session, with the bounds of their own one."""
    placed = spec.rules.read(spec.rules.placed(records.where(F.col(EVENT_TIME).isNotNull())), spec)
    return spec.rules.session_records(with_sessions_columns(placed, spec), spec).withColumn(_SEED, is_seed)


def _was_open(spec: ReplaySpec, never_from: int) -> Column:
    """Whether the watermark of the run before had not closed a record's own session for good."""
    if spec.allowed_lateness == MAX_TIMESTAMP or never_from == MIN_TIMESTAMP:
        return F.lit(True)
    return F.col(SESSION_END) >= F.lit(never_from - spec.allowed_lateness)  # it may have microseconds more


def _around_seeds(records: DataFrame, spec: ReplaySpec, cache: CachedFrames) -> DataFrame:
    """The complete sessions with a seed in them.

    Read are the cells of the time of each key that hold a seed or border on one, and more where a session goes on
    beyond them.
    """
    gap = spec.session_windows.longest_gap
    seeds = records.where(_SEED)
    if gap is None:
        return _sessions_of(matching(records, seeds.select(*spec.keys).distinct(), spec.keys), spec)
    width, names = _GAPS_IN_A_CELL * gap, (*spec.keys, _CELL)
    celled = records.withColumn(_CELL, divided(F.col(SESSION_START), width))
    around = _cells(F.col(SESSION_START) - F.lit(gap), F.col(SESSION_END), width)
    cells = cache.keep(seeds.select(*spec.keys, around).distinct())
    for reach in _REACHES:
        sessions = cache.keep(_sessions_of(matching(celled, cells, names), spec))
        ends = sessions.select(*spec.keys, _cells(F.col(START) - F.lit(gap), F.col(END), width)).distinct()
        missing = matching(ends, cells, names, "left_anti")
        if missing.isEmpty():
            return sessions
        wider = F.explode(F.sequence(F.col(_CELL) - F.lit(reach), F.col(_CELL) + F.lit(reach))).alias(_CELL)
        cells = cache.keep(cells.unionByName(missing.select(*spec.keys, wider)).distinct())
    return _sessions_of(matching(records, seeds.select(*spec.keys).distinct(), spec.keys), spec)


def _cells(first: Column, last: Column, width: int) -> Column:
    return F.explode(F.sequence(divided(first, width), divided(last, width))).alias(_CELL)


def _sessions_of(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    return sessionize(records, replace(spec, aggregates={}), F.col(_SEED)).where(_FOUND)


def within_sessions(rows: DataFrame, time: Column, sessions: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows of which `time` (epoch ms) lies in one of the complete sessions of their key.

    A key may have thousands of sessions: rows meet only those that touch the same span of time, which is as long as
    sessions are on average.
    """
    mean = sessions.agg(F.avg(F.col(END) - F.col(START))).collect()[0][0]
    span = max(1, int(mean or 1))
    spans = F.sequence(divided(F.col(START), span), divided(F.col(END) - F.lit(1), span))
    bounds = (F.col(START).alias("rw_low"), F.col(END).alias("rw_high"), F.explode(spans).alias("rw_span"))
    those = sessions.select(*others(keys), *bounds)
    at = F.col("rw_at")
    meets = [divided(at, span) == F.col("rw_span"), at >= F.col("rw_low"), at < F.col("rw_high")]
    return rows.withColumn("rw_at", time).join(those, [*same(keys), *meets], "left_semi").drop("rw_at")
