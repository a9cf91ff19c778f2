"""The columns of a history with a record's position in the log."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from spark_jobs.definition.fields import ARRIVAL_LATEST, Expression, Instant, Refusal, Section


def end_offsets(text: str) -> dict[int, int]:
    """Parse end offsets (exclusive) by partition, `0=1200,1=950`.

    Raises ValueError for other text, and for numbers that no partition and no offset has: they have 32 and 64 bits.
    """
    pairs = [item.split("=") for item in text.split(",") if item.strip()]
    found = {int(partition): int(end) for partition, end in pairs}
    if not all(0 <= partition < 2**31 and 0 <= end < 2**63 for partition, end in found.items()):
        raise ValueError("a number is below 0, or beyond the 32 bits of a partition or the 64 bits of an offset")
    return found


_LIKE_OFFSETS = re.compile(r"\s*-?\d+\s*[=:,]")
"""A list of end offsets that somebody has mistyped."""


def is_mark(text: str) -> bool:
    """Whether the text names what a live job wrote down (`spark_jobs.marks`), and is no list of end offsets."""
    try:
        return not end_offsets(text) and bool(text.strip())
    except ValueError:
        return not _LIKE_OFFSETS.match(text)


class Position(Section):
    """The columns (or SQL expressions) that give a record's position `(arrival, partition, offset)`.

    Records with equal arrivals are ordered by partition, then offset; with `sequence`, the order is
    `(arrival, sequence)`. Without these columns a history can be recomputed completely, but which of its records were
    late cannot be known.
    """

    partition: Expression | None = Field(
        default=None, description="Column of the log partition, an integer.", examples=["partition"]
    )
    offset: Expression | None = Field(
        default=None,
        description="Column of the offset within the partition, an integer that grows.",
        examples=["offset"],
    )
    arrival: Expression | None = Field(
        default=None, description="Column of the time the broker appended the record.", examples=["arrival"]
    )
    arrival_unit: Literal["timestamp", "s", "ms", "us", "iso"] = Field(
        default="timestamp",
        description="The unit of `arrival`: a timestamp, an integer of seconds, ms or µs since 1970, or ISO-8601 text "
        "with its zone (iso).",
    )
    arrival_kind: Literal["append_time", "producer_time"] = Field(
        default="append_time",
        description="append_time: the broker's clock, exact log order. producer_time: the producer's clock, "
        "approximate.",
    )
    arrival_earliest: Instant | None = Field(
        default=None,
        description="Arrivals before this instant are absurd; their records go to quarantine. Left out: none is.",
        examples=["2015-01-01T00:00:00Z"],
    )
    arrival_latest: Annotated[Instant | None, ARRIVAL_LATEST] = Field(
        default=None,
        description="Arrivals at or after this instant are absurd; their records go to quarantine. Left out: none "
        "is; see `quarantine.ahead` for those of a wrong clock.",
        examples=["2100-01-01T00:00:00Z"],
    )
    sequence: Expression | None = Field(
        default=None,
        description="Column with the global order of records with equal arrivals, if the history has one.",
        examples=["sequence"],
    )
    going_back: Literal["refuse", "running_maximum"] = Field(
        default="refuse",
        description="An arrival that goes back within a partition: refuse the history, or use the running maximum.",
    )

    @property
    def missing(self) -> tuple[str, ...]:
        """The fields without which the order of the log is not known, of those that are not named."""
        return tuple(name for name in ("partition", "offset", "arrival") if getattr(self, name) is None)

    @field_validator("offset")
    @classmethod
    def _offset_needs_partition(cls, offset: str | None, info: ValidationInfo) -> str | None:
        if offset is not None and info.data.get("partition", "") is None:
            hint = 'name `partition`, or write `partition: "0"` if there is only one'
            raise Refusal("an offset without a partition gives no order", hint)
        return offset

    @field_validator("sequence")
    @classmethod
    def _sequence_needs_arrival(cls, sequence: str | None, info: ValidationInfo) -> str | None:
        if sequence is not None and info.data.get("arrival", "") is None:
            raise Refusal("`sequence` orders equal arrivals, and there is no arrival", "name `arrival` too")
        return sequence
