"""The charts of the report, as Vega-Lite specifications. Colours are the page's CSS variables and follow its theme.

Each takes the width in pixels that it is drawn for. Times are UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE, SECOND
from spark_jobs.formatting import length
from spark_jobs.report.counted import Advisor, DrawnView, LateHour, Strip
from spark_jobs.report.scales import VERDICT_COLOURS, bin_name, shown_tolerances
from spark_jobs.runs.life.verdicts import Stretch

Spans = Sequence[Sequence[int]]
"""[partition, from, to] each."""

WIDE, HALF, NARROW = 880, 430, 340

_KINDS = ("on_time", "behind", "late")
_COLOURS = ("var(--on-time)", "var(--behind)", "var(--late)")
_SHAPES = ("circle", "M0,-1.1L1.1,0.9L-1.1,0.9Z", "M-1,-1L1,1M-1,1L1,-1")
_CHANGES = {
    "inserted": "var(--inserted)",
    "updated": "var(--updated)",
    "retracted": "var(--retracted)",
    "was_open": "var(--was-open)",
    "outgrown": "var(--was-open)",
}
_DURATIONS = (
    0,
    *(s * SECOND for s in (1, 5, 30)),
    *(m * MINUTE for m in (1, 5, 15, 30)),
    *(h * HOUR for h in (1, 2, 4, 8)),
    *(d * DAY for d in (1, 2, 4, 7, 14, 28)),
)


class Rows:
    """The rows of one chart's layers. The layers know them by name: Altair would copy and check each of them often."""

    def __init__(self) -> None:
        self._sets: dict[str, list[dict[str, Any]]] = {}

    def __call__(self, rows: list[dict[str, Any]]) -> alt.NamedData:
        name = f"rows{len(self._sets)}"
        self._sets[name] = rows
        return alt.NamedData(name=name)

    def spec(self, chart: Any, width: int, height: int) -> dict[str, Any]:
        """The whole specification of the chart."""
        text = {"labelColor": "var(--muted)", "titleColor": "var(--ink)", "titleFontWeight": 600, "titlePadding": 8}
        made = (
            chart.properties(width=width, height=height, autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
            .configure(
                background="transparent",
                padding={"left": 12, "right": 8, "top": 4, "bottom": 4},
                view={"stroke": None},
                axis={
                    **text,
                    "labelFontSize": 12,
                    "titleFontSize": 12,
                    "gridColor": "var(--grid)",
                    "domainColor": "var(--edge)",
                    "tickColor": "var(--edge)",
                },
            )
            .to_dict(validate=False)
        )
        return {**made, "datasets": self._sets}


def changed_strip(strip: Strip, width: int) -> dict[str, Any]:
    """Windows changed over event time, stacked by what happened to them."""
    bars = [(bucket.start, {kind: getattr(bucket, kind) for kind in _CHANGES}) for bucket in strip.buckets]
    colours = {kind: colour for kind, colour in _CHANGES.items() if any(counts[kind] for _, counts in bars)}
    axis = _time_axis((bars[0][0], bars[-1][0] + strip.width), width)
    x = alt.X("start:T", scale=alt.Scale(type="utc"), title="Window start (UTC)", axis=axis)
    return _stacked(bars, strip.width, colours, x, width, 110)


def _stacked(
    bars: Iterable[tuple[int, Mapping[str, int]]],
    length: int,
    colours: Mapping[str, str],
    x: alt.X,
    width: int,
    height: int,
) -> dict[str, Any]:
    """Windows by their start, a bar for `length` ms, stacked by kind. `bars`: the start of each, its counts by kind."""
    data, rows = Rows(), []
    for start, counts in bars:
        low = 0
        for kind in colours:
            if high := counts.get(kind, 0):
                rows.append({"start": start, "end": start + length, "kind": kind, "low": low, "high": low + high})
            low += high
    colour = alt.Scale(domain=list(colours), range=list(colours.values()))
    chart = (
        alt.Chart(data(rows))
        .mark_rect(stroke="var(--paper)", strokeWidth=0.5)
        .encode(
            x=x,
            x2="end:T",
            y=alt.Y("low:Q", title="Windows", axis=alt.Axis(tickCount=3, format=",d", tickMinStep=1)),
            y2="high:Q",
            fill=alt.Fill("kind:N", legend=None, scale=colour),
        )
    )
    return data.spec(chart, width, height)


def watermark_map(view: DrawnView, width: int, idle: Spans = ()) -> dict[str, Any]:
    """Processing time across, event time up: the line of the watermark, window closes on it, sampled records.

    `idle`: [partition, from, to], shaded.
    """
    data = Rows()
    x = _processing_time(view, width)
    y = alt.Y(
        "v:T",
        scale=alt.Scale(type="utc", zero=False),
        title="Event time (UTC)",
        axis=alt.Axis(tickCount=6, labelExpr=_time_labels((view.start, view.end))),
    )
    line = (
        alt.Chart(data(_pairs(view.line)))
        .mark_line(interpolate="step-after", color="var(--watermark)", strokeWidth=2)
        .encode(x=x, y=y)
    )
    closes = (
        alt.Chart(data(_pairs(view.closes)))
        .mark_point(
            shape="diamond", size=34, stroke="var(--watermark)", fill="var(--paper)", strokeWidth=1.5, opacity=1
        )
        .encode(x=x, y=y)
    )
    layers = [*_shaded(data, view, idle, x), _points(data, view, x, y, lambda t, v: v), line, closes]
    return data.spec(alt.layer(*layers), width, 380 if width > 500 else 300)


def watermark_lag(view: DrawnView, width: int, idle: Spans = ()) -> dict[str, Any]:
    """Processing time across; up, how far records and watermark lag behind it; the watermark as a band.

    `idle`: [partition, from, to], shaded.
    """
    data = Rows()
    x = _processing_time(view, width)
    delays = [d for cell in view.lag for d in cell[2:]] + [t - v for kind in _KINDS for t, v in getattr(view, kind)]
    y = alt.Y(
        "v:Q",
        title="Delay behind processing time",
        scale=_duration_scale(delays),
        axis=_duration_axis(delays),
    )
    cells = [{"t": a, "end": b, "v": least, "most": most} for a, b, least, most in view.lag]
    band = (
        alt.Chart(data(cells))
        .mark_rect(fill="var(--watermark)", fillOpacity=0.3, clip=True)
        .encode(x=x, x2="end:T", y=y, y2="most:Q")
    )
    return data.spec(
        alt.layer(*_shaded(data, view, idle, x), band, _points(data, view, x, y, lambda t, v: t - v)), width, 300
    )


def missed_by(edges: Sequence[int], bins: Sequence[int], width: int) -> dict[str, Any]:
    """Late records by how long after their window's close they came."""
    data = Rows()
    used = [i for i, n in enumerate(bins) if n]
    low, high = (used[0], used[-1]) if used else (0, 0)
    rows = [{"bin": bin_name(edges, i), "records": bins[i], "order": i} for i in range(low, high + 1)]
    base = alt.Chart(data(rows)).encode(
        y=alt.Y(
            "bin:N", sort=None, title=None, axis=alt.Axis(labelLimit=200, labelPadding=6, ticks=False, domain=False)
        ),
        x=alt.X("records:Q", title="Late records", axis=alt.Axis(tickCount=4, format=",d", tickMinStep=1)),
    )
    text = base.mark_text(align="left", dx=4, color="var(--ink)", fontSize=11).encode(
        text=alt.Text("records:Q", format=",d")
    )
    return data.spec(base.mark_bar(color="var(--late)", height={"band": 0.72}) + text, width, 20 * len(rows))


def late_by_hour(hours: Sequence[LateHour], width: int) -> dict[str, Any]:
    """The share of late records by hour of day of their event time."""
    data = Rows()
    rows = [{"hour": f"{h.hour:02d}", "share": h.late_in_basis / h.records if h.records else 0} for h in hours]
    chart = (
        alt.Chart(data(rows))
        .mark_bar(color="var(--late)", width={"band": 0.72})
        .encode(
            x=alt.X(
                "hour:N",
                sort=None,
                title="Hour of the event time (UTC)",
                axis=alt.Axis(labelAngle=0, values=[f"{h:02d}" for h in range(0, 24, 3)], ticks=False),
            ),
            y=alt.Y("share:Q", title="Late", axis=alt.Axis(format="~%", tickCount=4)),
        )
    )
    return data.spec(chart, width, 150)


def tolerance_curve(advisor: Advisor, width: int) -> dict[str, Any]:
    """The share of records that would have been dropped, or behind the watermark, by tolerance."""
    data = Rows()
    total = advisor.records
    shown = shown_tolerances(advisor)
    names = {"closed": "window closed", "behind": "behind the watermark"}
    rows = [
        {"tolerance": row.tolerance, "share": getattr(row, field) / total, "what": name}
        for field, name in names.items()
        for row in shown
        if getattr(row, field)
    ]
    tolerances = [row.tolerance for row in shown]
    x = alt.X(
        "tolerance:Q",
        title="Bound + allowed lateness" if advisor.has_lateness else advisor.parameter.capitalize(),
        scale=_duration_scale(tolerances),
        axis=_duration_axis(tolerances),
    )
    y = alt.Y(
        "share:Q",
        title="Share of records",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(format="~%", tickCount=5),
    )
    lines = (
        alt.Chart(data(rows))
        .mark_line(point={"size": 26, "filled": True}, strokeWidth=2)
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "what:N",
                legend=None,
                scale=alt.Scale(domain=list(names.values()), range=["var(--late)", "var(--behind)"]),
            ),
            strokeDash=alt.StrokeDash(
                "what:N", legend=None, scale=alt.Scale(domain=list(names.values()), range=[[1, 0], [5, 3]])
            ),
        )
    )
    layers = [lines]
    if advisor.now:
        now = data([{"tolerance": advisor.now.tolerance, "label": "now"}])
        layers.append(alt.Chart(now).mark_rule(color="var(--ink)", strokeDash=[2, 3]).encode(x=x))
        layers.append(
            alt.Chart(now)
            .mark_text(align="left", dx=4, dy=6, baseline="top", color="var(--ink)", fontSize=12, fontWeight=600)
            .encode(x=x, y=alt.value(0), text="label:N")
        )
    return data.spec(alt.layer(*layers), width, 220)


def _processing_time(view: DrawnView, width: int) -> alt.X:
    reach = (view.start, view.end)
    scale = alt.Scale(type="utc", domain=list(reach), nice=False, clamp=True)
    return alt.X("t:T", scale=scale, title="Processing time (UTC)", axis=_time_axis(reach, width))


def _points(data: Rows, view: DrawnView, x: alt.X, y: alt.Y, value: Any) -> alt.Chart:
    rows = [{"t": t, "v": value(t, v), "kind": kind} for kind in _KINDS for t, v in getattr(view, kind)]
    return (
        alt.Chart(data(rows))
        .mark_point(clip=True)
        .encode(
            x=x,
            y=y,
            shape=alt.Shape("kind:N", legend=None, scale=alt.Scale(domain=_KINDS, range=_SHAPES)),
            stroke=alt.Stroke("kind:N", legend=None, scale=alt.Scale(domain=_KINDS, range=_COLOURS)),
            fill=alt.Fill(
                "kind:N",
                legend=None,
                scale=alt.Scale(domain=_KINDS, range=["var(--on-time)", "transparent", "transparent"]),
            ),
            size=alt.Size("kind:N", legend=None, scale=alt.Scale(domain=_KINDS, range=[9, 30, 28])),
            strokeWidth=alt.StrokeWidth("kind:N", legend=None, scale=alt.Scale(domain=_KINDS, range=[0, 1.3, 1.4])),
            opacity=alt.Opacity("kind:N", legend=None, scale=alt.Scale(domain=_KINDS, range=[0.6, 0.9, 0.9])),
        )
    )


def _shaded(data: Rows, view: DrawnView, idle: Spans, x: alt.X) -> list[alt.Chart]:
    """Stretches of processing time over the whole height; darker where several partitions were idle."""
    rows = [
        {"t": max(start, view.start), "end": min(end, view.end)}
        for _, start, end in idle
        if start < view.end and end > view.start
    ]
    if not rows:
        return []
    return [alt.Chart(data(rows)).mark_rect(fill="var(--muted)", fillOpacity=0.16).encode(x=x, x2="end:T")]


def _pairs(pairs: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
    return [{"t": t, "v": v} for t, v in pairs]


def _time_axis(reach: tuple[int, int], width: int) -> alt.Axis:
    """24 hours, and the day at midnight; for long ranges days or months."""
    return alt.Axis(
        tickCount=8 if width > 500 else 4, labelExpr=_time_labels(reach), labelOverlap=True, labelFlush=True, grid=False
    )


def _time_labels(reach: tuple[int, int]) -> str:
    across = reach[1] - reach[0]
    day = "utcFormat(datum.value, '%b %-d')"
    at_midnight = "utchours(datum.value) == 0 && utcminutes(datum.value) == 0 && utcseconds(datum.value) == 0"
    if across > 400 * DAY:
        return "utcFormat(datum.value, '%b %Y')"
    if across > 6 * DAY:
        return day
    clock = "%H:%M" if across > 10 * MINUTE else "%H:%M:%S"
    return f"{at_midnight} ? {day} : utcFormat(datum.value, '{clock}')"


def _duration_scale(values: Sequence[int]) -> alt.Scale:
    """Linear near zero, logarithmic beyond what is usual: minutes and days fit one axis."""
    return alt.Scale(type="symlog", constant=_usual(values), nice=False)


def _usual(values: Sequence[int]) -> int:
    sizes = sorted(abs(v) for v in values if v) or [SECOND]
    return max(1, sizes[len(sizes) // 4] // 2)


def _duration_axis(values: Sequence[int]) -> alt.Axis:
    """Round durations within the values, negative ones too; 0, and none so near it that their labels would meet."""
    low, high, usual = min(values, default=0), max(values, default=1), _usual(values)
    ticks = [v for v in _DURATIONS if v == 0 or usual / 2 <= v <= high]
    ticks = [-v for v in reversed(ticks) if v and -v >= low] + ticks
    labels = " : ".join(f"datum.value == {v} ? '{length(v)}'" for v in ticks)
    return alt.Axis(values=ticks, labelExpr=f"{labels} : ''", labelOverlap="greedy")


def verdict_strip(stretches: Sequence[Stretch], width: int, kinds: Sequence[str], pixels: int) -> dict[str, Any]:
    """Windows that are not `match` over event time, stacked by verdict; one bar for `width` ms."""
    bars = ((one.start, one.counts) for one in stretches)
    colours = {kind: VERDICT_COLOURS[kind] for kind in kinds}
    return _stacked(bars, width, colours, _starts(stretches, width, pixels), pixels, 130)


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
