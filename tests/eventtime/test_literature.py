"""The two tables of the Flink literature, and the page of the documentation that shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import Lag
from spark_jobs.eventtime.windows import TumblingWindows
from tests.conformance.case import Case
from tests.conformance.sequential import run_sequential
from tests.sequential.flink import LiveJob, Record

PAGE = Path("docs/semantics.md")
EVENTS = [7, 11, 9, 15, 12, 13, 17, 14, 21, 24, 22, 19]
WATERMARKS = [3, 7, 7, 11, 11, 11, 13, 13, 17, 20, 20, 20]


def lag(milliseconds: int) -> WatermarkStrategy:
    return WatermarkStrategy(Lag(milliseconds), (0,), ((0,),))


def test_twelve_events_with_out_of_orderness_four_in_the_legacy_convention() -> None:
    source = Source(lag(4))
    watermarks = []
    before_last = None
    for position, timestamp in enumerate(EVENTS):
        before_last = source.watermark
        source.on_event(0, Event(timestamp, position))
        watermarks.append(source.watermark)
    assert watermarks == WATERMARKS
    assert before_last == 20 > EVENTS[-1], "19 is behind the watermark when it arrives"


def test_a_window_of_five_seconds_with_bound_two_closes_when_seven_arrives() -> None:
    job = LiveJob(lag(2000), TumblingWindows(5000), 0)
    records = [Record(0, i, i, "k", t) for i, t in enumerate([1000, 3000, 6000, 7000, 4000])]
    result = job.run(records, flush=False)
    ((at, firing),) = result.firings
    assert (firing.window.start, firing.window.end) == (0, 5000)
    assert at.records == 4, "7 s takes the watermark to 5 s"
    assert firing.elements == (0, 1)
    assert result.late == [(4, 5000)], "4 s comes after it"


def published() -> list[str]:
    case = Case.read(Path("tests/golden/flink/sem_published_sliding.json"))
    outcome = run_sequential(case, case.strategy())
    assert outcome.firings, "the example fires"
    assert len(outcome.firings) == 9
    late = [case.rows[row[0]] for row in outcome.late]
    assert [row[3] for row in late] == ["D", "D"]
    fired = sorted(outcome.firings, key=lambda f: (f["end"], f["key"]))
    return [f"| {clock(f['start'])} to {clock(f['end'])} | {f['key']} | {f['count']} | {f['at']} |" for f in fired]


def clock(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%H:%M}"


def test_the_page_shows_the_nine_firings_of_the_published_example() -> None:
    page = PAGE.read_text()
    position = -1
    for row in published():
        found = page.find(row, position + 1)
        assert found > position, f"missing, or out of order: {row}"
        position = found


def test_the_page_shows_the_twelve_watermarks() -> None:
    page = PAGE.read_text()
    assert "| " + " | ".join(map(str, EVENTS)) + " |" in page
    assert "| " + " | ".join(map(str, WATERMARKS)) + " |" in page
