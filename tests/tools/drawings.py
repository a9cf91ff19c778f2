"""Draw what the core computes for `docs/concepts.md`: `python -m tests.tools.drawings`, in the root.

Watermarks, closes and late records come from the event-time core, which runs the records that are drawn. Drawings that
show nothing computed are not made here: their SVG files are the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from spark_jobs.eventtime.durations import HOUR, MINUTE
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.windows import TumblingWindows
from tests.sequential.flink import JobResult, LiveJob, Record

FOLDER = Path("docs/drawings")
_WIDTH = 680
_STYLE = """
.bg{fill:#fff} text{fill:#1c2b38} .q{fill:#51687c} .r{fill:#b3261e} .o{fill:#0b7285} .h{font-weight:600}
.g{stroke:#9db4c6;fill:none} .f{fill:#e6eff5;stroke:#44617b} .w{stroke:#0b7285;stroke-width:2.5;fill:none}
.x{stroke:#b3261e;stroke-width:2;fill:none} .l{fill:#fbe4e2;stroke:#b3261e} .d{fill:#44617b} .n{stroke-dasharray:5 4}
@media (prefers-color-scheme: dark){
.bg{fill:#10171e} text{fill:#e3ebf2} .q{fill:#a9c0d3} .r{fill:#ff9a91} .o{fill:#63d0e0}
.g{stroke:#40586c} .f{fill:#1a2733;stroke:#86a7c2} .w{stroke:#63d0e0}
.x{stroke:#ff9a91} .l{fill:#3a1f1d;stroke:#ff9a91} .d{fill:#86a7c2}}
"""


class Drawing:
    """An SVG picture as wide as the pages, readable in light and dark. Positions are in pixels from the top left."""

    def __init__(self, title: str, height: int) -> None:
        self._title, self._height = title, height
        self._parts: list[str] = []

    def text(self, x: float, y: float, words: str, style: str = "", *, anchor: str = "start") -> None:
        shown = f' class="{style}"' if style else ""
        side = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}"{shown}{side}>{escape(words)}</text>')

    def path(self, points: Sequence[tuple[float, float]], style: str = "g", *, arrow: bool = False) -> None:
        way = " ".join(f"{x:g},{y:g}" for x, y in points)
        head = ' marker-end="url(#a)"' if arrow else ""
        self._parts.append(f'<polyline points="{way}" class="{style}"{head}/>')

    def box(self, x: float, y: float, width: float, height: float) -> None:
        size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect {size} rx="3" class="f"/>')

    def dot(self, x: float, y: float, name: str = "", *, late: bool = False) -> None:
        if late:
            self.path([(x - 5, y - 5), (x + 5, y + 5)], "x")
            self.path([(x - 5, y + 5), (x + 5, y - 5)], "x")
        else:
            self._parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" class="d"/>')
        if name:
            self.text(x, y - 11, name, "r" if late else "", anchor="middle")

    def svg(self) -> str:
        """The file's text."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self._height}" width="{_WIDTH}" '
            f'font-family="system-ui, -apple-system, \'Segoe UI\', Roboto, sans-serif" font-size="14" '
            f'role="img" aria-labelledby="t">\n<title id="t">{escape(self._title)}</title>\n<style>{_STYLE}</style>\n'
            '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
            'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0,0L8,4L0,8z" class="d"/></marker>'
            "</defs>\n"
        )
        ground = f'<rect class="bg" width="{_WIDTH}" height="{self._height}"/>'
        return head + "\n".join([ground, *self._parts, "</svg>"]) + "\n"


def clock(minutes: float) -> str:
    """Minutes after 10:00 as a time of day."""
    return f"{10 + int(minutes) // 60:02d}:{int(minutes) % 60:02d}"


def replayed(events: Sequence[tuple[float, float]], *, bound: int) -> JobResult:
    """What a live job does with records `(arrival, event time)`, in minutes after 10:00; windows of an hour."""
    strategy = WatermarkStrategy(BoundedOutOfOrderness(bound * MINUTE), (0,), ((0,),))
    job = LiveJob(strategy, TumblingWindows(HOUR), 0)
    records = [
        Record(0, number, int(arrival * MINUTE), "k", int(time * MINUTE))
        for number, (arrival, time) in enumerate(events)
    ]
    return job.run(records, flush=False)


def watermark_steps(result: JobResult, events: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The watermark over processing time, both in minutes after 10:00: the corners of its steps."""
    corners: list[tuple[float, float]] = []
    for at, signal in result.emissions:
        arrival, level = at.clock / MINUTE, (signal.watermark + 1) / MINUTE
        corners += [(arrival, corners[-1][1])] if corners else []
        corners.append((arrival, level))
    return [*corners, (events[-1][0] + 4, corners[-1][1])]


def watermark() -> Drawing:
    drawing = Drawing("The watermark stays two minutes behind the latest event time, and never goes back", 320)
    events = [(1.0, 0.5), (4.0, 5.0), (7.0, 3.0), (11.0, 9.0), (15.0, 12.0)]
    at = _axes(drawing, 280, lambda x: 80 + 28 * x, lambda y: 260 - 15 * (y + 2), (0, 5, 10))
    latest = [at(*event) for event in events if event[1] == max(e[1] for e in events if e[0] <= event[0])]
    drawing.path([at(*corner) for corner in watermark_steps(replayed(events, bound=2), events)], "w")
    for arrival, time in events:
        drawing.dot(*at(arrival, time), clock(time))
    x, y = latest[2]
    drawing.path([(x, y + 8), (x, at(11, 7)[1] - 3)], arrow=True)
    drawing.text(x + 9, y + 24, "bound: 2 min", "q")
    drawing.text(*at(15.5, 8.4), "watermark", "o h")
    drawing.text(at(7, 0)[0], at(7, 0)[1] + 4, "10:03 comes after 10:05: no step back", "q")
    return drawing


def lateness() -> Drawing:
    drawing = Drawing("A window closes when the watermark passes its end; a record that comes later is late", 330)
    events = [(2, 35), (8, 42), (14, 55), (18, 51), (26, 72), (34, 53), (40, 80)]
    result = replayed(events, bound=10)
    late = {record.record for record in result.late}
    (closed,) = (at.clock / MINUTE for at, firing in result.firings)
    at = _axes(drawing, 290, lambda x: 80 + 12.6 * x, lambda y: 275 - 4.6 * (y - 25), (30, 60))
    left, top = at(0, 60)
    drawing.box(left, top, at(closed, 0)[0] - left, 275 - top)
    drawing.text(left + 8, top + 20, "window [10:00, 11:00) is open", "q")
    drawing.path([(left, top), (660, top)], "g n")
    drawing.path([(at(closed, 0)[0], 20), (at(closed, 0)[0], 275)], "g n")
    drawing.text(at(closed, 0)[0] + 8, 268, "closed: it has fired", "q")
    drawing.path([at(*corner) for corner in watermark_steps(result, events)], "w")
    drawing.text(*at(28.5, 65), "watermark", "o h")
    for number, event in enumerate(events):
        drawing.dot(*at(*event), late=number in late)
    x, y = at(*events[min(late)])
    drawing.text(x + 12, y + 5, f"late: {clock(events[min(late)][1])}", "r h")
    return drawing


def _axes(
    drawing: Drawing, bottom: float, x: Callable[[float], float], y: Callable[[float], float], ticks: Sequence[float]
) -> Callable[[float, float], tuple[float, float]]:
    """Axes of processing time (across) and event time (up); the function that places a point in minutes."""
    drawing.path([(x(0), bottom), (x(0), 20)], arrow=True)
    drawing.path([(x(0), bottom), (665, bottom)], arrow=True)
    drawing.text(8, 16, "event time", "q")
    drawing.text(665, bottom + 22, "processing time", "q", anchor="end")
    for tick in ticks:
        drawing.text(x(0) - 10, y(tick) + 5, clock(tick), "q", anchor="end")
        drawing.path([(x(0) - 5, y(tick)), (x(0), y(tick))])
    return lambda across, up: (x(across), y(up))


DRAWINGS = {"watermark": watermark, "lateness": lateness}
"""The drawings by the name of their file."""

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
