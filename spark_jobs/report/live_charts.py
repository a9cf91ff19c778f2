"""The charts about the live job, as Vega-Lite specifications; see `spark_jobs.report.charts`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from spark_jobs.report.charts import Rows, _duration_axis, _duration_scale, _time_axis
from spark_jobs.report.scales import VERDICT_COLOURS
from spark_jobs.runs.verdicts import Stretch


def verdict_strip(stretches: Sequence[Stretch], width: int, kinds: Sequence[str], pixels: int) -> dict[str, Any]:
    """Windows that are not `match` over event time, stacked by verdict; one bar for `width` ms."""
    data, rows = Rows(), []
    for one in stretches:
        low = 0
        for kind in kinds:
            if high := low + one.counts.get(kind, 0):
                if high > low:
                    rows.append(
                        {"start": one.start, "end": one.start + width, "verdict": kind, "low": low, "high": high}
                    )
                low = high
    colours = alt.Scale(domain=list(kinds), range=[VERDICT_COLOURS[kind] for kind in kinds])
    chart = (
        alt.Chart(data(rows))
        .mark_rect(stroke="var(--paper)", strokeWidth=0.5)
        .encode(
            x=_starts(stretches, width, pixels),
            x2="end:T",
            y=alt.Y("low:Q", title="Windows", axis=alt.Axis(tickCount=3, format=",d", tickMinStep=1)),
            y2="high:Q",
            fill=alt.Fill("verdict:N", legend=None, scale=colours),
        )
    )
    return data.spec(chart, pixels, 130)


def live_lag(stretches: Sequence[Stretch], width: int, pixels: int) -> dict[str, Any]:
    """The longest delay from a window's close to its first row, over event time; a step for `width` ms."""
    known = [(one.start, one.lag.largest) for one in stretches if one.lag.largest is not None]
    rows = [{"start": start, "end": start + width, "lag": max(lag, 0)} for start, lag in known]
    data = Rows()
    delays = [row["lag"] for row in rows]
    chart = (
        alt.Chart(data(rows))
        .mark_rect(fill="var(--watermark)", fillOpacity=0.55)
        .encode(
            x=_starts(stretches, width, pixels),
            x2="end:T",
            y=alt.Y("lag:Q", title="Longest delay", scale=_duration_scale(delays), axis=_duration_axis(delays)),
            y2=alt.datum(0),
        )
    )
    return data.spec(chart, pixels, 130)


def _starts(stretches: Sequence[Stretch], width: int, pixels: int) -> alt.X:
    reach = (stretches[0].start, stretches[-1].start + width)
    scale = alt.Scale(type="utc", domain=list(reach), nice=False)
    return alt.X("start:T", scale=scale, title="Window start (UTC)", axis=_time_axis(reach, pixels))
