"""The delay of `withWatermark`, as Spark reads it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema

from spark_jobs.definition.fields import Refusal, shown
from spark_jobs.eventtime import durations
from spark_jobs.eventtime.spark.intervals import IntervalError, parse_interval


def _read_delay(value: Any, info: ValidationInfo) -> Any:
    """A delay as Spark reads it (`10 minutes`, `1 month`: 31 days), or a duration as in other fields."""
    if isinstance(value, int) and not isinstance(value, bool) and not (info.context or {}).get("from_yaml"):
        return value
    if value == 0:
        return 0
    if not isinstance(value, str):
        raise Refusal(f"{shown(value)} is not a delay", "write one like `10 minutes`")
    try:
        return durations.parse_duration(value)
    except durations.DurationError as error:
        try:
            return parse_interval(value).fixed_ms
        except IntervalError:
            raise Refusal(error.what, error.hint) from None


def _not_negative(value: int) -> int:
    if value < 0:
        raise Refusal("is negative", "write 0 or a positive delay, as Spark demands")
    return value


Delay = Annotated[
    int, BeforeValidator(_read_delay), AfterValidator(_not_negative), WithJsonSchema({"type": ["string", "integer"]})
]
