"""Windows in a wall clock's time: what clocks show, and when such a window closes."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from spark_jobs.eventtime.durations import HOUR, MINUTE
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.flink.wall_clock import WallClockWindows, disorder, fires_at, wall_clock
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from tests.sequential.flink import LocalBuffer

BERLIN = ZoneInfo("Europe/Berlin")
HOURS = WallClockWindows(TumblingWindows(HOUR), BERLIN)


def instant(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("at", "shows"),
    [
        ("2024-10-27T00:30", "2024-10-27T02:30"),  # the first time
        ("2024-10-27T01:30", "2024-10-27T02:30"),  # and once more
        ("2024-03-31T00:59", "2024-03-31T01:59"),
        ("2024-03-31T01:00", "2024-03-31T03:00"),  # two o'clock is skipped
    ],
)
def test_what_the_clock_shows(at: str, shows: str) -> None:
    assert wall_clock(instant(at), BERLIN) == instant(shows)


@pytest.mark.parametrize(
    ("end", "closes"),
    [
        ("2024-10-27T02:00", "2024-10-27T00:00"),
        ("2024-10-27T03:00", "2024-10-27T02:00"),  # after both hours
        ("2024-03-31T02:00", "2024-03-31T01:00"),
        ("2024-03-31T04:00", "2024-03-31T02:00"),
    ],
)
def test_a_window_closes_at_the_instant_of_its_last_millisecond(end: str, closes: str) -> None:
    assert fires_at(instant(end) - 1, BERLIN) == instant(closes) - 1


def test_the_hour_that_clocks_show_twice_is_one_window() -> None:
    first, second = (next(HOURS.assign(instant(f"2024-10-27T0{hour}:30"))) for hour in (0, 1))
    assert first == second
    assert (first.start, first.end) == (instant("2024-10-27T02:00"), instant("2024-10-27T03:00"))


@pytest.mark.parametrize("change", ["2024-10-27T01:00", "2024-03-31T01:00", "2024-07-01T00:00"])
def test_a_range_of_instants_covers_the_windows_of_each(change: str) -> None:
    middle = instant(change)
    for before in range(0, 4 * HOUR, 17 * MINUTE):
        for after in range(MINUTE, 4 * HOUR, 17 * MINUTE):
            times = TimeRange(middle - before, middle + after)
            covered = HOURS.covering(times)
            for time in range(times.start, times.end, 7 * MINUTE):
                (window,) = HOURS.assign(time)
                assert covered.start <= window.start
                assert window.end <= covered.end


@pytest.mark.parametrize("change", ["2024-10-27T01:00", "2024-03-31T01:00"])
def test_closed_until_is_the_last_end_that_a_lower_watermark_closes(change: str) -> None:
    for watermark in range(instant(change) - 3 * HOUR, instant(change) + 3 * HOUR, 5 * MINUTE):
        until = HOURS.closed_until(watermark)
        ends = range(until - 3 * HOUR, until + 3 * HOUR, MINUTE)
        closed = [end for end in ends if fires_at(end - 1, BERLIN) < watermark]
        assert max(closed) <= until
        assert all(fires_at(end - 1, BERLIN) < watermark for end in ends if end <= until)


@pytest.mark.parametrize(
    ("zone", "most"),
    [("Europe/Berlin", 0), ("America/Havana", 0), ("Australia/Lord_Howe", 30), ("America/Sao_Paulo", 60)],
)
def test_windows_close_out_of_order_where_flink_takes_a_change_for_another_one(zone: str, most: int) -> None:
    found = disorder(ZoneInfo(zone))
    assert most * MINUTE <= found <= (most + 15) * MINUTE * bool(most)


def test_a_subtask_holds_a_record_behind_its_watermark_until_its_next_slice_end() -> None:
    buffer: LocalBuffer[str] = LocalBuffer(Slices(HOUR, 0))
    assert buffer.advance(instant("2024-03-01T11:05")) == []
    buffer.add(instant("2024-03-01T10:30"), "behind")
    assert buffer.advance(instant("2024-03-01T11:50")) == []
    assert buffer.advance(instant("2024-03-01T12:00") - 1) == ["behind"]


def test_what_is_not_due_stays_when_a_slice_ends() -> None:
    buffer: LocalBuffer[str] = LocalBuffer(Slices(HOUR, 0))
    buffer.add(instant("2024-03-01T13:30"), "ahead")
    assert buffer.advance(instant("2024-03-01T12:00")) == []
    assert buffer.flush() == ["ahead"]
