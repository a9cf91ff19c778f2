"""Calendar intervals: what Spark reads, and what a day and a month are."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from spark_jobs.eventtime.spark.intervals import CalendarInterval, IntervalError, parse_interval

NEW_YORK = ZoneInfo("America/New_York")


def micros(text: str) -> int:
    return int(datetime.fromisoformat(text).astimezone(UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("10 seconds", CalendarInterval(micros=10_000_000)),
        ("interval 1 hour 30 minutes", CalendarInterval(micros=5_400_000_000)),
        ("1 month -2 days 1.5 seconds", CalendarInterval(1, -2, 1_500_000)),
        ("2 WEEKS 3 milliseconds 4 microseconds", CalendarInterval(days=14, micros=3_004)),
    ],
)
def test_an_interval_is_read_as_spark_reads_it(text: str, interval: CalendarInterval) -> None:
    assert parse_interval(text) == interval


@pytest.mark.parametrize("text", ["", "10", "10 sec", "1.5 days", "ten seconds", "1 day,2 hours"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(IntervalError, match="not an interval"):
        parse_interval(text)


def test_a_month_of_a_delay_has_31_days() -> None:
    assert parse_interval("1 month 1 day").fixed_ms == 32 * 86_400_000


@pytest.mark.parametrize(
    ("start", "interval", "end"),
    [
        # the day of a change of the clock has 23 or 25 hours
        ("2024-03-09T12:00:00-05:00", "1 day", "2024-03-10T12:00:00-04:00"),
        ("2024-11-02T12:00:00-04:00", "1 day", "2024-11-03T12:00:00-05:00"),
        # a local time that is skipped moves ahead
        ("2024-03-09T02:30:00-05:00", "1 day", "2024-03-10T03:30:00-04:00"),
        # of a local time that comes twice it is the one with the offset before, or else the first
        ("2024-11-02T01:30:00-04:00", "1 day", "2024-11-03T01:30:00-04:00"),
        ("2024-01-03T01:30:00-05:00", "10 months", "2024-11-03T01:30:00-05:00"),
        # the last day of a shorter month
        ("2024-01-31T12:00:00-05:00", "1 month", "2024-02-29T12:00:00-05:00"),
        # hours are hours
        ("2024-03-09T12:00:00-05:00", "24 hours", "2024-03-10T13:00:00-04:00"),
    ],
)
def test_days_and_months_follow_the_calendar_of_the_time_zone(start: str, interval: str, end: str) -> None:
    assert parse_interval(interval).added_to(micros(start), NEW_YORK) == micros(end)
