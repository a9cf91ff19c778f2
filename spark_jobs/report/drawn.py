"""The charts of a report as SVG, from the report and the facts of the run; needs the part `report` of the package."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

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
    live_lag,
    missed_by,
    tolerance_curve,
    verdict_strip,
    watermark_lag,
    watermark_map,
)
from spark_jobs.report.counted import Facts
from spark_jobs.report.live_job import different_in
from spark_jobs.report.model import Live, Report
from spark_jobs.report.scales import CHARTS


def charts_of(report: Report, facts: Facts | None) -> dict[str, Markup | None]:
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
    picture = facts.watermark if facts else None
    if picture and (picture.overview.line or picture.by_partition):
        overview, zoom, by_partition = picture.overview, picture.zoom, picture.by_partition
        idle = picture.idle.longest if picture.idle else ()
        first, last = (formatting.moment(edge, seconds=False) for edge in (overview.start, overview.end))
        across = f"from {first} to {last}"
        if zoom is None:
            add(
                "watermark",
                "Watermark and records",
                _described(across, by_partition),
                lambda w: watermark_map(overview, w, idle),
            )
        else:
            add(
                "lag",
                "Delay of watermark and records over the whole range",
                f"Across: processing time {across} UTC. Up: how far "
                + ("records are behind." if by_partition else "the watermark (a band) and records are behind."),
                lambda w: watermark_lag(overview, w, idle),
            )
            across = f"from {formatting.moment(zoom.start)} to {formatting.moment(zoom.end)}"
            add(
                "zoom",
                "Watermark and records where most records were late",
                _described(across, by_partition),
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


def _described(across: str, by_partition: bool) -> str:
    axes = f"Across: processing time {across} UTC. Up: event time."
    if by_partition:
        return (
            f"{axes} Triangles and crosses are records behind the stream time of their partition less the grace: "
            "triangles where the window was still open, crosses where it had closed."
        )
    return (
        f"{axes} The watermark is a rising line of steps. Records below "
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


_SVG = "http://www.w3.org/2000/svg"
ET.register_namespace("", _SVG)
_DROPPED = ("role", "class", "pointer-events", "stroke-miterlimit", "version")
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_TRANSLATE = re.compile(r"translate\((-?[\d.]+),(-?[\d.]+)\)")


def inlined(svg: str, name: str, title: str, description: str) -> str:
    """`svg` for a page. `name` begins all its ids; `title` and `description` are its text alternative.

    It scales with its box, its text takes the page's font, and marks that repeat are written once.
    """
    root = ET.fromstring(svg)
    _tidy(root)
    _share_marks(root, name)
    _name_ids(root, name)
    for key in ("width", "height"):
        root.attrib.pop(key, None)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-desc")
    for tag, text in (("desc", description), ("title", title)):
        child = ET.Element(f"{{{_SVG}}}{tag}", {"id": f"{name}-{tag}"})
        child.text = text
        root.insert(0, child)
    return ET.tostring(root, encoding="unicode")


def _name_ids(root: ET.Element, name: str) -> None:
    """Ids in the order in which they stand: the renderer numbers them on from one drawing to the next."""
    given = [e.attrib["id"] for e in root.iter() if "id" in e.attrib]
    own = {old: old if old.startswith(f"{name}-") else f"{name}-{i}" for i, old in enumerate(given)}
    for element in root.iter():
        if "id" in element.attrib:
            element.set("id", own[element.attrib["id"]])
        for key, value in element.attrib.items():
            if "url(#" in value:
                element.set(key, _REFERENCE.sub(lambda found: f"url(#{own.get(found[1], found[1])})", value))


def _tidy(parent: ET.Element) -> None:
    for child in list(parent):
        is_nothing = child.get("display") == "none" or child.get("d") in ("", "M0,0h0v0h0Z")
        is_paper = child.tag == f"{{{_SVG}}}rect" and child.get("fill") == "transparent"
        bare = child.get("class") == "background" and not child.get("fill") and not child.get("stroke")
        if is_nothing or is_paper or bare:
            parent.remove(child)
            continue
        _tidy(child)
        if child.tag == f"{{{_SVG}}}g" and not len(child):
            parent.remove(child)
    for key in [k for k in parent.attrib if k.startswith("aria-") or k in _DROPPED]:
        del parent.attrib[key]
    if parent.get("opacity") == "1":
        del parent.attrib["opacity"]
    parent.attrib.pop("font-family", None)
    for key in ("d", "transform"):
        if key in parent.attrib:
            parent.set(key, _NUMBER.sub(lambda m: f"{float(m[0]):.1f}", parent.attrib[key]))


def _share_marks(root: ET.Element, name: str) -> None:
    """Marks that differ in nothing but their place are drawn by reference."""

    def look(mark: ET.Element) -> tuple:
        return tuple(sorted((k, v) for k, v in mark.attrib.items() if k != "transform"))

    def is_mark(element: ET.Element) -> bool:
        placed = _TRANSLATE.fullmatch(element.get("transform", ""))
        return element.tag == f"{{{_SVG}}}path" and placed is not None

    looks = Counter(look(e) for e in root.iter() if is_mark(e))
    shared: dict[tuple, str] = {}
    definitions = ET.Element(f"{{{_SVG}}}defs")
    for element in root.iter():
        if not is_mark(element) or looks[look(element)] < 10:
            continue
        key = look(element)
        if key not in shared:
            shared[key] = f"{name}-m{len(shared)}"
            ET.SubElement(definitions, element.tag, dict(key) | {"id": shared[key]})
        x, y = _TRANSLATE.findall(element.attrib["transform"])[0]
        element.tag = f"{{{_SVG}}}use"
        element.attrib.clear()
        element.attrib.update({"href": f"#{shared[key]}", "x": f"{float(x):g}", "y": f"{float(y):g}"})
    if len(definitions):
        root.insert(0, definitions)
