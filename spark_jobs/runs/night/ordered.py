"""The windows that new records can have changed, where the order of each partition decides."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.rule_book import TASKS
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.affected import AffectedWindows, PreviousRun
from spark_jobs.spark.cached import CachedFrames


@dataclass(frozen=True)
class AffectedInOrder(AffectedWindows):
    """The published windows that are computed again are the `pairs`; `reached`: they, with `IS_TOUCHED`."""

    reached: DataFrame


def affected_in_order(
    new: DataFrame, spec: ReplaySpec, before: PreviousRun, windows: DataFrame, cache: CachedFrames
) -> AffectedInOrder:
    """The published `windows` that could still change, or that the `new` records come near."""
    keys = [f"`{key}`" for key in spec.keys]
    bounds = (F.unix_millis("window_start").alias(START), F.unix_millis("window_end").alias(END))
    known = windows.select(*keys, *bounds)
    reached = cache.keep(spec.rules.reached(known, new, spec, before.state[TASKS]))
    pairs = reached.select(*keys, START, END)
    first, last = pairs.agg(F.min(START), F.max(START)).collect()[0]
    # A new window begins at most its length before a new record, or a millisecond behind it.
    low, high = new.agg(F.min(EVENT_TIME), F.max(EVENT_TIME)).collect()[0]
    longest = spec.session_windows.longest_gap or 0 if spec.has_sessions else spec.aligned_windows.longest
    starts = [time for time in (first, None if low is None else low - longest) if time is not None]
    ends = [time for time in (last, None if high is None else high + 1) if time is not None]
    if not starts:
        return AffectedInOrder(TimeRange(0, 0), None, None, reached)
    end = max(ends) + 1
    return AffectedInOrder(TimeRange(end, end), TimeRange(min(starts), end), pairs, reached)
