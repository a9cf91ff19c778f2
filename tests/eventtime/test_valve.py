"""The minimum over source subtasks (rules 6, 12, 13 and 15).

In the tables each column is one step: a watermark, IDLE or ACTIVE arrives on one channel, and `out` is what the valve
sends on. END: the input of all channels ends.
"""

from __future__ import annotations

import pytest

from spark_jobs.eventtime.flink.signals import StreamSignal, StreamStatusChanged, WatermarkEmitted
from spark_jobs.eventtime.flink.valve import StatusWatermarkValve
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from tests.eventtime.drawing import table

CASES = {
    "the output is the minimum of the channels": """
        0   | 5 . 9 . .
        1   | . 3 . 7 9
        out | . 3 . 7 9
        """,
    "a channel without a watermark holds the output back": """
        0   | 5 9 20
        1   | . . .
        out | . . .
        """,
    "a watermark that goes back is ignored": """
        0   | 5 . 4 .
        1   | . 9 . 9
        out | . 5 . .
        """,
    "an idle channel does not count": """
        0   | 5 . .    9
        1   | . 3 IDLE .
        out | . 3 5    9
        """,
    "a channel that is active again behind the output is ignored until it has caught up": """
        0   | 5 . .    9 .      . 12 .
        1   | . 3 IDLE . ACTIVE 6 .  13
        out | . 3 5    9 .      . 12 .
        """,
    "once it has caught up it holds the output back again": """
        0   | 5 . .    .      . 12 .
        1   | . 3 IDLE ACTIVE 6 .  13
        out | . 3 5    .      . 6  12
        """,
    "only a channel that held the output moves it by going idle": """
        0   | 5 . .    .
        1   | . 3 .    IDLE
        2   | 9 . IDLE .
        out | . 3 .    5
        """,
    "all idle: the maximum comes out, then IDLE": """
        0   | 5 . IDLE .
        1   | . 3 .    IDLE
        out | . 3 .    5,IDLE
        """,
    "all idle, but the last one did not hold the output: no flush": """
        0   | 5 . .      IDLE
        1   | . 3 IDLE   .
        out | . 3 5      IDLE
        """,
    "the stream is active again with its first channel": """
        0   | 5 IDLE ACTIVE 9
        out | 5 IDLE ACTIVE 9
        """,
    "the watermark of an idle channel is dropped": """
        0   | 5 IDLE 9
        out | 5 IDLE .
        """,
    "the end of input sends the last watermark": """
        0   | 5 . END
        1   | . 3 END
        out | . 3 MAX
        """,
    "the end of input leaves idle channels out": """
        0   | 5 .    END
        1   | . IDLE END
        out | . 5    MAX
        """,
    "a stream that is idle at the end is not flushed": """
        0   | 5 IDLE END
        out | 5 IDLE .
        """,
}


def signal(cell: str) -> StreamSignal:
    return StreamStatusChanged(cell == "IDLE") if cell in ("IDLE", "ACTIVE") else WatermarkEmitted(int(cell))


def shown(sent: StreamSignal) -> str:
    match sent:
        case WatermarkEmitted(watermark):
            return "MAX" if watermark == MAX_TIMESTAMP else str(watermark)
        case StreamStatusChanged(idle):
            return "IDLE" if idle else "ACTIVE"


@pytest.mark.parametrize("name", CASES)
def test_the_valve_sends_what_is_drawn(name: str) -> None:
    steps = list(table(CASES[name]))
    channels = [row for row in steps[0] if row != "out"]
    valve = StatusWatermarkValve(len(channels))
    for step in steps:
        sent: list[StreamSignal] = []
        if all(step[row] == "END" for row in channels):
            sent = valve.end_of_input()
        else:
            for index, row in enumerate(channels):
                sent += valve.input_signal(index, signal(step[row])) if step[row] else []
        assert ",".join(map(shown, sent)) == step["out"], step
