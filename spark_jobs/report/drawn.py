"""The charts of a report as SVG, from the report and the facts of the run; needs the part `report` of the package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import vl_convert
from altair.utils.schemapi import debug_mode
from markupsafe import Markup

from spark_jobs import formatting
from spark_jobs.report.charts import (
    HALF,
    NARROW,
    WIDE,
    changed_strip,
    late_by_hour,
    missed_by,
    tolerance_curve,
    watermark_lag,
    watermark_map,
)
from spark_jobs.report.live_charts import live_lag, verdict_strip
from spark_jobs.report.live_job import different_in
from spark_jobs.report.model import Live, Report
from spark_jobs.report.scales import CHARTS
from spark_jobs.report.svg import inlined


def charts_of(report: Report, facts: Mapping[str, Any]) -> dict[str, Markup | None]:
    """By chart: its drawing, or None where the run gives nothing to draw. `facts` holds the points."""
    charts: dict[str, Markup | None] = dict.fromkeys(CHARTS)

    def add(name: str, title: str, description: str, spec: Callable[[int], dict[str, Any]], widest: int = WIDE) -> None:
        charts[name] = _drawn(name, title, description, spec, widest)

    strip = report.changes.strip if report.changes else None
    if strip and strip.buckets:
        starts = [bucket.start for bucket in strip.buckets]
        add(
            "strip",
            "Changed windows over time",
            f"Bars: the number of changed windows by window start, one bar for {formatting.length(strip.width)}, "
            f"from {formatting.moment(starts[0])} to {formatting.moment(starts[-1] + strip.width)} UTC. The text "
            "has the counts by change.",
            lambda width: changed_strip(strip, width),
        )
    _add_live(report.live, add)
    picture = facts.get("watermark")
    if picture and picture["overview"]["line"]:
        overview, zoom = picture["overview"], picture["zoom"]
        idle = (picture.get("idle") or {}).get("longest", [])
        first, last = (formatting.moment(overview[edge], seconds=False) for edge in ("from", "to"))
        across = f"from {first} to {last}"
        if zoom is None:
            add(
                "watermark",
                "Watermark and records",
                _described(across),
                lambda w: watermark_map(overview, w, idle),
            )
        else:
            add(
                "lag",
                "Delay of watermark and records over the whole range",
                f"Across: processing time {across} UTC. Up: how far the watermark (a band) and records are behind.",
                lambda w: watermark_lag(overview, w, idle),
            )
            across = f"from {formatting.moment(zoom['from'])} to {formatting.moment(zoom['to'])}"
            add(
                "zoom",
                "Watermark and records where most records were late",
                _described(across),
                lambda w: watermark_map(zoom, w, idle),
            )
    late = report.late
    if late and late.records:
        add(
            "missed",
            "Late records by the time from the close of their window to their arrival",
            "One bar for each range of times, with its number of records.",
            lambda w: missed_by(late.edges, late.bins, w),
            HALF,
        )
        add(
            "hours",
            "Share of late records by hour of day",
            "One bar for each hour of the event time in UTC. The table below has the numbers.",
            lambda w: late_by_hour(late.by_hour, w),
            HALF,
        )
    advisor = report.advisor
    if advisor and any(row.behind for row in advisor.tolerances):
        add(
            "advisor",
            "Share of records that would have been late, by setting",
            "Two falling curves on a logarithmic scale: records behind the watermark, and below it records whose "
            "window had closed. The table below has the numbers.",
            lambda w: tolerance_curve(advisor, w),
        )
    return charts


def _add_live(live: Live | None, add: Callable[..., None]) -> None:
    """The charts about the live job."""
    stretches = live.stretches if live else []
    if live is None or not stretches:
        return
    first, last = (formatting.moment(at) for at in (stretches[0].start, stretches[-1].start + live.width))
    kinds = different_in(stretches)
    if kinds:
        add(
            "verdicts",
            "Windows of the live job that are not as they should be, over time",
            f"Bars: the number of windows by verdict, one bar for {formatting.length(live.width)}, from {first} to "
            f"{last} UTC. The table has the counts.",
            lambda width: verdict_strip(stretches, live.width, kinds, width),
        )
    if any((one.lag.largest or 0) > 0 for one in stretches):
        add(
            "live_lag",
            "Delay of the live job over time",
            f"A line: the longest time from a window's close to its first row, from {first} to {last} UTC.",
            lambda width: live_lag(stretches, live.width, width),
        )


def _described(across: str) -> str:
    return (
        f"Across: processing time {across} UTC. Up: event time. The watermark is a rising line of steps. Records below "
        "the line were behind the watermark: triangles where their window was still open, crosses where it had closed."
    )


def _drawn(name: str, title: str, description: str, spec: Callable[[int], dict[str, Any]], widest: int) -> Markup:
    """The chart in two widths. The style sheet shows the one that fits the screen."""
    drawings = []
    for kind, width in (("wide", widest), ("narrow", NARROW)):
        with debug_mode(False):  # else Altair checks each piece of the chart again and again
            made = spec(width)
        svg = vl_convert.vegalite_to_svg(made, allowed_base_urls=[])
        body = inlined(svg, f"{name}-{kind}", title, description)
        drawings.append(Markup('<div class="{}">{}</div>').format(kind, Markup(body)))
    return Markup("").join(drawings)
