"""The timing band: the records for which the log does not show whether the live job saw them before a close.

A log has append times, not the order in which the window operator saw its records. Around each final close
C(x + L) the records with `low < arrival <= high` (epoch ms) are *undecided*: those within `margin` on both
sides and, where the job was behind, those in all of its lag. Outside of the band the log decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.columns import ARRIVAL, NEVER, long_arrays
from spark_jobs.replay.timeline import CloseArrays

UNDECIDED = "records_undecided"
"""Column of the windows' table: how many of a window's records are undecided."""


@dataclass(frozen=True, slots=True)
class Wider:
    """A range of processing time (epoch ms) in which the band is wider: so far (ms) to each side of a close."""

    during: TimeRange
    margin: int


@dataclass(frozen=True)
class Band:
    """How far undecided records may lie from a close: `margin` (ms), or the lag.

    `lags` are ranges of processing time in which the job was behind, in order. `emissions` holds how late some window
    ends really came out (two int64 arrays: ends, ascending, and ms after their close). It applies where a window's
    state is deleted when it fires, and is more exact than `lags`: what an end's own rows show, and where it has none,
    what those of the ends before and after it show. `slack` (ms): a window that is emitted so much later than its
    close is not yet a lag. Closes up to `backlog_until` (epoch ms) are of records that were in the log before the job
    began: any of them may have been read before any other.
    """

    margin: int
    slack: int
    lags: tuple[TimeRange, ...] = ()
    emissions: tuple[np.ndarray, np.ndarray] = field(
        default_factory=lambda: (np.empty(0, np.int64), np.empty(0, np.int64))
    )
    backlog_until: int = 0
    wider: tuple[Wider, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no record is undecided."""
        return not (self.margin or self.lags or self.wider or len(self.emissions[0]) or self.backlog_until)

    def bounds(self, window_ends: np.ndarray, close: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`low` and `high` of the `window_ends` that close at `close` (all epoch ms, int64).

        Where nothing closes, `low` and `high` are equal.
        """
        real = (close > 0) & (close < NEVER)
        usable = np.where(real, close, 0)
        until = usable + self.margin
        for lag in self.lags:
            until = np.where((usable >= lag.start) & (usable < lag.end), np.maximum(until, lag.end), until)
        for one in self.wider:
            inside = (usable >= one.during.start) & (usable < one.during.end)
            until = np.where(inside, np.maximum(until, usable + one.margin), until)
        ends, delays = self.emissions
        if len(ends):
            place = np.searchsorted(ends, window_ends)
            after, before = np.minimum(place, len(ends) - 1), np.maximum(place - 1, 0)
            is_known = ends[after] == window_ends
            beside = np.maximum(delays[after], delays[before])
            shown = usable + np.maximum(np.where(is_known, delays[after], beside), self.margin)
            until = np.where(is_known, shown, np.maximum(until, shown))
        # In a lag one partition is read far ahead of another, so the band reaches as far back.
        lagging = until > usable + self.margin
        low = np.where(lagging, usable - (until - usable), usable) - self.margin
        low = np.where(usable <= self.backlog_until, 0, low)
        return np.where(real, low, NEVER), np.where(real, until, NEVER)

    def lagging(self, window_ends: np.ndarray, close: np.ndarray) -> np.ndarray:
        """Whether the job lagged at the `window_ends` that close at `close` (epoch ms), or read a backlog."""
        found = np.zeros(len(close), bool)
        for lag in self.lags:
            found |= (close >= lag.start) & (close < lag.end)
        ends, delays = self.emissions
        if len(ends):
            place = np.minimum(np.searchsorted(ends, window_ends), len(ends) - 1)
            found = np.where(ends[place] == window_ends, delays[place] > self.slack, found)
        return found | (close <= self.backlog_until)

    def undecided(self, closes: CloseArrays, index: Column, frame: DataFrame) -> Column:
        """Whether a record is undecided for the window end number `index`."""
        if self.is_empty:
            return F.lit(False)
        arrival = F.col(ARRIVAL)
        close_at = closes.positions[:, 0]
        low, high = self.bounds(closes.grid.ends(closes.first, len(close_at)), close_at)
        real = high < NEVER
        if (high[real] - low[real] == 2 * self.margin).all():
            # The close is looked up anyway, so this costs two comparisons and no look-up.
            close = closes.at_index(index, frame).arrival
            margin = F.lit(self.margin)
            return (arrival - margin <= close) & (F.greatest(close, F.lit(0)) - margin < arrival)
        arrays = long_arrays(frame, {"low": low, "high": high})
        return (arrival > F.get(arrays["low"], index)) & (arrival <= F.get(arrays["high"], index))


def merged(lags: Iterable[TimeRange]) -> tuple[TimeRange, ...]:
    """The ranges in ascending order; those that overlap or touch are merged."""
    result: list[TimeRange] = []
    for lag in sorted(lags, key=lambda lag: lag.start):
        if result and lag.start <= result[-1].end:
            result[-1] = TimeRange(result[-1].start, max(result[-1].end, lag.end))
        else:
            result.append(lag)
    return tuple(result)
