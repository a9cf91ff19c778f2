"""Duplicates that the live job drops before its windows, in the words of its engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictInt, field_validator

from spark_jobs.definition.fields import PositiveDuration, Refusal, Section, Texts
from spark_jobs.definition.structured_streaming import Delay
from spark_jobs.eventtime.flink.deduplication import UpdateType


class DeduplicateKind(StrEnum):
    """What drops duplicates in the live job: two ways of Spark's, two of Flink's."""

    WITHIN_WATERMARK = "drop_duplicates_within_watermark"
    DROP_DUPLICATES = "drop_duplicates"
    ROW_TIME = "row_time"
    PROCESSING_TIME = "processing_time"


_KINDS = {
    "spark": (DeduplicateKind.WITHIN_WATERMARK, DeduplicateKind.DROP_DUPLICATES),
    "flink": (DeduplicateKind.ROW_TIME, DeduplicateKind.PROCESSING_TIME),
}
_DEFAULT = {engine: kinds[0] for engine, kinds in _KINDS.items()}
_TAKERS = {
    "within": _KINDS["flink"],
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

    @field_validator("delays")
    @classmethod
    def _from_the_first_batch_on(cls, delays: tuple[DelayFrom, ...]) -> tuple[DelayFrom, ...]:
        batches = [one.first_batch for one in delays]
        if batches and (batches[0] != 0 or batches != sorted(set(batches))):
            raise Refusal(
                "do not ascend from batch 0", "begin with `first_batch: 0`, and name each start once, in order"
            )
        return delays


def deduplicate_refusals(raw: Mapping[str, Any]) -> Iterator[Refusal]:
    """What is wrong with the section `deduplicate` of a definition as it is written."""
    section, at = raw.get("deduplicate"), "deduplicate"
    if not isinstance(section, Mapping):
        return
    engine = "spark" if raw.get("engine") == "spark" else "flink"
    kind = section.get("kind", _DEFAULT[engine])
    if kind not in set(DeduplicateKind):
        return  # refused with the names of all
    if kind not in _KINDS[engine]:
        hint = f"write one of {', '.join(_KINDS[engine])}"
        yield Refusal(f"does not belong to engine `{engine}`", hint, (at, "kind"))
        return
    for name, kinds in _TAKERS.items():
        if name in section and kind not in kinds:
            hint = "Spark holds an id for `watermark.delay`; leave it out" if name == "within" else "leave it out"
            yield Refusal(f"belongs to kind {' or '.join(kinds)}", hint, (at, name))
    yield from _of_kind(DeduplicateKind(kind), raw)


def _of_kind(kind: DeduplicateKind, raw: Mapping[str, Any]) -> Iterator[Refusal]:
    """Other sections of a definition that do not go with this kind."""
    watermark, window = (part if isinstance(part := raw.get(name), Mapping) else {} for name in ("watermark", "window"))
    if kind in _KINDS["spark"]:
        if watermark.get("allow_multiple") is False:
            hint = "Spark refuses a deduplication before an aggregation without it: leave it out"
            yield Refusal("does not go with `deduplicate`", hint, ("watermark", "allow_multiple"))
    elif kind is DeduplicateKind.ROW_TIME:
        if window.get("type") == "session":
            hint = "before sessions duplicates can be dropped by `kind: processing_time`"
            yield Refusal("cannot be replayed before sessions", hint, ("deduplicate", "kind"))
        if raw.get("allowed_lateness") not in (None, 0, "0", "0 s"):
            hint = "no record is late for its window behind a deduplication by row time: leave it out"
            yield Refusal("does not go with `deduplicate` of kind row_time", hint, ("allowed_lateness",))
        if isinstance(flink := watermark.get("flink"), str) and flink.startswith(("1.", "2.0")):
            hint = "before 2.1 Flink's deduplication by row time gives updates, which no window takes"
            yield Refusal("does not go with `deduplicate` of kind row_time", hint, ("watermark", "flink"))
        live = raw.get("live")
        lives = live if isinstance(live, list) else [live]
        if any(isinstance(one, Mapping) and one.get("restarts") for one in lives):
            hint = "which records were late there after a restart is not replayed: leave it out, or `live.restarts`"
            yield Refusal("by row time does not go with `live.restarts`", hint, ("deduplicate",))


def with_default_kind(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """The content of a definition as the model reads it: the kind is that of the engine where it names none."""
    section = raw.get("deduplicate")
    if not isinstance(section, Mapping) or raw.get("engine") != "spark":
        return raw
    return {**raw, "deduplicate": {"kind": _DEFAULT["spark"], **section}}
