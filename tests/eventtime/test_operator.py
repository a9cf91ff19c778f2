"""When windows fire, fire again and are deleted (rules 2, 3, 17 to 23), mostly with tumbling windows of 5 ms.

In the tables each column is one step: a record with this event time, or a watermark. `fired` is what fires then:
`start:records` for a first firing, `start+pane:records` for a later one, with the columns in which the records came.
`late` is `x` where the record goes to the late output.
"""

from __future__ import annotations

import pytest

from spark_jobs.eventtime.flink.operator import Firing, WindowOperator
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import Ascending
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import AlignedWindows, SlidingWindows, TumblingWindows
from tests.eventtime.drawing import table
from tests.sequential.flink import LiveJob, Record

CASES: dict[str, tuple[AlignedWindows, int, str]] = {
    "a window fires when the watermark reaches its last timestamp": (
        TumblingWindows(5),
        0,
        """
        record    | 1 . .
        watermark | . 3 4
        fired     | . . 0:0
        late      | . . .
        """,
    ),
    "a window without records does not exist": (
        TumblingWindows(5),
        0,
        """
        record    | 1 12 .
        watermark | . .  20
        fired     | . .  0:0,10:1
        late      | . .  .
        """,
    ),
    "a record behind the watermark is in time as long as its window is open": (
        TumblingWindows(5),
        0,
        """
        record    | 4 . 1 .
        watermark | . 3 . 4
        fired     | . . . 0:02
        late      | . . . .
        """,
    ),
    "without a lateness a record of a fired window is late": (
        TumblingWindows(5),
        0,
        """
        record    | 1 .   2
        watermark | . 4   .
        fired     | . 0:0 .
        late      | . .   x
        """,
    ),
    "with a lateness each late record fires its window again, with all contents": (
        TumblingWindows(5),
        3,
        """
        record    | 1 .   2      .  3
        watermark | . 4   .      6  .
        fired     | . 0:0 0+1:02 .  0+2:024
        late      | . .   .      .  .
        """,
    ),
    "at the last timestamp plus the lateness the window's state is deleted, and it is not made again": (
        TumblingWindows(5),
        3,
        """
        record    | 1 .   . 2 3
        watermark | . 4   7 . .
        fired     | . 0:0 . . .
        late      | . .   . x x
        """,
    ),
    "a window that only late records reach fires with the first of them": (
        TumblingWindows(5),
        3,
        """
        record    | . 2
        watermark | 5 .
        fired     | . 0:1
        late      | . .
        """,
    ),
    "windows fire in the order of their ends": (
        TumblingWindows(5),
        0,
        """
        record    | 12 1 7 .
        watermark | .  . . 20
        fired     | .  . . 0:1,5:2,10:0
        late      | .  . . .
        """,
    ),
    "a record that is late for some of its windows goes into the others, and not to the late output": (
        SlidingWindows(4, 2),
        0,
        """
        record    | .  4 .
        watermark | 5  . 7
        fired     | .  . 4:1
        late      | .  . .
        """,
    ),
    "a record that is late for all of them goes to the late output": (
        SlidingWindows(4, 2),
        0,
        """
        record    | .  4
        watermark | 7  .
        fired     | .  .
        late      | .  x
        """,
    ),
    "a record between two windows vanishes unless it is behind the watermark": (
        SlidingWindows(3, 5),
        0,
        """
        record    | 4 . 4
        watermark | . 4 .
        fired     | . . .
        late      | . . x
        """,
    ),
    "with a lateness of forever a window never closes for good": (
        TumblingWindows(5),
        MAX_TIMESTAMP,
        """
        record    | 1 .   .       2
        watermark | . 4   1000000 .
        fired     | . 0:0 .       0+1:03
        late      | . .   .       .
        """,
    ),
}


def shown(firing: Firing[int]) -> str:
    pane = f"+{firing.pane}" if firing.pane else ""
    return f"{firing.window.start}{pane}:{''.join(map(str, firing.elements))}"


@pytest.mark.parametrize("name", CASES)
def test_windows_fire_as_drawn(name: str) -> None:
    windows, lateness, drawing = CASES[name]
    operator: WindowOperator[int] = WindowOperator(windows, lateness)
    for number, step in enumerate(table(drawing)):
        is_late = False
        if step["record"]:
            fired, is_late = operator.process("key", int(step["record"]), number)
            assert all(firing.by_element for firing in fired)
        else:
            fired = list(operator.advance_watermark(int(step["watermark"])))
            assert not any(firing.by_element for firing in fired)
        assert ",".join(map(shown, fired)) == step["fired"], step
        assert is_late == (step["late"] == "x"), step


def test_each_key_has_windows_of_its_own() -> None:
    operator: WindowOperator[int] = WindowOperator(TumblingWindows(5), 0)
    operator.process("a", 1, 0)
    operator.process("b", 1, 1)
    fired = list(operator.advance_watermark(4))
    assert [(firing.key, firing.elements) for firing in fired] == [("a", (0,)), ("b", (1,))]


def job(*timestamps: int, flush: bool) -> list[tuple[int, str]]:
    """How many records had been consumed, and what fired then, with ascending timestamps per event."""
    strategy = WatermarkStrategy(Ascending(), (0,), ((0,),))
    records = [Record(0, i, i, "key", timestamp) for i, timestamp in enumerate(timestamps)]
    result = LiveJob(strategy, TumblingWindows(5), 0).run(records, flush=flush)
    return [(at.records, shown(firing)) for at, firing in result.firings]


def test_a_record_is_counted_in_the_window_that_its_own_watermark_fires() -> None:
    """The record 5 takes the watermark to 4, the last timestamp of [0, 5). It is processed before that."""
    assert job(1, 5, flush=False) == [(2, "0:0")]
    assert job(4, 5, 5, 10, flush=False) == [(2, "0:0"), (4, "5:12")]


def test_the_end_of_input_fires_open_windows_once_if_it_flushes() -> None:
    assert job(1, 7, flush=False) == [(2, "0:0")]
    assert job(1, 7, flush=True) == [(2, "0:0"), (2, "5:1")]


def test_without_a_watermark_nothing_fires_and_nothing_is_late() -> None:
    operator: WindowOperator[int] = WindowOperator(TumblingWindows(5), 0)
    assert operator.process("key", -(10**15), 0) == ([], False)
