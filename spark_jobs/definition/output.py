"""Where results go, the quarantine, who decides on publication, the schedule, and the most that a run may cost."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ByteSize, Field, ValidationInfo, WithJsonSchema, field_validator

from spark_jobs.definition.fields import KNOWN_ZONE, PositiveDuration, Refusal, Section, as_written, short_for, shown
from spark_jobs.definition.names import Namespace, TableName
from spark_jobs.definition.policy import Policy


class Limits(Section):
    """Limits of one run. A plan above one of them is refused; `--beyond-limits` allows it for this run."""

    records: int | None = Field(
        default=None, ge=1, description="The most records that a run reads.", examples=[2_000_000_000]
    )
    bytes: ByteSize | None = Field(
        default=None, ge=1, description="The most bytes of files that a run reads.", examples=["500 GB"]
    )
    duration: PositiveDuration | None = Field(
        default=None,
        description="The longest that a run may take, as it is estimated from the pipeline's own runs. Before there "
        "are any, this limit refuses nothing.",
        examples=["6 h"],
    )


_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*%\s*")
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
    elif match := _PERCENT.fullmatch(value):
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
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$"},
                {"type": "integer", "minimum": 0},
                {"type": "number", "minimum": 0, "maximum": 1},
            ]
        }
    ),
]


AHEAD = "1 d"
"""How far ahead of records behind it, or of the clock, an arrival may be, where the definition does not say."""


class Quarantine(Section):
    """Records that cannot be parsed, lack the event time (by policy) or have an absurd one."""

    policy: Literal["quarantine", "fail"] = Field(
        default="quarantine",
        description="quarantine: write such records to the quarantine table, with the reason. fail: one such record "
        "fails the run.",
    )
    threshold: ThresholdField = Field(
        default=as_written(None),
        description="Most records that may be quarantined, a share of all records read (1 %) or a count (100); more "
        "fail the run before anything is written. Default 1 %.",
        examples=["1 %", 100],
    )

    ahead: PositiveDuration = Field(
        default=as_written(AHEAD),
        description="A record whose arrival is so far ahead of that of a record behind it in its partition goes to "
        "quarantine. One that is so far ahead of the clock, with nothing behind it, is not read until it has come to "
        "pass or is followed.",
        examples=["1 d"],
    )

    @field_validator("threshold", mode="before")
    @classmethod
    def _default_by_policy(cls, threshold: Any, info: ValidationInfo) -> Any:
        fails = info.data.get("policy") == "fail"
        if threshold is None:
            return 0 if fails else "1 %"
        if fails and threshold not in (0, Threshold(count=0)):
            hint = "leave the threshold out, or write `policy: quarantine`"
            raise Refusal("policy `fail` allows no record in quarantine", hint)
        return threshold


class Output(Section):
    """The table of the results in Rewindow's catalog; its side tables carry its name and a suffix."""

    namespace: Namespace = Field(
        default="default", description="Namespace of the tables in the catalog.", examples=["demo"]
    )
    table: TableName | None = Field(
        default=None, description="Name of the table; left out, the pipeline's name.", examples=["departures_hourly"]
    )


_POLICIES = ", ".join(Policy)
_CRON = re.compile(r"@(hourly|daily|weekly|monthly)|\s*\S+(\s+\S+){4}\s*")


class Publish(Section):
    """Who decides that a staged run is published."""

    policy: Policy = Field(
        default=Policy.ALWAYS,
        description="always; within_tolerance: approval where more windows change; on_approval: always "
        "approval; never: only compare. A closed gate stops all of them.",
    )
    tolerance: ThresholdField = Field(
        default=as_written("1 %"),
        validate_default=True,
        description="For within_tolerance: the most published windows that may change without approval, a share of "
        "those that the run computes again. Windows that it does not look at do not count; new ones neither.",
        examples=["1 %"],
    )
    may_override: bool = Field(
        default=False,
        description="Whether a form or a command line may choose a policy that is weaker than this one. A stricter one "
        "is always allowed.",
    )

    @field_validator("policy", mode="before")
    @classmethod
    def _known_policy(cls, policy: Any) -> Any:
        if policy not in list(Policy):
            raise Refusal(f"{shown(policy)} is not a policy", f"write one of {_POLICIES}")
        return policy

    @field_validator("tolerance")
    @classmethod
    def _tolerance_is_a_share(cls, tolerance: Threshold) -> Threshold:
        if tolerance.share is None:
            raise Refusal("a tolerance is a share of the published windows", "write it like `1 %`")
        return tolerance

    @property
    def share(self) -> float:
        """The tolerance, 0 to 1."""
        return self.tolerance.share or 0.0


PublishField = Annotated[Publish, short_for("policy")]


class Schedule(Section):
    """When the reconciliation runs."""

    cron: str = Field(
        default="@daily",
        description="Five cron fields, or @hourly, @daily, @weekly, @monthly. A run takes what arrived before it.",
        examples=["0 5 * * *"],
    )
    time_zone: Annotated[str, KNOWN_ZONE] = Field(
        default="UTC", description="Zone of the cron fields.", examples=["Europe/Berlin"]
    )

    @field_validator("cron")
    @classmethod
    def _is_cron(cls, cron: str) -> str:
        if not _CRON.fullmatch(cron):
            raise Refusal(f"{shown(cron)} is not a schedule", "write five cron fields like `0 5 * * *`, or @daily")
        return cron.strip()


ScheduleField = Annotated[Schedule, short_for("cron")]
