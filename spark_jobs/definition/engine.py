"""The engine of the live job, and its fields in that engine's own words.

A field that belongs to another engine is refused by name, with what this engine calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Discriminator, Tag

from spark_jobs.definition.deduplicate import deduplicate_refusals, with_default_kind
from spark_jobs.definition.fields import Refusal, Refusals
from spark_jobs.definition.kafka_streams import StreamsWatermark, foreign_to_streams, in_streams_words, of_streams_alone
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.structured_streaming import Gaps, StreamingWatermark, foreign_to_spark, in_spark_words
from spark_jobs.definition.watermark import Watermark


class Engine(StrEnum):
    """What the live job runs on."""

    FLINK = "flink"
    SPARK = "spark"
    KAFKA_STREAMS = "kafka_streams"

    @property
    def decides_by_order_alone(self) -> bool:
        """Whether the order in a partition decides what is late, and no clock of an arrival."""
        return self is Engine.KAFKA_STREAMS


def _tag(value: Any) -> str:
    if isinstance(value, StreamsWatermark) or (isinstance(value, Mapping) and "grace" in value):
        return StreamsWatermark.__name__
    streaming = isinstance(value, StreamingWatermark) or (
        isinstance(value, Mapping) and ("checkpoint" in value or "delay" in value)
    )
    return StreamingWatermark.__name__ if streaming else Watermark.__name__


AnyWatermark = Annotated[
    Annotated[Watermark, Tag(Watermark.__name__)]
    | Annotated[StreamingWatermark, Tag(StreamingWatermark.__name__)]
    | Annotated[StreamsWatermark, Tag(StreamsWatermark.__name__)],
    Discriminator(_tag),
]
"""The watermark of the live job, in the words of its engine."""

_ONLY_SPARK = {
    "delay": "Flink calls it `bound`, of the generator `bounded_out_of_orderness`",
    "checkpoint": "only Structured Streaming has one",
    "allow_multiple": "only Structured Streaming has it",
    "merge_sessions_in_local_partition": "only Structured Streaming has it",
    "gaps": "only Structured Streaming has micro-batches",
    "trigger": "only Structured Streaming has one",
    "no_data_batches": "only Structured Streaming has micro-batches",
}


_OTHER_RULES = "compare that time with a definition of its own"
_BAND = ("interval", "source_subtasks", "buffer_timeout", "margin", "lag_after", "lags")
_LIVE_OF_FLINK = {
    Engine.SPARK: {
        "definition": f"a query with other rules has another checkpoint: {_OTHER_RULES}",
        "restarts": "the checkpoint knows the starts of the query: leave it out",
        **dict.fromkeys(_BAND, "which records were late follows from the micro-batches: leave it out"),
    },
    Engine.KAFKA_STREAMS: {
        "definition": _OTHER_RULES,
        "restarts": "write `watermark.restarts`",
        **dict.fromkeys(_BAND, "a task reads its partition in the order of the log: leave it out"),
    },
}
"""What is known of the live job alone, and has an effect for Flink alone; what to do for another engine."""


def in_words_of_the_engine(raw: Any) -> Any:
    """The content of a definition as the model reads it. Raises Refusals for what belongs to another engine."""
    if not isinstance(raw, Mapping):
        return raw
    if raw.get("engine") == Engine.KAFKA_STREAMS:
        if found := [*foreign_to_streams(raw), *_of_flinks_live_job(raw, Engine.KAFKA_STREAMS)]:
            raise Refusals(found)
        return in_streams_words(raw)
    if found := list(of_streams_alone(raw)):
        raise Refusals(found)
    if raw.get("engine") == Engine.SPARK:
        foreign = [*foreign_to_spark(raw, Watermark.model_fields), *_of_flinks_live_job(raw, Engine.SPARK)]
        if found := [*foreign, *_missing(raw), *deduplicate_refusals(raw)]:
            raise Refusals(found)
        return with_default_kind(in_spark_words(raw))
    if found := [*_of_spark_alone(raw), *deduplicate_refusals(raw)]:
        raise Refusals(found)
    if raw.get("mode") == Mode.COMPLETE and "watermark" not in raw:  # nothing is late where every record counts
        raw = {**raw, "watermark": {"generator": "none"}}
    return with_default_kind(raw)


def _of_flinks_live_job(raw: Mapping[str, Any], engine: Engine) -> Iterator[Refusal]:
    live = raw.get("live")
    deployments = {("live", number): one for number, one in enumerate(live)} if isinstance(live, list) else {}
    for place, one in (deployments or {("live",): live}).items():
        for name, hint in _LIVE_OF_FLINK[engine].items():
            if isinstance(one, Mapping) and one.get(name) not in (None, [], {}):
                yield Refusal(f"does not belong to engine `{engine}`", hint, (*place, name))


def _missing(raw: Mapping[str, Any]) -> Iterator[Refusal]:
    watermark = raw.get("watermark")
    if not isinstance(watermark, Mapping):
        return
    if "delay" not in watermark:
        yield Refusal("is missing", "write `delay: 10 minutes`", ("watermark", "delay"))
    if "checkpoint" not in watermark and watermark.get("gaps") != Gaps.APPROXIMATE:
        hint = "write `checkpoint: /srv/checkpoints/orders`; where it is lost, `gaps: approximate` and `trigger: 10 s`"
        yield Refusal("is missing", hint, ("watermark", "checkpoint"))


def _of_spark_alone(raw: Mapping[str, Any]) -> Iterator[Refusal]:
    if raw.get("engine", Engine.FLINK) != Engine.FLINK:
        return
    watermark = raw.get("watermark")
    for name, here in _ONLY_SPARK.items():
        if isinstance(watermark, Mapping) and name in watermark:
            yield Refusal("belongs to engine `spark`", f"write `engine: spark`; {here}", ("watermark", name))
    window = raw.get("window")
    if isinstance(window, Mapping) and window.get("type") == "session" and window.get("time_zone") is not None:
        hint = "write `engine: spark`; Flink's gaps have a fixed length: leave it out"
        yield Refusal("belongs to engine `spark`", hint, ("window", "time_zone"))
    if raw.get("output_mode") is not None:
        hint = "write `engine: spark`, or leave it out"
        yield Refusal("belongs to engine `spark`", hint, ("output_mode",))
