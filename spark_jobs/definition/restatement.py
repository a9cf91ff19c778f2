"""How much of what readers have seen may change before a person is asked: the tolerance of `within_tolerance`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator

from spark_jobs.definition.fields import PositiveDuration, Refusal, Section, as_written, shown
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.formatting import plural

PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
PERCENT_SCHEMA = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$"}
"""`PERCENT` in JSON Schema."""
_THRESHOLD_HINT = "write a share like `1 %`, or a count of records like `100`"


class Threshold(Section):
    """The most records that may be quarantined: a share of all records read, or a count. Exactly one is set."""

    share: float | None = None
    count: int | None = None

    def is_exceeded(self, quarantined: int, read: int) -> bool:
        """Whether `quarantined` of `read` records are more than allowed; exactly at the threshold is allowed."""
        if self.count is not None:
            return quarantined > self.count
        return quarantined > Fraction(str(self.share)) * read


def _read_threshold(value: Any) -> Any:
    if isinstance(value, (Threshold, dict)):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Refusal(f"{shown(value)} is not a threshold", _THRESHOLD_HINT)
    if isinstance(value, int):
        share, count = None, value
    elif isinstance(value, float):
        share, count = Fraction(str(value)), None
    elif match := PERCENT.fullmatch(value):
        share, count = Fraction(match[1]) / 100, None
    else:
        raise Refusal(f"{shown(value)} is not a threshold", _THRESHOLD_HINT)
    if (count is not None and count < 0) or (share is not None and not 0 <= share <= 1):
        raise Refusal(f"{shown(value)} is not a threshold: a share is 0 % to 100 %, a count 0 or more", _THRESHOLD_HINT)
    return {"share": None if share is None else float(share), "count": count}


ThresholdField = Annotated[
    Threshold,
    BeforeValidator(_read_threshold),
    WithJsonSchema(
        {
            "anyOf": [
                PERCENT_SCHEMA,
                {"type": "integer", "minimum": 0},
                {"type": "number", "minimum": 0, "maximum": 1},
            ]
        }
    ),
]


_CHANGE_HINT = "write a share like `0.5 %`, or a number like `100`"


class ValueLimit(Section):
    """How far a value may move: by a share of what readers had, or by a number. Exactly one is set."""

    share: float | None = None
    number: float | None = None


def _read_limit(value: Any) -> Any:
    if isinstance(value, (ValueLimit, dict)):
        return value
    if isinstance(value, str) and (match := PERCENT.fullmatch(value)):
        return {"share": float(match[1]) / 100}
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0:
        raise Refusal(f"{shown(value)} is not how far a value may move", _CHANGE_HINT)
    return {"number": float(value)}


ValueLimitField = Annotated[
    ValueLimit,
    BeforeValidator(_read_limit),
    WithJsonSchema(
        {
            "anyOf": [
                PERCENT_SCHEMA,
                {"type": "number", "minimum": 0},
            ]
        }
    ),
]


class Restatement(Section):
    """What may change without a question, all of it at once. New windows, and those that were open before, are free.

    The base is what readers had: the windows with a value on the days (UTC, by their start) on which a window changes.
    """

    share: ThresholdField | None = Field(
        default=None,
        description="The most windows that may change, a share of those that readers had on the days (UTC) on which a "
        "window changes.",
        examples=["1 %"],
    )
    windows: int | None = Field(default=None, ge=0, description="The most windows that may change.", examples=[50])
    reach: PositiveDuration | None = Field(
        default=None,
        description="How long before the end of the last published window the oldest window that changes may begin.",
        examples=["7 d"],
    )
    change: dict[str, ValueLimitField] = Field(
        default={},
        description="By aggregate: how far its values may move in all, up and down added, as a share of what readers "
        "had on these days, or as a number.",
        examples=["{revenue: 0.5 %, orders: 100}"],
    )

    @field_validator("share")
    @classmethod
    def _is_a_share(cls, share: Threshold | None) -> Threshold | None:
        if share is not None and share.share is None:
            raise Refusal("it is a share of the windows that readers had", "write it like `1 %`; a number is `windows`")
        return share

    def in_words(self) -> str:
        """The limits, in a sentence's part."""
        parts = []
        if self.share is not None:
            parts.append(f"{(self.share.share or 0) * 100:g} % of the windows that readers had on those days")
        if self.windows is not None:
            parts.append(plural(self.windows, "window"))
        for name, limit in self.change.items():
            most = f"{limit.share * 100:g} %" if limit.share is not None else f"{limit.number:g}"
            parts.append(f"`{name}` by {most}")
        said = f"at most {', '.join(parts)}" if parts else ""
        back = f"none more than {format_duration(self.reach)} back" if self.reach is not None else ""
        return ", ".join(filter(None, (said, back)))


def _read_tolerance(value: Any) -> Any:
    return value if isinstance(value, (Restatement, dict)) else {"share": value}


RestatementField = Annotated[Restatement, BeforeValidator(_read_tolerance)]
DEFAULT = as_written("1 %")
