"""A share or a count that must not be exceeded, as people write it: `1 %`, `100`."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from spark_jobs.definition.fields import Refusal, Section, shown

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
