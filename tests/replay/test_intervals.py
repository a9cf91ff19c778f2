"""Calendar intervals: the engine's columns, the sequential model and Spark's own addition give the same instants."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.spark.intervals import CalendarInterval
from spark_jobs.replay.assign import after_interval
from tests.sampling import first_of

# Half an hour of summer time; a day that was left out; a change at midnight; two changes of the standard time.
ZONES = ("America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana", "Europe/Berlin", "UTC")
HOUR = 3_600_000
CHANGES = (1_710_054_000_000, 1_730_613_600_000, 1_325_239_200_000, 1_711_846_800_000, 1_712_415_600_000)
"""Near changes of the clock in these zones (epoch ms)."""

instants = st.one_of(
    st.integers(-2_000_000_000_000, 4_000_000_000_000),
    st.builds(lambda at, hours, ms: at + hours * HOUR + ms, st.sampled_from(CHANGES), st.integers(-40, 40),
              st.sampled_from([0, 1_799_999, 1_800_000, 3_599_999])),
)  # fmt: skip
intervals = st.builds(
    CalendarInterval,
    st.sampled_from([0, 0, 1, 8, 12]),
    st.sampled_from([0, 1, 1, -1, 7]),
    st.sampled_from([0, 0, 1_500, HOUR * 1000]),
)


@pytest.mark.parametrize("zone", first_of(ZONES))
def test_a_calendar_interval_is_added_as_spark_adds_it(quick_spark: SparkSession, zone: str) -> None:
    theirs = quick_spark.newSession()
    theirs.conf.set("spark.sql.session.timeZone", zone)

    @settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(interval=intervals, times=st.lists(instants, min_size=200, max_size=400))
    @example(CalendarInterval(months=8, days=1), [at + hour * HOUR for at in CHANGES for hour in range(-6_000, 40, 7)])
    @example(CalendarInterval(days=1), [at + half * HOUR // 2 for at in CHANGES for half in range(-60, 20)])
    def same(interval: CalendarInterval, times: list[int]) -> None:
        frame = quick_spark.createDataFrame([(time,) for time in times], "t BIGINT")
        ours = [row[0] for row in frame.select(after_interval(F.col("t"), interval, zone)).collect()]
        assert ours == [interval.added_to(time * 1000, ZoneInfo(zone)) // 1000 for time in times]
        made = f"make_interval(0, {interval.months}, 0, {interval.days}, 0, 0, {interval.micros / 1e6})"
        frame = theirs.createDataFrame([(time,) for time in times], "t BIGINT")
        added = frame.selectExpr(f"unix_millis(timestamp_millis(t) + {made})").collect()
        assert ours == [row[0] for row in added]

    same()
