"""Duplicates that the live job drops before its windows, in the words of its engine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt, ValidationInfo, field_validator

from spark_jobs.definition.delay import Delay
from spark_jobs.definition.fields import PositiveDuration, Refusal, Section, Texts


class DeduplicateKind(StrEnum):
    """What drops duplicates in the live job: two ways of Spark's, two of Flink's."""

    WITHIN_WATERMARK = "drop_duplicates_within_watermark"
    DROP_DUPLICATES = "drop_duplicates"
    ROW_TIME = "row_time"
    PROCESSING_TIME = "processing_time"


class UpdateType(StrEnum):
    """What renews the time to live of state, as `StateTtlConfig.UpdateType`."""

    ON_CREATE_AND_WRITE = "on_create_and_write"
    ON_READ_AND_WRITE = "on_read_and_write"


OF_SPARK = (DeduplicateKind.WITHIN_WATERMARK, DeduplicateKind.DROP_DUPLICATES)
OF_FLINK = (DeduplicateKind.ROW_TIME, DeduplicateKind.PROCESSING_TIME)
"""The kinds of an engine, its default first."""
_TAKERS = {
    "within": OF_FLINK,
    "update_type": (DeduplicateKind.PROCESSING_TIME,),
    "event_time": (DeduplicateKind.DROP_DUPLICATES,),
    "delays": (DeduplicateKind.WITHIN_WATERMARK,),
}


class DelayFrom(Section):
    """The delay of `withWatermark` from a batch on."""

    first_batch: Annotated[StrictInt, Field(ge=0)] = Field(
        description="The first batch after the start with this delay.", examples=[0]
    )
    delay: Delay = Field(description="The delay of the query's first input.", examples=["10 minutes"])


class Deduplicate(Section):
    """What the live job does about duplicates before its windows; of records that share an id the first one stays.

    Filters come before it.
    """

    by: Texts = Field(
        description="What duplicates share: one SQL expression, or a list of them.",
        examples=["event_id", ["device", "sequence"]],
    )
    kind: DeduplicateKind = Field(
        default=DeduplicateKind.ROW_TIME,
        description="engine spark: drop_duplicates_within_watermark (the default there) or drop_duplicates. engine "
        "flink: row_time (the default there: ROW_NUMBER() ... ORDER BY row time, insert-only, as of Flink 2.1) or "
        "processing_time (ORDER BY processing time; or keyed state with a time to live).",
    )
    within: PositiveDuration | None = Field(
        default=None,
        description="How long an id is remembered, in processing time: `table.exec.state.ttl`, or the time to live of "
        "the state; left out: for ever (engine flink).",
        examples=["1 h"],
    )
    update_type: UpdateType = Field(
        default=UpdateType.ON_CREATE_AND_WRITE,
        description="Whether a duplicate renews the time to live (on_read_and_write), as StateTtlConfig has it. SQL "
        "has on_create_and_write (kind processing_time).",
    )
    event_time: StrictBool = Field(
        default=False,
        description="Whether the column of `withWatermark` is among those of `dropDuplicates`: an id is then "
        "remembered until the watermark has passed its time, else for ever (kind drop_duplicates).",
    )
    delays: tuple[DelayFrom, ...] = Field(
        default=(),
        description="The delays that the query had from one start to the next, where they changed: an id keeps the one "
        "that it came with. Left out: `watermark.delay` (kind drop_duplicates_within_watermark).",
        examples=[[{"first_batch": 0, "delay": "5 minutes"}, {"first_batch": 120, "delay": "10 minutes"}]],
    )

    @field_validator("within", "update_type", "event_time", "delays")
    @classmethod
    def _is_of_the_kind(cls, value: Any, info: ValidationInfo) -> Any:
        kind, name = info.data.get("kind"), str(info.field_name)
        if kind is not None and kind not in _TAKERS[name] and value != cls.model_fields[name].default:
            hint = "leave it out"
            if name == "within":
                hint = "Spark holds an id for `watermark.delay`; leave it out"
            raise Refusal(f"belongs to kind {' or '.join(_TAKERS[name])}", hint)
        return value

    @field_validator("delays")
    @classmethod
    def _from_the_first_batch_on(cls, delays: tuple[DelayFrom, ...]) -> tuple[DelayFrom, ...]:
        batches = [one.first_batch for one in delays]
        if batches and (batches[0] != 0 or batches != sorted(set(batches))):
            raise Refusal(
                "do not ascend from batch 0", "begin with `first_batch: 0`, and name each start once, in order"
            )
        return delays


def refuse_kind(section: Deduplicate | None, kinds: tuple[DeduplicateKind, ...], engine: str) -> Deduplicate | None:
    """Raise Refusal for a kind of another engine than the one with these kinds."""
    if section is not None and section.kind not in kinds:
        raise Refusal(f"does not belong to engine `{engine}`", f"write one of {', '.join(kinds)}", ("kind",))
    return section
