"""Which windows a record is in (rules 16 and 29), and what aligned windows know of themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.eventtime.windows import (
    AlignedWindows,
    CalendarDayWindows,
    CumulativeWindows,
    MissingTimestampError,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
)
from tests.eventtime.drawing import drawn
from tests.sampling import first_of

HOUR = 3_600_000

CASES = {
    "tumbling: the cell of the grid that holds the record": (
        TumblingWindows(4),
        """
        0|     x
        0|    [===)
        """,
    ),
    "tumbling: the start belongs to the window": (
        TumblingWindows(4),
        """
        0|    x
        0|    [===)
        """,
    ),
    "tumbling: the end does not": (
        TumblingWindows(4),
        """
        0|   x
        0|[===)
        """,
    ),
    "tumbling: below zero too the start is at or before the record": (
        TumblingWindows(4),
        """
        -8|       x
        -8|    [===)
        """,
    ),
    "tumbling: an offset shifts the grid": (
        TumblingWindows(4, 1),
        """
        0|    x
        0| [===)
        """,
    ),
    "tumbling: a negative offset too": (
        TumblingWindows(4, -1),
        """
        0|   x
        0|   [===)
        """,
    ),
    "sliding: every window on the slide grid that holds the record": (
        SlidingWindows(6, 2),
        """
        0|     x
        0|    [=====)
        0|  [=====)
        0|[=====)
        """,
    ),
    "sliding: the size need not be a multiple of the slide": (
        SlidingWindows(5, 3),
        """
        0|    x
        0|   [====)
        0|[====)
        """,
    ),
    "sliding: as above, a record that is in one window only": (
        SlidingWindows(5, 3),
        """
        0|     x
        0|   [====)
        """,
    ),
    "sliding: with slide > size a record between two windows is in none": (
        SlidingWindows(3, 5),
        """
        0|    x
        """,
    ),
    "cumulative: all ends on the step grid after the record, with one start": (
        CumulativeWindows(6, 2),
        """
        0|   x
        0|[===)
        0|[=====)
        """,
    ),
    "cumulative: the next start begins anew": (
        CumulativeWindows(6, 2),
        """
        0|      x
        0|      [=)
        0|      [===)
        0|      [=====)
        """,
    ),
    "cumulative: an offset shifts starts and ends": (
        CumulativeWindows(6, 3, 1),
        """
        0|     x
        0| [=====)
        """,
    ),
    "session: the record opens a window as long as the gap": (
        SessionWindows(4),
        """
        0|   x
        0|   [===)
        """,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_record_is_in_the_windows_drawn(name: str) -> None:
    windows, drawing = CASES[name]
    expected = drawn(drawing)
    assert list(windows.assign(expected.marks["x"])) == expected.windows


@pytest.mark.parametrize("windows", [TumblingWindows(4), SlidingWindows(4, 2), CumulativeWindows(4, 2)], ids=str)
def test_a_record_without_a_timestamp_fails_the_job(windows: AlignedWindows) -> None:
    with pytest.raises(MissingTimestampError, match="no timestamp marker"):
        list(windows.assign(MIN_TIMESTAMP))


def test_sessions_do_not_check_the_timestamp() -> None:
    (window,) = SessionWindows(4).assign(MIN_TIMESTAMP)
    assert (window.start, window.end) == (MIN_TIMESTAMP, MIN_TIMESTAMP + 4)


@pytest.mark.parametrize(
    "windows",
    [
        TumblingWindows(4),
        TumblingWindows(4, -1),
        SlidingWindows(6, 2, 1),
        SlidingWindows(5, 3),
        SlidingWindows(3, 5),
        CumulativeWindows(6, 2, 1),
    ],
    ids=str,
)
def test_regular_windows_start_and_end_on_the_grids_they_name(windows) -> None:
    for timestamp in range(-20, 20):
        assigned = list(windows.assign(timestamp))
        assert all((w.start - windows.offset) % windows.start_step == 0 for w in assigned)
        assert all((w.end - windows.end_phase) % windows.end_step == 0 for w in assigned)
        assert all(w.end - w.start <= windows.longest for w in assigned)
        assert {w.end - w.start for w in assigned} <= {windows.fixed_length} or windows.fixed_length is None
        assert assigned or windows.leaves_gaps
        assert len(assigned) == 1 or not windows.assigns_one


def test_calendar_days_end_on_quarters_of_an_hour_and_last_at_most_25_hours() -> None:
    days = CalendarDayWindows(ZoneInfo("Asia/Kathmandu"))
    ends = [window.end for hour in range(72) for window in days.assign(hour * HOUR)]
    assert {(end - ends[0]) % days.end_step for end in ends} == {0}
    assert days.longest >= 25 * HOUR


ZONES = first_of(
    [
        "America/St_Johns",  # until 2011 clocks went from 00:01 back to 23:01
        "Europe/Berlin",
        "America/Havana",
        "America/Sao_Paulo",
        "Asia/Beirut",
        "Australia/Lord_Howe",
        "Africa/Cairo",
        "Atlantic/Azores",
        "America/Scoresbysund",
        "Pacific/Apia",
        "Pacific/Kwajalein",
        "Asia/Gaza",
        "America/Asuncion",
    ],
    5,
)


def changes_of_clocks(zone: ZoneInfo) -> list[int]:
    """The instants (epoch ms) from 1970 to 2029 at which the zone's distance from UTC changes."""

    def distance(hour: int) -> timedelta | None:
        return datetime.fromtimestamp(hour * 3600, UTC).astimezone(zone).utcoffset()

    days = [day * 24 for day in range(60 * 365) if distance(day * 24) != distance(day * 24 + 24)]
    hours = [hour for day in days for hour in range(day, day + 24) if distance(hour) != distance(hour + 1)]
    return [hour * HOUR for hour in hours]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("offset", [0, 5 * HOUR // 2])
def test_a_calendar_day_holds_its_records_at_both_changes_of_clocks(zone: str, offset: int) -> None:
    days = CalendarDayWindows(ZoneInfo(zone), 1, offset)
    steps = [minutes * 60_000 + more for minutes in range(-180, 300, 15) for more in (0, 60_000, -1)]
    found = changes_of_clocks(days.time_zone)
    assert found
    for timestamp in (change + step for change in found for step in (*steps, -25 * HOUR, 25 * HOUR)):
        (window,) = days.assign(timestamp)
        assert window.start <= timestamp < window.end, format_instant(timestamp)
        assert days.day_start(days.day_index(timestamp)) == window.start


@pytest.mark.parametrize(
    ("windows", "drawing"),
    [
        (
            TumblingWindows(4),
            """
            0|  a     b
            0|[===========)
            """,
        ),
        (
            SlidingWindows(6, 2),
            """
            -4|      a     b
            -4|  [===============)
            """,
        ),
    ],
    ids=["tumbling", "sliding"],
)
def test_a_range_that_covers_some_event_times_holds_all_their_windows(windows: AlignedWindows, drawing: str) -> None:
    expected = drawn(drawing)
    covered = windows.covering(TimeRange(expected.marks["a"], expected.marks["b"] + 1))
    assert [(covered.start, covered.end)] == [(w.start, w.end) for w in expected.windows]
