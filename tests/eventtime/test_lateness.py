"""When a record is late (rules 18, 20, 22 and 28). `W` is the watermark, `L` the allowed lateness."""

from __future__ import annotations

import pytest

from spark_jobs.eventtime.flink.lateness import cleanup_time, is_element_late, is_merge_too_late, is_window_late
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.eventtime.windows import Window
from tests.eventtime.drawing import drawn


@pytest.mark.parametrize(
    ("lateness", "drawing"),
    [
        (
            0,
            """
            0|  [===)
            0|    ow
            """,
        ),
        (
            3,
            """
            0|  [===)
            0|       ow
            """,
        ),
    ],
    ids=["L = 0", "L = 3"],
)
def test_a_window_takes_records_until_the_watermark_reaches_its_last_timestamp_plus_the_lateness(
    lateness: int, drawing: str
) -> None:
    """`o`: the last watermark at which the window is open. `w`: the first one at which it is late."""
    picture = drawn(drawing)
    (window,) = picture.windows
    assert not is_window_late(window, lateness, picture.marks["o"])
    assert is_window_late(window, lateness, picture.marks["w"])
    assert cleanup_time(window, lateness) == picture.marks["w"]


def test_nothing_is_late_before_the_first_watermark() -> None:
    assert not is_window_late(Window(0, 1), 0, MIN_TIMESTAMP)
    assert not is_element_late(0, 0, MIN_TIMESTAMP)


@pytest.mark.parametrize(("lateness", "last_watermark_in_time"), [(0, 4), (3, 7)])
def test_an_element_in_no_window_is_late_where_its_timestamp_plus_the_lateness_is_reached(
    lateness: int, last_watermark_in_time: int
) -> None:
    assert not is_element_late(5, lateness, last_watermark_in_time)
    assert is_element_late(5, lateness, last_watermark_in_time + 1)


def test_with_a_lateness_of_forever_a_window_is_late_at_the_end_of_input_only() -> None:
    window = Window(0, 5)
    assert cleanup_time(window, MAX_TIMESTAMP) == MAX_TIMESTAMP
    assert not is_window_late(window, MAX_TIMESTAMP, MAX_TIMESTAMP - 1)
    assert is_window_late(window, MAX_TIMESTAMP, MAX_TIMESTAMP)


def test_with_a_lateness_of_forever_the_unguarded_checks_of_flink_overflow() -> None:
    assert is_element_late(1, MAX_TIMESTAMP, 0), "ts + L wraps around to a low number"
    assert not is_element_late(0, MAX_TIMESTAMP, 0), "0 + L does not"
    assert is_merge_too_late(Window(0, 5), MAX_TIMESTAMP, 0)
