"""What expectations check about the live job: counts of verdicts by day, from `verdicts.json`. Shares lie in [0, 1].

Small tables of plain values as pandas frames, which Great Expectations can check.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from spark_jobs.runs.life.verdicts import Verdicts

if TYPE_CHECKING:
    import pandas as pd


def table_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    """The rows as a pandas frame: numbers as numbers, missing values as NaN."""
    import pandas as pd

    frame = pd.DataFrame([{c: row.get(c) for c in columns} for row in rows], columns=pd.Index(list(columns)))
    for column in frame.columns:
        values = [row.get(column) for row in rows]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values if v is not None):
            numbers = [math.nan if v is None else v for v in values]
            frame[column] = pd.Series(numbers, dtype="float64" if None in values else None)
    return frame


_COUNTED = ("match", "late_arrivals", "timing", "mismatch", "missing", "extra", "all_late", "undecided")

LIVE_COLUMNS = {
    "day": "UTC day of the windows' start, as 2013-02-08; one row each",
    "windows": "windows compared that have closed",
    **{name: f"of them, those with the verdict `{name}`" for name in _COUNTED},
    "different_share": "mismatch, missing and extra, of those; null where there are none",
    "lag_largest_ms": "the longest time from a window's close to its first row; null where `emitted_at` is not known",
    "run_compared": "1, or 0 where what the live job emitted could not be compared",
    "run_windows": "windows compared, all days",
    "run_mismatch_share": "`mismatch`, of those; null where there are none",
    "run_missing_share": "`missing`, of those; null where there are none",
    "run_extra_share": "`extra`, of those; null where there are none",
    "run_undecided_share": "`undecided`, of those; null where there are none",
    "run_late_share": "`late_arrivals` and `all_late`, of those; null where there are none",
    "run_lag_mean_ms": "the mean time from a window's close to its first row; null where it is not known",
    "run_lag_largest_ms": "the longest such time; null where it is not known",
}
"""One row for each day that was compared. Columns `run_...` are the same in each row."""


def live_frame(verdicts: Verdicts) -> pd.DataFrame:
    """The frame of a run that has compared; one row without a day where nothing could be compared."""
    run: dict[str, Any] = {
        "run_compared": 0 if verdicts.problem else 1,
        "run_windows": verdicts.windows,
        "run_mismatch_share": verdicts.share("mismatch"),
        "run_missing_share": verdicts.share("missing"),
        "run_extra_share": verdicts.share("extra"),
        "run_undecided_share": verdicts.share("undecided"),
        "run_late_share": verdicts.share("late_arrivals", "all_late"),
        "run_lag_mean_ms": verdicts.lag.mean,
        "run_lag_largest_ms": verdicts.lag.largest,
    }
    rows = [
        {"day": _day(day.start), **_of_day(day.counts), "lag_largest_ms": day.lag.largest, **run}
        for day in verdicts.days
    ]
    return table_of(rows or [run], LIVE_COLUMNS)


def _of_day(counts: Mapping[str, int]) -> dict[str, Any]:
    windows = sum(counts.get(name, 0) for name in _COUNTED)
    different = sum(counts.get(name, 0) for name in ("mismatch", "missing", "extra"))
    share = different / windows if windows else None
    return {"windows": windows, **{name: counts.get(name, 0) for name in _COUNTED}, "different_share": share}


def _day(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date().isoformat()
