"""The timing band: for which records the log cannot tell on which side of a close they came to a live job.

A log has append times, not the order in which the window operator saw its records. Around each close for
good C(x + L) the records with `low < arrival <= high` (epoch ms) are *undecided*: within `margin` on both
sides, and all through the lag where the job was behind. Outside of the band the log decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.columns import ARRIVAL, NEVER, long_arrays
from spark_jobs.replay.timeline import CloseArrays

UNDECIDED = "records_undecided"
"""Column of the windows' table: how many of a window's records are undecided."""


@dataclass(frozen=True)
class Band:
    """How far undecided records may lie from a close: `margin` (ms), or the lag.

    `lags` are times of processing `[start, end)` in which the job was behind, in order. `emissions` says when
    the window ends of some closes were really emitted (two int64 arrays: ends, ascending, and epoch ms); it
    counts for windows that are gone when they fire, more exact than `lags`. `slack` is by how many ms later
    than its close a window may come out before that is a lag. Closes up to `backlog_until` (epoch ms) are of
    records that lay in the log before the job began: any of them may have come before any other.
    """

    margin: int
    slack: int
    lags: tuple[TimeRange, ...] = ()
    emissions: tuple[np.ndarray, np.ndarray] = field(
        default_factory=lambda: (np.empty(0, np.int64), np.empty(0, np.int64))
    )
    backlog_until: int = 0

    def bounds(self, asked: np.ndarray, close: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`low` and `high` of the window ends `asked` that close at `close` (epoch ms); int64.

        The same value twice where nothing closes.
        """
        real = (close > 0) & (close < NEVER)
        usable = np.where(real, close, 0)
        until = usable + self.margin
        for lag in self.lags:
            until = np.where((usable >= lag.start) & (usable < lag.end), np.maximum(until, lag.end), until)
        ends, emitted = self.emissions
        if len(ends):
            place = np.minimum(np.searchsorted(ends, asked), len(ends) - 1)
            known = ends[place] == asked
            own = emitted[place]
            lagged = own > usable + self.slack
            until = np.where(known, np.where(lagged, own, usable + self.margin), until)
        # In a lag one partition is read far ahead of another, so the doubt reaches as far back.
        lagging = until > usable + self.margin
        low = np.where(lagging, usable - (until - usable), usable) - self.margin
        low = np.where(usable <= self.backlog_until, 0, low)
        return np.where(real, low, NEVER), np.where(real, until, NEVER)

    def undecided(self, closes: CloseArrays, index: Column, frame: DataFrame) -> Column:
        """Whether the log cannot tell for a record and the window end number `index`."""
        arrival = F.col(ARRIVAL)
        close_at = closes.positions[:, 0]
        low, high = self.bounds(closes.grid.ends(closes.first, len(close_at)), close_at)
        real = high < NEVER
        if (high[real] - low[real] == 2 * self.margin).all():
            # The close has been looked up already: two comparisons more, and no look-up.
            close = closes.at_index(index, frame).arrival
            margin = F.lit(self.margin)
            return (arrival - margin <= close) & (F.greatest(close, F.lit(0)) - margin < arrival)
        arrays = long_arrays(frame, {"low": low, "high": high})
        return (arrival > F.get(arrays["low"], index)) & (arrival <= F.get(arrays["high"], index))
