"""The sessions that new records can have changed.

What the live job made of a record depends on the records of its *complete* session alone: those of its key that lie
within the gap of each other, whatever was late (`spark_jobs.replay.sessions`). So new records change the complete
sessions that they reach, and join those that they lie between. Others change only by coming out, once the watermark
passes their end.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.sessions import (
    SESSION_END,
    SESSION_NUMBER,
    SESSION_START,
    members_of,
    with_session_numbers,
    with_sessions_columns,
)
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.affected import AffectedWindows, PreviousRun
from spark_jobs.spark.cached import CachedFrames

_IS_NEW, _IS_PUBLISHED = "rw_is_new", "rw_is_published"


@dataclass(frozen=True)
class AffectedSessions(AffectedWindows):
    """The published sessions that are recomputed are the `pairs`; `whole`: keys and bounds of complete sessions.

    The bounds are `window_start` and `window_end` in epoch ms. All records of these keys between them are read.
    """

    whole: DataFrame


def affected_sessions(
    new: DataFrame, spec: ReplaySpec, before: PreviousRun, windows: DataFrame, published: TimeRange, cache: CachedFrames
) -> AffectedSessions:
    """The sessions that the `new` records can have changed, and those that the run `before` did not know as closed.

    `windows`: the published ones. Each complete session is among them, and parts of it that came out alone.
    """
    never_closed = F.col(END) >= F.lit(before.steps.never_from)  # some ends have microseconds, which are not shown
    known = windows.select(
        *spec.keys, F.unix_millis("window_start").alias(START), F.unix_millis("window_end").alias(END)
    ).distinct()
    known = known.select("*", never_closed.alias(_IS_NEW), F.lit(True).alias(_IS_PUBLISHED))
    own = with_sessions_columns(new.where(F.col(EVENT_TIME).isNotNull()), spec).select(
        *spec.keys,
        F.col(SESSION_START).alias(START),
        F.col(SESSION_END).alias(END),
        F.lit(True).alias(_IS_NEW),
        F.lit(False).alias(_IS_PUBLISHED),
    )
    together = with_session_numbers(known.unionByName(own), spec, START, END)
    of_session = [*(f"`{key}`" for key in spec.keys), SESSION_NUMBER]
    is_reached = F.max(_IS_NEW).over(Window.partitionBy(*of_session))
    reached = cache.keep(together.withColumn("rw_is_reached", is_reached).where("rw_is_reached"))
    whole = reached.groupBy(*of_session).agg(F.min(START).alias(START), F.max(END).alias(END)).drop(SESSION_NUMBER)
    pairs = reached.where(_IS_PUBLISHED).select(*spec.keys, START, END)
    first, last = whole.agg(F.min(START), F.max(END)).collect()[0]
    if first is None:
        return AffectedSessions(TimeRange(published.end, published.end), None, None, whole)
    return AffectedSessions(TimeRange(last, last), TimeRange(first, last), pairs, whole)


def records_of_sessions(records: DataFrame, touched: AffectedSessions, spec: ReplaySpec) -> DataFrame:
    """The records that lie in the sessions that are computed."""
    count, length = touched.whole.agg(F.count("*"), F.coalesce(F.sum(F.col(END) - F.col(START)), F.lit(0))).collect()[0]
    base = with_sessions_columns(records, spec)
    found = members_of(base, touched.whole, spec, max(1, length // max(1, count)), count)
    return found.select(*records.columns)
