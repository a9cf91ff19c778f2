"""The windows that new records can have changed behind a deduplication.

Which record of an id gets through is decided among the records of that id alone, in the order of the log. A new record
can take the place of one that has not got through yet, whose window is open; of others it changes nothing
(`why_decided_anew`). What of the records of the windows that are computed gets through, all records with their ids say,
wherever they lie; no others are read.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import END, START, assign_windows, in_span
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION, admitted, is_within
from spark_jobs.replay.deduplication import Deduplication
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.affected import AffectedWindows
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.joins import matching

_COPY = "rw_copy"
_FEW_IDS = 2_000_000
"""The digests of as many ids at most are sent to every task, less than 100 MB; the log is not shuffled then."""


def why_decided_anew(read: DataFrame, new: DataFrame, late: DataFrame | None, deduplication: Deduplication) -> str:
    """Why late records that are published may be duplicates by now, or duplicates late ones; empty: none is.

    `read`: records of the ids of the `new` ones that were read before; `late`: the published late records. An id's
    records are decided in the order of the log. Of an id that only late records had, one in time, which has a later
    event time or none, takes the place.
    """
    ids = _with_id(new, deduplication).groupBy(F.col(_COPY).alias("rw_of"))
    firsts = ids.agg(F.min(ARRIVAL).alias("rw_first"), F.max(F.coalesce(EVENT_TIME, F.lit(NEVER))).alias("rw_last"))
    found = _with_id(read, deduplication).join(firsts, F.col(_COPY) == F.col("rw_of"))
    is_behind = F.lit(False) if deduplication.is_in_log_order else F.col(ARRIVAL) >= F.col("rw_first")
    if late is None or not deduplication.drops_late:
        found = found.where(is_behind)
    else:
        places = late.select(F.col("partition").alias(PARTITION), F.col("offset").alias(OFFSET)).distinct()
        late_before = F.col("rw_late").isNotNull() & (F.col(EVENT_TIME) < F.col("rw_last"))
        marked = F.broadcast(places.withColumn("rw_late", F.lit(True)))
        found = found.join(marked, [PARTITION, OFFSET], "left").where(is_behind | late_before)
    return "" if found.isEmpty() else "a new record comes before one of its id that was read, or for a late one"


def copies_of(records: DataFrame, others: DataFrame, deduplication: Deduplication, cache: CachedFrames) -> DataFrame:
    """All records that have the id of one of the `others`; seldom also those of an id with the same digest."""
    digests = (some.withColumn(_COPY, F.xxhash64(*deduplication.ids(some))) for some in (records, others))
    digested, of_others = digests
    wanted = cache.keep(of_others.select(_COPY).distinct())
    few = F.broadcast(wanted) if wanted.count() <= _FEW_IDS else wanted
    return digested.join(few, _COPY, "left_semi").drop(_COPY)


def _with_id(records: DataFrame, deduplication: Deduplication) -> DataFrame:
    return records.withColumn(_COPY, F.struct(*deduplication.ids(records)))


def deciding_records(
    records: DataFrame,
    new: DataFrame,
    touched: AffectedWindows,
    spec: ReplaySpec,
    deduplication: Deduplication,
    cache: CachedFrames,
) -> DataFrame:
    """All records with the id of one that is new, or lies in a window that is `touched`."""
    windows, recent, older = spec.aligned_windows, touched.recent, touched.older
    timed = admitted(records, spec.after_watermark).where(F.col(EVENT_TIME).isNotNull())
    span = TimeRange((older or recent).start, recent.end)
    placed = assign_windows(in_span(timed, windows, span), windows)
    inside = placed.where(is_within(F.col(START), recent))
    if older is not None and touched.pairs is not None:
        before = placed.where(is_within(F.col(START), older))
        inside = inside.unionByName(matching(before, touched.pairs, (*spec.keys, START, END)))
    others = inside.drop(START, END).unionByName(new, allowMissingColumns=True)
    return copies_of(records, others, deduplication, cache)
