"""What published windows count, how much of it is still there, and what has come since."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AnyWindows
from spark_jobs.lakehouse.tables import quoted
from spark_jobs.replay.assign import END, START, assign_windows, in_window_time
from spark_jobs.replay.columns import (
    CLOSED_AT,
    EVENT_TIME,
    OFFSET,
    PARTITION,
    counts_of,
    records_in,
)
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.final import Final
from spark_jobs.runs.night.reading import Empty, Reading, overlapping_joined
from spark_jobs.sources import is_empty
from spark_jobs.spark.conditions import any_of
from spark_jobs.spark.joins import OTHER, others, same

BOUNDS = ("rw_from", "rw_to")
"""The columns of a window's start and end (epoch ms)."""
TOTAL, FOUND, LATER, MISSED, IS_FINAL = "rw_total", "rw_found", "rw_later", "rw_missed", "rw_is_final"
_AS_OF, _CLOSED = "rw_as_of", "rw_closed"
_ENDS = "map<string, bigint>"


def counted_windows(
    rows: DataFrame, records: DataFrame, spec: ReplaySpec, empty: Empty | None, final: Final, late: DataFrame | None
) -> DataFrame:
    """One row for each published window: what it counts, how many of these records are there, and if it was final.

    Records that have come late since, at offsets that were `empty`, are none of those.
    """
    seen = windows_in(rows, spec.keys)
    pairs = _pairs_of_sessions(seen, records, spec) if spec.has_sessions else pairs_of(records, spec)
    is_final = final.is_final(F.col(BOUNDS[1]), F.col(_CLOSED))
    return with_counts(seen, pairs, spec.keys, empty, late=late).withColumn(IS_FINAL, is_final)


def _gone_spans(reading: Reading, windows: AnyWindows) -> list[tuple[TimeRange, int]]:
    """The times of each bucket that records are gone from, as these windows count them, with how many."""
    return [(windows.in_own_time(span), gone) for span, gone in reading.gone_spans()]


def within(rows: DataFrame, reading: Reading, windows: AnyWindows) -> DataFrame:
    """The rows whose windows can hold a gone record by their times."""
    spans = [(span.start, span.end) for span, _ in overlapping_joined(_gone_spans(reading, windows))]
    frame = rows.sparkSession.createDataFrame(spans, "rw_first BIGINT, rw_end BIGINT")
    fits = (F.col(BOUNDS[0]) < F.col("rw_end")) & (F.col(BOUNDS[1]) > F.col("rw_first"))
    return rows.join(F.broadcast(frame), fits, "left_semi")


def refuse_moved(lacking: DataFrame | None, reading: Reading, windows: AnyWindows, where: str) -> None:
    """Raises HistoryError where windows lack more records than are gone, by the event times of these.

    Looked at are all windows `lacking` records that have the same bounds, whatever their keys, since a record is in one
    of them at most. `where`: the table of the windows, for the error.
    """
    if lacking is None:
        return
    lacks = F.sum(F.col(TOTAL) - F.col(FOUND)).alias("lacks")
    found = lacking.groupBy(*BOUNDS).agg(lacks, F.count("*").alias("count")).toArrow()
    starts, ends, lost, counts = (column.to_numpy() for column in found.columns)
    gone = _gone_within(_gone_spans(reading, windows), starts, ends)
    if not (is_more := lost > gone).any():
        return
    first, last = int(starts[is_more].min()), int(ends[is_more].max())
    raise HistoryError(
        f"{counts[is_more].sum()} windows from {format_instant(first)} to {format_instant(last)} lack "
        f"{lost[is_more].sum()} records, and only {gone[is_more].sum()} of the records that were read are gone there: "
        "others are there, in other windows",
        where,
        "Their key, event time, lookup row or filter has changed, and nothing tells them from those that are gone. Put "
        "it back as it was, bring the gone records back, or write to another table (output.table).",
    )


def refuse_twice(moved: DataFrame, where: str) -> None:
    """Raises HistoryError for windows that have records of kept windows (`TOTAL`), and others beside them (`LATER`)."""
    mixed = moved.where(F.col(LATER) > 0)
    ends = [f"{OTHER}{name}" for name in BOUNDS]
    found = mixed.agg(F.count("*"), F.min(ends[0]), F.max(ends[1]), F.sum(TOTAL)).collect()[0]
    if found[0]:
        first, last = (format_instant(time) for time in found[1:3])
        raise HistoryError(
            f"{found[0]} windows from {first} to {last} have {found[3]} records that others count, whose other records "
            "are gone and which keep their values",
            where,
            "Their lookup row or the definition has changed. Put it back as it was, bring the gone records back, or "
            "write to another table (output.table).",
        )


def _gone_within(spans: list[tuple[TimeRange, int]], starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """At most how many gone records lie in each of the windows `[starts, ends)`, by the times of their buckets."""
    firsts = np.array([span.start for span, _ in spans], dtype=np.int64)
    lasts = np.array([span.end - 1 for span, _ in spans], dtype=np.int64)
    counts = np.array([gone for _, gone in spans], dtype=np.int64)
    return _below(firsts, counts, ends) - _below(lasts, counts, starts)


def _below(times: np.ndarray, counts: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The sum of the counts whose time is below each of `at`."""
    order = np.argsort(times)
    sums = np.concatenate(([0], np.cumsum(counts[order])))
    return sums[np.searchsorted(times[order], at, side="left")]


def bounds_of() -> list[Column]:
    """`BOUNDS` of published windows."""
    return [F.unix_millis(name).alias(own) for name, own in zip(("window_start", "window_end"), BOUNDS, strict=True)]


def windows_in(windows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """One row for each window: keys, `BOUNDS` (epoch ms), its close, how many records it counts, its end offsets."""
    known = any_of(F.col(c).isNotNull() for c in counts_of(windows))
    as_of = F.col("as_of") if "as_of" in windows.columns else F.lit(None).cast("string")
    bounds = bounds_of()
    closed = F.unix_millis(CLOSED_AT) if CLOSED_AT in windows.columns else F.lit(None).cast("bigint")
    # Of several firings the last one counts most. A window without counts has a record at least.
    counted = F.when(known, records_in(windows)).otherwise(F.lit(1))
    return (
        windows.select(*quoted(keys), *bounds, counted.alias(TOTAL), as_of.alias("a"), closed.alias(_CLOSED))
        .groupBy(*quoted((*keys, *BOUNDS)))
        .agg(F.max(TOTAL).alias(TOTAL), _largest_ends("a").alias(_AS_OF), F.max(_CLOSED).alias(_CLOSED))
    )


def _largest_ends(texts: str) -> Column:
    """The largest end offset of each partition, of end offsets as JSON."""
    ends = F.collect_list(F.from_json(texts, _ENDS))
    none = F.from_json(F.lit("{}"), _ENDS)
    return F.aggregate(ends, none, lambda found, one: F.map_zip_with(found, one, lambda _, a, b: F.greatest(a, b)))


def _filtered(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    timed = records.where(F.col(EVENT_TIME).isNotNull())
    filtered = timed.where(spec.after_watermark) if spec.after_watermark else timed
    return in_window_time(filtered, spec.windows)


def pairs_of(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    """Each record in each of its windows: keys, bounds, partition and offset."""
    placed = assign_windows(_filtered(records, spec), spec.aligned_windows)
    bounds = (F.col(START).alias(f"{OTHER}{BOUNDS[0]}"), F.col(END).alias(f"{OTHER}{BOUNDS[1]}"))
    return placed.select(*others(spec.keys), *bounds, PARTITION, OFFSET)


def _pairs_of_sessions(seen: DataFrame, records: DataFrame, spec: ReplaySpec) -> DataFrame:
    """The pairs of a record and a session: a session lies where its records are."""
    sessions = seen.select(*quoted(spec.keys), *BOUNDS)
    placed = _filtered(records, spec).select(*others(spec.keys), EVENT_TIME, PARTITION, OFFSET)
    inside = (F.col(EVENT_TIME) >= F.col(BOUNDS[0])) & (F.col(EVENT_TIME) < F.col(BOUNDS[1]))
    joined = placed.join(sessions, [*same(spec.keys), inside])
    bounds = (F.col(BOUNDS[0]).alias(f"{OTHER}{BOUNDS[0]}"), F.col(BOUNDS[1]).alias(f"{OTHER}{BOUNDS[1]}"))
    return joined.select(*(f"`{OTHER}{key}`" for key in spec.keys), *bounds, PARTITION, OFFSET)


def with_counts(
    seen: DataFrame,
    pairs: DataFrame,
    keys: Sequence[str],
    empty: Empty | None = None,
    *,
    late: DataFrame | None,
) -> DataFrame:
    """Add how many of the `pairs` are in each window, below its end offsets (`FOUND`) and from there on (`LATER`).

    Those at offsets that were `empty` have come later, too. Of those that came later, `MISSED` were too `late`.
    """
    pairs = _with_missed(pairs, late)
    joined = pairs.join(seen.select(*quoted((*keys, *BOUNDS)), _AS_OF), same((*keys, *BOUNDS)))
    end = F.coalesce(F.try_element_at(_AS_OF, F.col(PARTITION).cast("string")), F.lit(0).cast("bigint"))
    has_none = F.coalesce(F.size(_AS_OF) <= 0, F.lit(True))  # a history without positions
    is_later = ~has_none & ((F.col(OFFSET) >= end) | is_empty(empty))
    counted = joined.groupBy(*others((*keys, *BOUNDS))).agg(
        F.count_if(~is_later).alias(FOUND),
        F.count_if(is_later).alias(LATER),
        F.count_if(is_later & F.col(MISSED)).alias(MISSED),
    )
    return with_joined(seen, counted, keys, (FOUND, LATER, MISSED))


def _with_missed(pairs: DataFrame, late: DataFrame | None) -> DataFrame:
    """The pairs, each with whether the record was too late for the window: of its windows it misses the first ones."""
    if late is None:
        return pairs.withColumn(MISSED, F.lit(False))
    place = F.struct(PARTITION, OFFSET, f"{OTHER}{BOUNDS[1]}")
    few = late.select(F.struct("partition", "offset").alias("rw_late"), "windows_missed").distinct()
    of_late = pairs.join(F.broadcast(few), F.struct(PARTITION, OFFSET) == F.col("rw_late"))
    order = Window.partitionBy("rw_late").orderBy(f"{OTHER}{BOUNDS[1]}")
    is_missed = F.dense_rank().over(order) <= F.col("windows_missed")
    missed = (
        of_late.where("windows_missed > 0").withColumn("rw_is", is_missed).where("rw_is").select(place.alias("rw_at"))
    )
    return (
        pairs.join(missed, place == F.col("rw_at"), "left").withColumn(MISSED, F.col("rw_at").isNotNull()).drop("rw_at")
    )


def with_joined(windows: DataFrame, counts: DataFrame, keys: Sequence[str], names: Sequence[str]) -> DataFrame:
    """The windows with counts from another frame, which has keys and bounds as `others`; 0 where it has none."""
    joined = windows.join(counts, same((*keys, *BOUNDS)), "left")
    return joined.select(*(f"`{c}`" for c in windows.columns), *(F.coalesce(n, F.lit(0)).alias(n) for n in names))
