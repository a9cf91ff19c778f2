"""The report as one self-contained HTML page: no script, no network, charts as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_jobs import formatting
from spark_jobs.report.charts import (
    HALF,
    NARROW,
    WIDE,
    bin_name,
    changed_strip,
    late_by_hour,
    missed_by,
    shown_tolerances,
    tolerance_curve,
    watermark_lag,
    watermark_map,
)
from spark_jobs.report.svg import inlined
from spark_jobs.report.verdict import told_changes

_CAUSES = {
    "backfill": "no run had published it",
    "late_arrivals": "records have arrived since",
    "logic_change": "another definition",
    "source_repair": "the source holds other values for the same records",
    "retraction": "the history no longer gives it",
    "live": "taken from the live job",
}

_CHARTS = ("strip", "lag", "zoom", "watermark", "missed", "hours", "advisor")


def render(report: Mapping[str, Any], facts: Mapping[str, Any] | None) -> str:
    """The page of `report` (see `report_of`); the points of its pictures come from `facts`."""
    template = _environment().get_template("report.html.j2")
    return template.render(r=report, charts=_charts(report, facts or {}), causes=_CAUSES)


def _charts(report: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Markup | None]:
    charts: dict[str, Markup | None] = dict.fromkeys(_CHARTS)

    def add(name: str, title: str, description: str, spec: Callable[[int], dict[str, Any]], widest: int = WIDE) -> None:
        charts[name] = _drawn(name, title, description, spec, widest)

    strip = (report["changes"] or {}).get("strip")
    if strip and strip["buckets"]:
        starts = [b["start"] for b in strip["buckets"]]
        add(
            "strip",
            "Changed windows over time",
            f"Bars of changed windows by window start, one for each {formatting.length(strip['width'])}, from "
            f"{formatting.moment(starts[0])} to {formatting.moment(starts[-1] + strip['width'])} UTC. The counts by "
            "change are in the text.",
            lambda width: changed_strip(strip, width),
        )
    picture = facts.get("watermark")
    if picture and picture["overview"]["line"]:
        overview, zoom = picture["overview"], picture["zoom"]
        idle = (picture.get("idle") or {}).get("longest", [])
        first, last = (formatting.moment(overview[edge], seconds=False) for edge in ("from", "to"))
        across = f"from {first} to {last}"
        if zoom is None:
            add("watermark", "Watermark and records", _told_map(across), lambda w: watermark_map(overview, w, idle))
        else:
            add(
                "lag",
                "Delay of watermark and records over the whole range",
                f"Processing time {across} UTC; up, how far the watermark, a band, and sampled records lag behind it.",
                lambda w: watermark_lag(overview, w, idle),
            )
            across = f"from {formatting.moment(zoom['from'])} to {formatting.moment(zoom['to'])}"
            add(
                "zoom",
                "Watermark and records where most were late",
                _told_map(across),
                lambda w: watermark_map(zoom, w, idle),
            )
    late = report["late"]
    if late and late["records"]:
        add(
            "missed",
            "Late records by how long after their window's close they came",
            "Bars by length of time; the numbers stand beside them.",
            lambda w: missed_by(late["edges"], late["bins"], w),
            HALF,
        )
        add(
            "hours",
            "Share of late records by hour of day",
            "Bars for the 24 hours of the event time in UTC; the table below has the numbers.",
            lambda w: late_by_hour(late["by_hour"], w),
            HALF,
        )
    advisor = report["advisor"]
    if advisor and any(row["behind"] for row in advisor["tolerances"]):
        add(
            "advisor",
            "Share of records that would have been late, by tolerance",
            "Two falling curves on a logarithmic scale: records behind the watermark, and below it records whose "
            "window had closed. The table has the numbers.",
            lambda w: tolerance_curve(advisor, w),
        )
    return charts


def _told_map(across: str) -> str:
    return (
        f"Processing time {across} UTC across, event time up. The watermark is a rising line of steps; records below "
        "it were behind it: triangles where their window was still open, crosses where it had closed."
    )


def _drawn(name: str, title: str, description: str, spec: Callable[[int], dict[str, Any]], widest: int) -> Markup:
    """Two drawings, of which the style sheet shows the one that fits the screen."""
    import vl_convert

    drawings = []
    for kind, width in (("wide", widest), ("narrow", NARROW)):
        svg = vl_convert.vegalite_to_svg(spec(width), allowed_base_urls=[])
        body = inlined(svg, f"{name}-{kind}", title, description)
        drawings.append(Markup('<div class="{}">{}</div>').format(kind, Markup(body)))
    return Markup("").join(drawings)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("spark_jobs.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        count=formatting.count,
        plural=formatting.plural,
        duration=formatting.length,
        exact=formatting.exact_length,
        moment=formatting.moment,
        iso=formatting.iso,
        written=formatting.written_time,
        plain=formatting.plain,
        tojson_text=formatting.pretty,
    )
    environment.globals.update(
        percent=formatting.percent,
        span=formatting.span,
        difference=formatting.difference,
        bin_name=bin_name,
        shown_tolerances=shown_tolerances,
        told_changes=told_changes,
        complete=lambda name: f"{name}__complete",
    )
    return environment
