"""The fields of a Structured Streaming query, in Spark's words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, ValidationInfo, WithJsonSchema, model_validator

from spark_jobs.definition.fields import PositiveDuration, Refusal, Text, shown
from spark_jobs.definition.watermark import OneRuleWatermark
from spark_jobs.eventtime import durations
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, GeneratorSupplier, supplier_of
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


class Gaps(StrEnum):
    """What a run does about batches that nobody has kept."""

    REFUSE = "refuse"
    APPROXIMATE = "approximate"


class StreamingWatermark(OneRuleWatermark):
    """When a record of a Structured Streaming query is late: by the micro-batches that its checkpoint records."""

    delay: Delay = Field(
        description="The delay of `withWatermark`. Which records were late is read from the checkpoint, not from it.",
        examples=["10 minutes"],
    )
    checkpoint: Text | None = Field(
        None,
        description="The query's `checkpointLocation`: a folder, or an address of an object store or HDFS. Left out "
        "where it is lost, with `gaps: approximate`.",
        examples=["/srv/checkpoints/orders"],
    )
    source: Text | None = Field(
        None,
        description="The number of the source in the checkpoint's offsets, from 0, where the query has several; left "
        "out, the one that reads the topic.",
        examples=["0"],
    )
    allow_multiple: StrictBool = Field(
        True,
        description="The query's `spark.sql.streaming.statefulOperator.allowMultiple`: true since Spark 3.4. false, "
        "and every Spark before: late records are found by the watermark of their own batch. No checkpoint tells.",
    )
    merge_sessions_in_local_partition: StrictBool = Field(
        False,
        description="The query's `spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition`. No checkpoint "
        "tells.",
    )

    gaps: Gaps = Field(
        Gaps.REFUSE,
        description="What a run does about batches that neither the checkpoint nor the table of kept batches has: "
        "refuse, or approximate: their records are in batches by append time and `trigger`.",
    )
    trigger: PositiveDuration | None = Field(
        None,
        description="The interval of the query's trigger, where `gaps` is approximate.",
        examples=["10 s"],
    )

    no_data_batches: StrictBool = Field(
        True,
        description="The query's `spark.sql.streaming.noDataMicroBatches.enabled`, where `gaps` is approximate: "
        "whether a batch without data follows one that moved the watermark. Known batches tell it themselves.",
    )

    @model_validator(mode="after")
    def _gaps_are_placed_by_the_trigger(self) -> Self:
        if self.gaps is Gaps.REFUSE and not self.no_data_batches:
            what = "says nothing without `gaps: approximate`: the checkpoint has the batches without data"
            raise Refusal(what, "leave it out", ("no_data_batches",))
        if (self.gaps is Gaps.APPROXIMATE) is not bool(self.trigger):
            what = "is needed with `gaps: approximate`, and says nothing without it"
            raise Refusal(what, "write both, such as `trigger: 10 s`, or leave out both", ("trigger",))
        return self

    @property
    def supplier(self) -> GeneratorSupplier:
        """The largest event time less the delay."""
        return supplier_of(GeneratorKind.LAG, lag=self.delay)

    generator: ClassVar[GeneratorKind] = GeneratorKind.LAG
    partitions: ClassVar[tuple[int, ...] | None] = None


class QueryInput(OneRuleWatermark):
    """One input of a query with several: the delay of its `withWatermark`, and where the checkpoint has it."""

    delay: Delay = Field(description="The delay of this input's `withWatermark`.", examples=["10 minutes"])
    source: Text | None = Field(
        None,
        description="The number of this input's source in the checkpoint's offsets, from 0; left out, the one that "
        "reads the topic.",
        examples=["0"],
    )

    @property
    def supplier(self) -> GeneratorSupplier:
        """The largest event time less the delay."""
        return supplier_of(GeneratorKind.LAG, lag=self.delay)

    generator: ClassVar[GeneratorKind] = GeneratorKind.LAG
    partitions: ClassVar[tuple[int, ...] | None] = None


_DELAY = "Spark calls it `delay`: write `watermark: {delay: 10 minutes}`"
_NONE = "Structured Streaming has no counterpart; leave it out"
_FOREIGN_WATERMARK = {
    "bound": _DELAY,
    "lag": _DELAY,
    "grace": _DELAY,
    "generator": "Structured Streaming has one rule, the largest event time less the `delay`: leave it out",
    "emission": "the watermark moves from one micro-batch to the next, as the checkpoint has it: leave it out",
    "interval": "the watermark moves from one micro-batch to the next, as the checkpoint has it: leave it out",
    "restarts": "the checkpoint knows the starts of the query: leave it out",
    "partitions": "the checkpoint knows the partitions: leave it out",
}
_WINDOWS = ("tumbling", "sliding", "session")


def foreign_to_spark(raw: Mapping[str, Any], flinks: Iterable[str]) -> Iterator[Refusal]:
    """What a definition of a Structured Streaming query has in the words of another engine.

    `flinks`: the fields of Flink's watermark.
    """
    what = "does not belong to engine `spark`"
    watermark, window = raw.get("watermark"), raw.get("window")
    others = {*flinks, *_FOREIGN_WATERMARK} - set(StreamingWatermark.model_fields)
    for name in watermark if isinstance(watermark, Mapping) else ():
        if name in others:
            yield Refusal(what, _FOREIGN_WATERMARK.get(name, _NONE), ("watermark", name))
    if isinstance(window, Mapping):
        kind = window.get("type")
        if kind not in (*_WINDOWS, None):
            yield Refusal(
                "Structured Streaming has no such windows", f"write one of {', '.join(_WINDOWS)}", ("window", "type")
            )
        if window.get("time_zone") is not None and kind != "session":
            hint = "Spark's windows of a day begin at midnight UTC; leave it out"
            yield Refusal(what, hint, ("window", "time_zone"))
        if kind == "session" and window.get("time_zone") is None and _has_months(window.get("gap")):
            hint = "name the query's `spark.sql.session.timeZone` in `window.time_zone`, such as `UTC`"
            yield Refusal("a gap in months or years follows a calendar", hint, ("window", "gap"))
        if kind == "session" and raw.get("output_mode", "append") == "update":
            yield Refusal("Spark refuses sessions in update mode", "write `append` or `complete`", ("output_mode",))
    if raw.get("allowed_lateness"):
        yield Refusal(what, _DELAY, ("allowed_lateness",))
    if raw.get("end_of_input", "freeze") != "freeze":
        hint = "a query has no end of input: what is open stays open; leave it out"
        yield Refusal(what, hint, ("end_of_input",))


def _has_months(gap: Any) -> bool:
    try:
        return bool(parse_interval(str(gap)).months)
    except IntervalError:
        return False


def in_spark_words(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The content of such a definition as the model reads it."""
    event_time = raw.get("event_time")
    if isinstance(event_time, Mapping) and "missing" not in event_time:
        event_time = {**event_time, "missing": "drop"}  # such a record is in no window, and fails nothing
    known = {"output_mode": "append", **raw, "end_of_input": "freeze"}
    return known if event_time is None else {**known, "event_time": event_time}
