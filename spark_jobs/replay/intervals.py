"""Calendar intervals added to event times, as Spark columns: the same as `CalendarInterval.added_to`."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.eventtime.microbatch.intervals import CalendarInterval


def after_interval(time: Column, interval: CalendarInterval, zone: str) -> Column:
    """The instant (epoch ms, BIGINT) this much after `time` (epoch ms), by the calendar of the zone.

    Spark adds by the calendar of its session's zone, which is UTC here: local times of the zone are added to as if they
    were of UTC.
    """
    moment = F.timestamp_millis(time)
    for amount, unit in ((interval.months, "MONTH"), (interval.days, "DAY")):
        if amount:
            moment = _moved(moment, F.expr(f"INTERVAL '{amount}' {unit}"), zone)
    return F.unix_millis(F.timestamp_micros(F.unix_micros(moment) + F.lit(interval.micros)))


def _moved(moment: Column, interval: Column, zone: str) -> Column:
    """As Java resolves it: of a local time that comes twice the one with the offset before, if it has that one."""
    local = F.from_utc_timestamp(moment, zone)
    moved = local + interval
    offset = F.unix_micros(local) - F.unix_micros(moment)
    unchanged = F.timestamp_micros(F.unix_micros(moved) - offset)
    return F.when(F.from_utc_timestamp(unchanged, zone) == moved, unchanged).otherwise(F.to_utc_timestamp(moved, zone))
