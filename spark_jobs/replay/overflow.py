"""Where the sum of an aggregate overflows: which aggregate, in which window, for which key."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition.instants import format_instant
from spark_jobs.replay.aggregates import sums_in
from spark_jobs.replay.assign import END, START, assign_windows
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.spec import ReplaySpec


def overflow_in_words(records: DataFrame, spec: ReplaySpec) -> str | None:
    """The first sum over `records` that overflows, in words; None where none does over all records of a window.

    Windows are taken by their start, then by key. Of sessions, which lie where their records are, the key alone is
    named.
    """
    sums = [(name, text) for name, whole in spec.aggregates.items() for text in sums_in(records.sparkSession, whole)]
    if not sums:
        return None
    timed = records.where(F.col(EVENT_TIME).isNotNull())
    timed = timed.where(spec.after_watermark) if spec.after_watermark else timed
    bounds = () if spec.has_sessions else (START, END)
    placed = timed if spec.has_sessions else assign_windows(timed, spec.aligned_windows)
    counted = {f"rw_sum_{n}": F.expr(f"try_{text}") for n, (_, text) in enumerate(sums)}
    counted |= {f"rw_count_{n}": F.expr(f"count{text[len('sum') :]}") for n, (_, text) in enumerate(sums)}
    groups = [*bounds, *(f"`{key}`" for key in spec.keys)]
    windows = placed.groupBy(*groups).agg(*(value.alias(name) for name, value in counted.items()))
    overflows = [F.col(f"rw_sum_{n}").isNull() & (F.col(f"rw_count_{n}") > 0) for n in range(len(sums))]
    found = windows.where(reduce(or_, overflows)).orderBy(*groups).limit(1).collect()
    if not found:
        return None
    row = found[0].asDict()
    name, text = next(s for n, s in enumerate(sums) if row[f"rw_sum_{n}"] is None and row[f"rw_count_{n}"])
    window = f" in the window {format_instant(row[START])} to {format_instant(row[END])}" if bounds else ""
    keys = "".join(f", {key} = {row[key]}" for key in spec.keys)
    return f"aggregate `{name}`: {text} overflows{window}{keys}"
