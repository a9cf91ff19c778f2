"""Where results go, the quarantine, who decides on publication, the schedule, and the most that a run may cost."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import ByteSize, Field, ValidationInfo, field_validator

from spark_jobs.definition.fields import KNOWN_ZONE, PositiveDuration, Refusal, Section, as_written, short_for, shown
from spark_jobs.definition.names import Namespace, TableName
from spark_jobs.definition.policy import Policy
from spark_jobs.definition.restatement import DEFAULT, RestatementField
from spark_jobs.definition.thresholds import Threshold, ThresholdField


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
        description="always; within_tolerance: approval where more changes; on_approval: always "
        "approval; never: only compare. A closed gate stops all of them.",
    )
    tolerance: RestatementField = Field(
        default=DEFAULT,
        validate_default=True,
        description="For within_tolerance: how much of what readers have seen may change without approval. A share "
        "alone is that of the windows that readers had on the days on which a window changes; a section has more "
        "limits, which all hold. New windows do not count, nor those that were still open.",
        examples=["1 %", "{windows: 50, reach: 7 d, change: {revenue: 0.5 %}}"],
    )
    may_override: bool = Field(
        default=False,
        description="Whether a form or a command line may choose a policy that is weaker than this one. A stricter one "
        "is always allowed.",
    )

    approvers: tuple[str, ...] = Field(
        default=(),
        max_length=50,
        description="Who may answer the task `approve` and publish with `decide__<pipeline>` in Airflow: the ids of "
        "Airflow's users. Empty: all who may edit the DAG. On the command line the machine's permissions decide.",
        examples=["[amal, noor]"],
    )

    @field_validator("approvers", mode="before")
    @classmethod
    def _named(cls, names: Any) -> Any:
        if not isinstance(names, (list, tuple)) or not all(isinstance(n, str) and n.strip() for n in names):
            raise Refusal(f"{shown(names)} is no list of users", "write a list such as [amal, noor]")
        return tuple(names)

    @field_validator("policy", mode="before")
    @classmethod
    def _known_policy(cls, policy: Any) -> Any:
        if policy not in list(Policy):
            raise Refusal(f"{shown(policy)} is not a policy", f"write one of {_POLICIES}")
        return policy


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
