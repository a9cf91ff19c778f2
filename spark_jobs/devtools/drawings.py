"""Draw the pictures of `docs/concepts.md`: `python -m spark_jobs.devtools.drawings`, in the root.

Watermarks, closes and late records come from the event-time core, which runs the records that are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.job import JobResult, LiveJob, Record
from spark_jobs.eventtime.strategy import WatermarkStrategy
from spark_jobs.eventtime.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.windows import TumblingWindows

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

    def box(self, x: float, y: float, width: float, height: float, style: str = "f", words: str = "") -> None:
        size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        self._parts.append(f'<rect {size} rx="3" class="{style}"/>')
        if words:
            self.text(x + width / 2, y + height / 2 + 5, words, anchor="middle")

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


def replayed(
    events: Sequence[tuple[float, float]], *, bound: float, lateness: float = 0, size: float = 60
) -> JobResult:
    """What a live job does with records `(arrival, event time)`, in minutes after 10:00; windows of `size` minutes."""
    strategy = WatermarkStrategy(BoundedOutOfOrderness(int(bound * MINUTE)), (0,), ((0,),))
    job = LiveJob(strategy, TumblingWindows(int(size * MINUTE)), int(lateness * MINUTE))
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


def event_time() -> Drawing:
    drawing = Drawing("Event time and the order in the log: record B takes a detour", 200)
    order = ["A", "C", "B", "D"]
    drawing.text(8, 45, "event time")
    drawing.text(8, 160, "place in the log")
    drawing.path([(130, 50), (665, 50)], arrow=True)
    drawing.path([(130, 150), (665, 150)], arrow=True)
    for number, name in enumerate("ABCD"):
        x, there = 170 + 125 * number, 170 + 125 * order.index(name)
        drawing.path([(x, 58), (there, 140)], "x" if name == "B" else "g", arrow=name != "B")
        drawing.dot(x, 50, name)
        drawing.text(x, 22, clock(number), "q", anchor="middle")
        drawing.dot(there, 150)
        drawing.text(there, 178, f"offset {order.index(name)}", "q", anchor="middle")
    drawing.text(385, 96, "B takes a detour", "r")
    return drawing


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


def idleness() -> Drawing:
    drawing = Drawing("Of several partitions the smallest watermark counts; an idle partition does not", 176)
    for row, (name, level, note) in enumerate(
        (("partition 0", 7, "10:07"), ("partition 1", 2, "10:02, the smallest"), ("partition 2", 0, ""))
    ):
        y = 24 + 40 * row
        drawing.text(8, y + 15, name)
        if note:
            drawing.box(110, y, 50 * level, 20)
            drawing.text(118 + 50 * level, y + 15, note, "q")
        else:
            drawing.path([(110, y + 10), (460, y + 10)], "g n")
            drawing.text(468, y + 15, "idle: no records for 45 min", "q")
    drawing.path([(210, 8), (210, 146)], "w")
    drawing.text(210, 166, "watermark of the job: 10:02", "o h", anchor="middle")
    return drawing


def lateness() -> Drawing:
    drawing = Drawing("A window closes when the watermark passes its end; a record that comes later is late", 330)
    events = [(2, 35), (8, 42), (14, 55), (18, 51), (26, 72), (34, 53), (40, 80)]
    result = replayed(events, bound=10)
    late = {record.record for record in result.late}
    (closed,) = (at.clock / MINUTE for at, firing in result.firings)
    at = _axes(drawing, 290, lambda x: 80 + 12.6 * x, lambda y: 275 - 4.6 * (y - 25), (30, 60))
    left, top = at(0, 60)
    drawing.box(left, top, at(closed, 0)[0] - left, 275 - top, "f")
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


def panes() -> Drawing:
    drawing = Drawing("Allowed lateness: a late record makes the window fire again, until that time is over", 190)
    drawing.box(20, 60, 330, 40, "f", "window [10:00, 11:00)")
    drawing.box(350, 60, 150, 40, "l", "allowed lateness")
    drawing.path([(20, 130), (665, 130)], "w", arrow=True)
    drawing.text(665, 156, "watermark", "o h", anchor="end")
    for x, words in ((350, "11:00"), (500, "11:10")):
        drawing.path([(x, 52), (x, 138)], "g")
        drawing.text(x, 156, words, "q", anchor="middle")
    drawing.text(185, 44, "on time: counted", anchor="middle")
    drawing.text(425, 44, "late: counted", anchor="middle")
    drawing.text(585, 44, "later: dropped", "r", anchor="middle")
    drawing.text(350, 180, "fires: pane 0", anchor="middle")
    drawing.text(425, 22, "fires again: pane 1, 2, ...", anchor="middle")
    drawing.text(585, 86, "<pipeline>__late", "r", anchor="middle")
    return drawing


def windows() -> Drawing:
    drawing = Drawing("Tumbling, sliding, cumulative and session windows", 330)
    hour = 80
    kinds: list[tuple[str, str, int, list[tuple[float, float, int]]]] = [
        ("tumbling", "size 1 h", 1, [(start, start + 1, 0) for start in range(6)]),
        ("sliding", "size 1 h, slide 30 min", 2, [(half / 2, half / 2 + 1, half % 2) for half in range(11)]),
        ("cumulative", "size 3 h, step 1 h", 3, [(d, d + n, n - 1) for d in (0, 3) for n in (1, 2, 3)]),
        ("session", "gap 30 min", 1, [(0.2, 2.0, 0), (3.1, 4.9, 0)]),
    ]
    y = 16.0
    for name, parameters, rows, spans in kinds:
        drawing.text(8, y + 14, name, "h")
        drawing.text(8, y + 32, parameters, "q")
        for start, end, row in spans:
            drawing.box(175 + hour * start, y + 22 * row, hour * (end - start) - 3, 18)
        if name == "session":
            for time in (0.2, 0.5, 0.9, 1.1, 1.5, 3.1, 3.5, 4.0, 4.4):
                drawing.dot(175 + hour * time + 4, y + 9)
        y += max(22 * rows, 40) + 22
    drawing.path([(175, y + 4), (665, y + 4)], arrow=True)
    for time in range(6):
        drawing.text(175 + hour * time, y + 24, f"{10 + time}:00", "q", anchor="middle")
    return drawing


def as_of() -> Drawing:
    drawing = Drawing("End offsets: one for each partition", 150)
    for row, (last, end) in enumerate(((9, 8), (7, 5))):
        y = 20 + 46 * row
        drawing.text(8, y + 20, f"partition {row}")
        for offset in range(last + 1):
            drawing.box(100 + 46 * offset, y, 42, 30, "f" if offset < end else "g n", str(offset))
        x = 100 + 46 * end - 2
        drawing.path([(x, y - 6), (x, y + 36)], "x")
        drawing.text(100 + 46 * (last + 1) + 8, y + 20, f"end offset {end}", "r")
    drawing.text(100, 136, "as of {0: 8, 1: 5}: what lies before the red lines is read, whenever the run is")
    return drawing


def fidelity() -> Drawing:
    drawing = Drawing("What a history still knows of the log's order decides how exactly lateness can be repeated", 236)
    drawing.text(8, 22, "what the history knows of each record", "q")
    drawing.text(352, 22, "fidelity", "q")
    rows = (
        (("partition", "offset", "broker's time"), "log_order", "exact under the job's rules"),
        (("partition", "offset", "producer's time"), "approximate", "certain only within a partition"),
        ((), "complete_only", "faithful values are refused, not guessed"),
    )
    for row, (columns, name, meaning) in enumerate(rows):
        y = 38 + 64 * row
        x = 8.0
        for column, width in zip(columns, (80, 62, 124), strict=False):
            drawing.box(x, y, width, 40, "f", column)
            x += width + 6
        if not columns:
            drawing.box(8, y, 278, 40, "g n", "none of it")
        drawing.path([(298, y + 20), (344, y + 20)], arrow=True)
        drawing.text(352, y + 17, name, "o h" if columns else "r h")
        drawing.text(352, y + 36, meaning)
    return drawing


def three_truths() -> Drawing:
    drawing = Drawing("Three truths: faithful, emitted and complete values of a window", 300)
    drawing.path([(280, 76), (150, 206)], "w")
    drawing.path([(400, 76), (530, 206)], "x")
    drawing.box(230, 16, 220, 60)
    drawing.text(340, 42, "FAITHFUL", "h", anchor="middle")
    drawing.text(340, 62, "the live job's rules, replayed", "q", anchor="middle")
    drawing.box(20, 206, 240, 60)
    drawing.text(140, 232, "EMITTED", "h", anchor="middle")
    drawing.text(140, 252, "what the job's table holds", "q", anchor="middle")
    drawing.box(420, 206, 240, 60)
    drawing.text(540, 232, "COMPLETE", "h", anchor="middle")
    drawing.text(540, 252, "what is true now", "q", anchor="middle")
    for y, words in ((126, "equal: the replay"), (144, "explains the job")):
        drawing.text(196, y, words, "o", anchor="end")
    for y, words in ((126, "different: these"), (144, "records came too late")):
        drawing.text(484, y, words, "r")
    return drawing


def revisions() -> Drawing:
    drawing = Drawing("A window whose value changed gets a new revision; the old one stays", 150)
    drawing.text(8, 22, "window [10:00, 11:00) of shop north", "h")
    drawing.box(8, 38, 250, 56, "g n")
    drawing.text(20, 61, "revision 1: 118")
    drawing.text(20, 82, "backfill, valid from Monday", "q")
    drawing.path([(258, 66), (300, 66)], arrow=True)
    drawing.box(304, 38, 250, 56)
    drawing.text(316, 61, "revision 2: 120")
    drawing.text(316, 82, "late_arrivals, valid from Tuesday", "q")
    drawing.path([(429, 128), (429, 98)], "w", arrow=True)
    drawing.text(440, 132, "readers see this one", "o h")
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


DRAWINGS = {
    "event-time": event_time,
    "watermark": watermark,
    "idleness": idleness,
    "lateness": lateness,
    "panes": panes,
    "windows": windows,
    "as-of": as_of,
    "fidelity": fidelity,
    "three-truths": three_truths,
    "revisions": revisions,
}
"""The drawings by the name of their file."""

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
