"""The report as one self-contained HTML page: no script, no network, charts as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from altair.utils.schemapi import debug_mode
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

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
from spark_jobs.report.live_charts import COLOURS, live_lag, verdict_strip
from spark_jobs.report.live_job import different_in
from spark_jobs.report.normal import points, shown
from spark_jobs.report.svg import inlined
from spark_jobs.report.words import WORDS, anchor
from spark_jobs.runs.figures import bookkeeping_in_words, changes_in_words, failed_in_words
from spark_jobs.runs.status import RunKind
from spark_jobs.runs.unmet import allowed_in_words, observed_in_words

_CAUSES = {
    "backfill": "no run had published this range before",
    "late_arrivals": "more records have arrived since the last run",
    "logic_change": "the definition has changed",
    "source_repair": "the values of the same records have changed in the source",
    "retraction": "the records no longer give this window",
}

_CAUSE_MEANINGS = {
    ("inserted", "late_arrivals"): "the range was published before; records that have arrived since make a new window",
    ("updated", "late_arrivals"): "more records of the window have arrived since the run before",
}
"""What a cause means for one kind of change, where that is not what it means for all."""

_FIDELITIES = {
    "recorded": "decided by what the live job recorded",
    "log_order": "lateness follows the order of the log",
    "approximate": "the arrival times are only approximate",
    "complete_only": "no order of arrival, so no lateness",
}

COUNTED_AT_MOST = 3_000_000
"""About so many records the facts count at most; `spark_jobs.report.lateness_probe.MAX_COUNTED`, which needs Spark."""

_CHARTS = ("strip", "verdicts", "live_lag", "lag", "zoom", "watermark", "missed", "hours", "advisor")


def render(report: Mapping[str, Any], facts: Mapping[str, Any] | None) -> str:
    """The page of `report` (see `report_of`). `facts` holds the points of its charts."""
    template = _environment().get_template("report.html.j2")
    return template.render(r=report, charts=_charts(report, facts or {}), causes=_CAUSES, fidelities=_FIDELITIES)


def looked_at(report: Mapping[str, Any]) -> str:
    """Which records the page's shares and the advisor count, and why those."""
    advisor, plan = report["advisor"], report["plan"] or {}
    start, end = (formatting.moment(advisor["event_times"][edge], seconds=False) for edge in ("from", "to"))
    times, those = plan.get("event_times") or {}, f"those with event times from {start} to {end}"
    if advisor["event_times"]["from"] <= max(times.get("start", 0), (plan.get("span") or {}).get("start", 0)):
        return f"{those}, all of the run's range"
    if report["run"]["kind"] == RunKind.RECONCILE and advisor["records"] < COUNTED_AT_MOST:
        return f"{those}, the last week, so that a night costs the same however long the history is"
    return f"{those}, the latest, because to count all would cost more than the replay"


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
            f"Bars: the number of changed windows by window start, one bar for {formatting.length(strip['width'])}, "
            f"from {formatting.moment(starts[0])} to {formatting.moment(starts[-1] + strip['width'])} UTC. The text "
            "has the counts by change.",
            lambda width: changed_strip(strip, width),
        )
    _add_live(report.get("live"), add)
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
    late = report["late"]
    if late and late["records"]:
        add(
            "missed",
            "Late records by the time from the close of their window to their arrival",
            "One bar for each range of times, with its number of records.",
            lambda w: missed_by(late["edges"], late["bins"], w),
            HALF,
        )
        add(
            "hours",
            "Share of late records by hour of day",
            "One bar for each hour of the event time in UTC. The table below has the numbers.",
            lambda w: late_by_hour(late["by_hour"], w),
            HALF,
        )
    advisor = report["advisor"]
    if advisor and any(row["behind"] for row in advisor["tolerances"]):
        add(
            "advisor",
            "Share of records that would have been late, by setting",
            "Two falling curves on a logarithmic scale: records behind the watermark, and below it records whose "
            "window had closed. The table below has the numbers.",
            lambda w: tolerance_curve(advisor, w),
        )
    return charts


def _add_live(live: Mapping[str, Any] | None, add: Callable[..., None]) -> None:
    """The charts about the live job."""
    stretches = live["stretches"] if live else []
    if live is None or not stretches:
        return
    first, last = (formatting.moment(at) for at in (stretches[0]["start"], stretches[-1]["start"] + live["width"]))
    kinds = different_in(stretches)
    if kinds:
        add(
            "verdicts",
            "Windows of the live job that are not as they should be, over time",
            f"Bars: the number of windows by verdict, one bar for {formatting.length(live['width'])}, from {first} to "
            f"{last} UTC. The table has the counts.",
            lambda width: verdict_strip(stretches, live["width"], kinds, width),
        )
    if any((one.get("lag") or {}).get("largest") is not None for one in stretches):
        add(
            "live_lag",
            "Delay of the live job over time",
            f"A line: the longest time from a window's close to its first row, from {first} to {last} UTC.",
            lambda width: live_lag(stretches, live["width"], width),
        )


def _described(across: str) -> str:
    return (
        f"Across: processing time {across} UTC. Up: event time. The watermark is a rising line of steps. Records below "
        "the line were behind the watermark: triangles where their window was still open, crosses where it had closed."
    )


def _drawn(name: str, title: str, description: str, spec: Callable[[int], dict[str, Any]], widest: int) -> Markup:
    """The chart in two widths. The style sheet shows the one that fits the screen."""
    import vl_convert

    drawings = []
    for kind, width in (("wide", widest), ("narrow", NARROW)):
        with debug_mode(False):  # else Altair checks each piece of the chart again and again
            made = spec(width)
        svg = vl_convert.vegalite_to_svg(made, allowed_base_urls=[])
        body = inlined(svg, f"{name}-{kind}", title, description)
        drawings.append(Markup('<div class="{}">{}</div>').format(kind, Markup(body)))
    return Markup("").join(drawings)


def _ticked(text: str) -> Markup:
    """A text with what stands between two backticks as code."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(piece) if i % 2 else escape(piece) for i, piece in enumerate(pieces))


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
        ticked=_ticked,
    )
    environment.globals.update(
        percent=formatting.percent,
        span=formatting.span,
        difference=formatting.difference,
        bin_name=bin_name,
        shown_tolerances=shown_tolerances,
        changes_in_words=changes_in_words,
        bookkeeping_in_words=bookkeeping_in_words,
        failed_in_words=failed_in_words,
        observed_in_words=observed_in_words,
        allowed_in_words=allowed_in_words,
        cause_meanings=_CAUSE_MEANINGS,
        looked_at=looked_at,
        signed=formatting.signed,
        points=points,
        shown=shown,
        words=WORDS,
        anchor=anchor,
        complete=lambda name: f"{name}__complete",
        emitted=lambda name: f"{name}__emitted",
        verdict_colours=COLOURS,
    )
    return environment
