"""Columns that hold an instant, in whatever unit, as epoch milliseconds. Nothing here raises on a record.

Finer than a millisecond is cut off towards the past, also before 1970, as Java's `Instant.toEpochMilli` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from spark_jobs.sources.expressions import Refused

Unit = Literal["timestamp", "s", "ms", "us", "iso"]

# After the time of day, digits, dots and colons end; whatever else Spark could read there is a zone.
_ZONE = r"[T ]\d{1,2}(:\d{1,2}){0,2}([.]\d*)?\s*[A-Za-z+\-]"
_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Instants:
    """`milliseconds` (BIGINT; null where there is none), `missing` (nothing was there) and `reason`.

    `reason` is null unless there was something that is no instant.
    """

    milliseconds: Column
    missing: Column
    reason: Column


def unit_refused(kind: DataType, unit: Unit) -> Refused | None:
    """What is wrong with reading columns of this type in this unit; None if nothing."""
    name = kind.simpleString().upper()
    if unit == "iso":
        if isinstance(kind, StringType):
            return None
        instead = "`unit: timestamp`" if isinstance(kind, TimestampType) else "`unit: s`, `ms` or `us`"
        return Refused(f"is {name}, and unit `iso` reads text", f"write {instead}")
    if unit == "timestamp":
        if isinstance(kind, TimestampType):
            return None
        if isinstance(kind, (TimestampNTZType, DateType)):
            hint = "write CAST(... AS TIMESTAMP) if it is UTC, else to_utc_timestamp(..., 'Europe/Berlin')"
            return Refused(f"is {name}, a time without zone", hint)
        instead = "`unit: iso` for ISO-8601 text" if isinstance(kind, StringType) else "`unit: s`, `ms` or `us`"
        return Refused(f"is {name}, not a timestamp", f"write {instead}")
    if isinstance(kind, (IntegralType, FractionalType, StringType)):
        return None
    instead = "`unit: timestamp`" if isinstance(kind, TimestampType) else "an expression that gives a number"
    return Refused(f"is {name}, not a number of {unit}", f"write {instead}")


def instants(value: Column, kind: DataType, unit: Unit) -> Instants:
    """Epoch milliseconds of a column that `unit_refused` lets pass. Blank text counts as missing."""
    never = F.lit(None).cast("string")
    if unit == "timestamp":
        return Instants(F.unix_millis(value), value.isNull(), never)
    missing = value.isNull() | (F.trim(value) == "") if isinstance(kind, StringType) else value.isNull()
    if unit == "iso":
        moment = F.coalesce(value.try_cast("timestamp"), _as_spark_writes(value).try_cast("timestamp"))
        zoned = F.endswith(value, F.lit("Z")) | value.rlike(_ZONE)
        shown = F.substring(F.trim(value), 1, _SHOWN_LENGTH)
        reason = F.when(missing | (moment.isNotNull() & zoned), never).otherwise(
            F.when(moment.isNull(), F.concat(F.lit("event time is not ISO-8601: "), shown)).otherwise(
                F.concat(F.lit("event time without zone: "), shown)
            )
        )
        return Instants(F.when(zoned, F.unix_millis(moment)), missing, reason)
    milliseconds = _scaled(value, kind, unit)
    text = isinstance(kind, StringType)
    what = F.when(value.try_cast("decimal(38,9)").isNull(), "event time is not a number") if text else never
    unreadable = F.coalesce(what, F.lit("event time is out of any range"))
    return Instants(milliseconds, missing, F.when(~missing & milliseconds.isNull(), unreadable))


def _as_spark_writes(text: Column) -> Column:
    """What `OffsetDateTime` and `ZonedDateTime` print in Java: no seconds if they are 0, a zone's name in brackets."""
    without_name = F.regexp_replace(text, r"\[[^\]]+\]\s*$", "")
    return F.regexp_replace(without_name, r"([T ]\d{1,2}:\d{1,2})(\s*[A-Za-z+\-])", "$1:00$2")


def _scaled(value: Column, kind: DataType, unit: Unit) -> Column:
    if isinstance(kind, IntegralType):
        whole = value.cast("bigint")
        if unit == "ms":
            return whole
        if unit == "s":
            return F.try_multiply(whole, F.lit(1000).cast("bigint"))
        return F.unix_millis(F.timestamp_micros(whole))
    exact = value if isinstance(kind, DecimalType) else value.try_cast("decimal(38,9)")
    factor = {"s": "1000", "ms": "1", "us": "0.001"}[unit]
    scaled = F.try_multiply(exact.try_cast("decimal(28,9)"), F.lit(factor).cast("decimal(8,3)"))
    return F.floor(scaled).try_cast("bigint")
