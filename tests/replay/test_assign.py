"""Spark assigns the windows that the core assigns, and looks them up on the same grid."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import functions as F

from spark_jobs.definition.instants import parse_instant
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import CalendarDayWindows, CumulativeWindows, SlidingWindows, TumblingWindows
from spark_jobs.replay.assign import assign_windows, latest_end, windows_of_each
from spark_jobs.replay.grid import end_grid
from tests.sampling import first_of

HOUR = 3_600_000
REGULAR = [
    TumblingWindows(1000),
    TumblingWindows(1000, -300),
    SlidingWindows(1000, 300, 100),
    SlidingWindows(500, 700),
    CumulativeWindows(1200, 300, 100),
]
CALENDAR = [
    (CalendarDayWindows(ZoneInfo("America/St_Johns")), "2005-10-29T00:00:00Z"),  # from 00:01 back to 23:01
    (CalendarDayWindows(ZoneInfo("America/New_York")), "2013-03-09T00:00:00Z"),
    (CalendarDayWindows(ZoneInfo("America/New_York")), "2013-11-02T00:00:00Z"),
    (CalendarDayWindows(ZoneInfo("America/Havana")), "2013-03-09T00:00:00Z"),  # no midnight on the day of the change
    (CalendarDayWindows(ZoneInfo("America/Havana")), "2013-11-02T00:00:00Z"),  # two of them
    (CalendarDayWindows(ZoneInfo("Europe/Berlin"), 1, 6 * 3_600_000), "2024-03-30T00:00:00Z"),
    (CalendarDayWindows(ZoneInfo("Europe/Berlin"), 1, 9_000_000), "2024-03-30T00:00:00Z"),  # 02:30 is skipped
    (CalendarDayWindows(ZoneInfo("Europe/Berlin"), 1, 9_000_000), "2024-10-26T00:00:00Z"),  # 02:30 is there twice
    (CalendarDayWindows(ZoneInfo("Europe/Berlin"), 2, -3 * 3_600_000), "2024-10-26T00:00:00Z"),
    (CalendarDayWindows(ZoneInfo("Asia/Kathmandu"), 7), "2013-03-01T00:00:00Z"),
    (CalendarDayWindows(ZoneInfo("Pacific/Auckland")), "1969-12-30T00:00:00Z"),
]


def agree(spark, windows, times: list[int]) -> None:
    frame = spark.createDataFrame([(t,) for t in times], "rw_event_time BIGINT")
    grid = end_grid(windows)
    rows = (
        assign_windows(frame, windows)
        .select("rw_event_time", "window_start", "window_end", latest_end(windows).alias("latest"))
        .withColumn("index", grid.index(F.col("window_end")))
        .withColumn("floor", grid.floor(F.col("window_end") + F.lit(1)))
        .withColumn("shifted", grid.floor(F.col("window_end") - F.lit(1233), shift=1234) + F.lit(1234))
        .collect()
    )
    assert sorted((r[0], r[1], r[2]) for r in rows) == sorted(
        (t, w.start, w.end) for t in times for w in windows.assign(t)
    )
    span = TimeRange(times[len(times) // 3], times[len(times) // 2])
    counts = [windows_of_each(windows, chosen) for chosen in (None, span)]
    for time, every, chosen in frame.select("rw_event_time", *counts).collect():
        assert every == len(assigned := list(windows.assign(time)))
        assert chosen == sum(span.start <= w.start < span.end for w in assigned)
    for row in rows:
        assert grid.ends(row["index"], 1)[0] == row["window_end"] == row["floor"] == row["shifted"]
        assert grid.first_index_at_or_after(row["window_end"]) == row["index"]
        assert row["latest"] == max(w.end for w in windows.assign(row["rw_event_time"]))


@pytest.mark.parametrize("windows", REGULAR, ids=str)
def test_regular_windows_below_and_above_zero(spark, windows) -> None:
    agree(spark, windows, list(range(-2500, 2500, 37)))


@pytest.mark.parametrize(
    ("windows", "start"), first_of(CALENDAR, 4), ids=lambda v: getattr(getattr(v, "time_zone", None), "key", v)
)
def test_calendar_days_around_a_clock_change(spark, windows, start) -> None:
    first = parse_instant(start)
    agree(spark, windows, [first + i * HOUR // 2 + d for i in range(150) for d in (0, -1)])


def test_a_day_of_a_clock_change_has_23_or_25_hours() -> None:
    days = CalendarDayWindows(ZoneInfo("America/New_York"))
    (spring,) = days.assign(parse_instant("2013-03-10T12:00:00Z"))
    (autumn,) = days.assign(parse_instant("2013-11-03T12:00:00Z"))
    assert (spring.end - spring.start, autumn.end - autumn.start) == (23 * HOUR, 25 * HOUR)
