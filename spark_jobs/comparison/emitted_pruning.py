"""Filters on the emitted rows as stored, by which a table or a file prunes: only what is compared is read."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegralType, TimestampType

from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.definition.live import Live, TimeUnit
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AlignedWindows, AnyWindows
from spark_jobs.replay.assign import START
from spark_jobs.replay.columns import is_within
from spark_jobs.sources.records.attempts import or_null
from spark_jobs.spark.conditions import any_of

_WANTED = "rw_wanted"
_PER_UNIT = {"s": 1 / 1000, "ms": 1, "us": 1000}


def starts_in(frame: DataFrame, live: Live, windows: AnyWindows, spans: Sequence[TimeRange]) -> DataFrame:
    """The stored rows without most of those whose windows start outside of `spans`; all where the columns do not say.

    A plain column of instants prunes, an expression or a local time does not.
    """
    columns, shift, text = live.window, 0, live.window.start
    if text is None and isinstance(windows, AlignedWindows):
        text, shift = columns.end, windows.longest
    if text is None or columns.time_zone is not None or not spans:
        return frame
    value, kind = or_null(frame, text), _kind(frame, text)
    bounds = [_within(value, kind, columns.unit, span.start, span.end + shift) for span in spans]
    usable = [bound for bound in bounds if bound is not None]
    return frame if len(usable) < len(bounds) else frame.where(any_of(usable))


def emitted_since(frame: DataFrame, live: Live, since: int) -> DataFrame:
    """The stored rows without most of those that were emitted before `since` (epoch ms)."""
    if live.emitted_at is None:
        return frame
    at = or_null(frame, live.emitted_at)
    bound = _within(at, _kind(frame, live.emitted_at), live.emitted_at_unit, since, None)
    return frame if bound is None else frame.where(bound)


def of_windows(rows: DataFrame, keys: Sequence[str], spans: Sequence[TimeRange], pairs: DataFrame | None) -> DataFrame:
    """The rows, with keys and bounds (epoch ms), of windows that start in `spans`, or that are in `pairs`."""
    inside = any_of(is_within(F.col(START), span) for span in spans)
    if pairs is None:
        return rows.where(inside)
    # One scan: rows of both kinds come from the same files.
    wanted = with_join_keys(pairs, keys).select(*join_columns(keys)).distinct().withColumn(_WANTED, F.lit(True))
    placed = with_join_keys(rows, keys).join(F.broadcast(wanted), join_columns(keys), "left")
    return placed.where(inside | F.col(_WANTED)).select(*(f"`{name}`" for name in rows.columns))


def _kind(frame: DataFrame, text: str) -> DataType:
    return frame.select(F.expr(text)).schema[0].dataType


def _within(column: Column, kind: DataType, unit: TimeUnit, low: int, high: int | None) -> Column | None:
    """The column's instants within `[low, high)` (epoch ms; None: no bound), or a little around it."""
    if isinstance(kind, TimestampType) and unit == "timestamp":
        lower, upper = (F.timestamp_millis(F.lit(at)) for at in (low, high or 0))
    elif isinstance(kind, IntegralType) and unit in _PER_UNIT:
        lower, upper = (F.lit(int(at * _PER_UNIT[unit] + 0.999)) for at in (low - 1000, (high or 0) + 1000))
    else:
        return None
    return column >= lower if high is None else (column >= lower) & (column < upper)
