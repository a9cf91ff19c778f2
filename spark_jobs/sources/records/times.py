"""Convert columns with instants of any unit to epoch milliseconds. No record makes these expressions fail.

Fractions of a millisecond are rounded down, also before 1970, as Java's `Instant.toEpochMilli` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.sources.expressions import Refused
from spark_jobs.spark.expression_tree import is_undated

Unit = Literal["timestamp", "s", "ms", "us", "iso"]

_TIME_OF_DAY = r"\d{1,2}(:\d{1,2}){0,2}([.]\d*)?"
_HAS_DATE = r"^\s*[+-]?\d{4,}(-|\s*$)"
_DATED = r"^\s*[+-]?\d{4,}-\d{1,2}-\d{1,2}[T ]"
# After the time of day, digits, dots and colons end; whatever else Spark could read there is a zone.
_ANY_ZONE = rf"(^|[T ]){_TIME_OF_DAY}\s*[A-Za-z+\-]"
# Java's short names are not among them: BST is Bangladesh there, and IST, CST, AST, EST mean several zones.
_CLEAR_ZONE = r"(Z|((UTC?|GMT)\s*)?[+-]\d[\d:]*|UTC?|GMT|[A-Za-z_]+(/[A-Za-z0-9_+\-]+)+)"
_ZONED = rf"(?i){_DATED}{_TIME_OF_DAY}\s*{_CLEAR_ZONE}\s*(\[[^\]]+\]\s*)?$"
# As RFC 3339 allows it. Neither Flink's JSON format nor Spark reads it.
_LOWER_CASE = r"\d(t\d|z\s*$)"
_SHOWN_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Instants:
    """The columns for one instant.

    Attributes:
        milliseconds: BIGINT, epoch ms; null where there is no instant.
        micros: BIGINT, the microseconds behind the millisecond, 0 to 999.
        missing: BOOLEAN: the value is null or blank.
        reason: STRING: why a value that is there is not an instant; null otherwise.
    """

    milliseconds: Column
    micros: Column
    missing: Column
    reason: Column


def instant_refused(
    spark: SparkSession, text: str, kind: t.DataType, unit: Unit, field: str = "unit"
) -> Refused | None:
    """Why an expression of this type gives no instant: see `unit_refused`; or all that it reads has no year."""
    if is_undated(spark, text):
        return Refused("reads a time without a year", "read the date too, as in to_timestamp(concat(day, time), ...)")
    return unit_refused(kind, unit, field)


def unit_refused(kind: t.DataType, unit: Unit, field: str = "unit") -> Refused | None:
    """Why a column of this type cannot be read in this unit; None where it can. `field`: the unit's, for the hint."""
    name = kind.simpleString().upper()
    if unit == "iso":
        if isinstance(kind, t.StringType):
            return None
        instead = f"`{field}: timestamp`" if isinstance(kind, t.TimestampType) else f"`{field}: s`, `ms` or `us`"
        return Refused(f"is {name}, and unit `iso` reads text", f"write {instead}")
    if unit == "timestamp":
        if isinstance(kind, t.TimestampType):
            return None
        if isinstance(kind, (t.TimestampNTZType, t.DateType)):
            hint = "write CAST(... AS TIMESTAMP) if it is UTC, else to_utc_timestamp(..., 'Europe/Berlin')"
            return Refused(f"is {name}, a time without zone", hint)
        instead = (
            f"`{field}: iso` for ISO-8601 text" if isinstance(kind, t.StringType) else f"`{field}: s`, `ms` or `us`"
        )
        return Refused(f"is {name}, not a timestamp", f"write {instead}")
    if isinstance(kind, (t.IntegralType, t.FractionalType, t.StringType)):
        return None
    instead = f"`{field}: timestamp`" if isinstance(kind, t.TimestampType) else "an expression that gives a number"
    return Refused(f"is {name}, not a number of {unit}", f"write {instead}")


def instants(value: Column, kind: t.DataType, unit: Unit) -> Instants:
    """Convert a column for which `unit_refused` is None. Blank text counts as missing."""
    never = F.lit(None).cast("string")
    if unit == "timestamp":
        return Instants(F.unix_millis(value), _behind(F.unix_micros(value)), value.isNull(), never)
    missing = value.isNull() | (F.trim(value) == "") if isinstance(kind, t.StringType) else value.isNull()
    if unit == "iso":
        moment = F.coalesce(value.try_cast("timestamp"), _from_java_text(value).try_cast("timestamp"))
        zoned = _is_plain_utc(value) | value.rlike(_ZONED)
        why = (
            F.when(moment.isNull() & value.rlike(_LOWER_CASE), "event time has a lower-case t or z (see upper(...)): ")
            .when(moment.isNull(), "event time is not ISO-8601: ")
            .when(~value.rlike(_HAS_DATE), "event time without date: ")
            .when(value.rlike(_ANY_ZONE), "event time has no clear zone: ")
            .otherwise("event time without zone: ")
        )
        shown = F.substring(F.trim(value), 1, _SHOWN_LENGTH)
        reason = F.when(missing | (moment.isNotNull() & zoned), never).otherwise(F.concat(why, shown))
        return Instants(F.when(zoned, F.unix_millis(moment)), _behind(F.unix_micros(moment)), missing, reason)
    milliseconds, micros = _scaled(value, kind, unit), _scaled_micros(value, kind, unit)
    text = isinstance(kind, t.StringType)
    what = F.when(value.try_cast("decimal(38,9)").isNull(), "event time is not a number") if text else never
    unreadable = F.coalesce(what, F.lit("event time is out of any range"))
    return Instants(milliseconds, micros, missing, F.when(~missing & milliseconds.isNull(), unreadable))


def _is_plain_utc(text: Column) -> Column:
    """Whether the text has a date and ends in `Z`, as most do: quicker than a regular expression."""
    before = F.substring(text, -2, 1)
    has_z = F.endswith(text, F.lit("Z")) & (before >= F.lit("0")) & (before <= F.lit("9"))
    return has_z & (F.substring(text, 5, 1) == F.lit("-")) & (F.substring(text, 11, 1) == F.lit("T"))


def _from_java_text(text: Column) -> Column:
    """Java's `OffsetDateTime` and `ZonedDateTime` as text that Spark can cast.

    Java leaves seconds out where they are 0, and appends the zone's name in brackets.
    """
    without_name = F.regexp_replace(text, r"\[[^\]]+\]\s*$", "")
    return F.regexp_replace(without_name, r"([T ]\d{1,2}:\d{1,2})(\s*[A-Za-z+\-])", "$1:00$2")


def _behind(micros: Column) -> Column:
    """The part of epoch microseconds that is no whole millisecond."""
    return F.pmod(micros, F.lit(1000))


def _scaled_micros(value: Column, kind: t.DataType, unit: Unit) -> Column:
    if isinstance(kind, t.IntegralType):
        return _behind(value.cast("bigint")) if unit == "us" else F.lit(0).cast("bigint")
    exact = value if isinstance(kind, t.DecimalType) else value.try_cast("decimal(38,9)")
    factor = {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
    scaled = F.try_multiply(exact.try_cast("decimal(28,9)"), F.lit(factor).cast("decimal(8,0)"))
    return _behind(F.floor(scaled).try_cast("bigint"))


def _scaled(value: Column, kind: t.DataType, unit: Unit) -> Column:
    if isinstance(kind, t.IntegralType):
        whole = value.cast("bigint")
        if unit == "ms":
            return whole
        if unit == "s":
            return F.try_multiply(whole, F.lit(1000).cast("bigint"))
        return F.unix_millis(F.timestamp_micros(whole))
    exact = value if isinstance(kind, t.DecimalType) else value.try_cast("decimal(38,9)")
    factor = {"s": "1000", "ms": "1", "us": "0.001"}[unit]
    scaled = F.try_multiply(exact.try_cast("decimal(28,9)"), F.lit(factor).cast("decimal(8,3)"))
    return F.floor(scaled).try_cast("bigint")
