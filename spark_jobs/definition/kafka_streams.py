"""A Kafka Streams application in its own words: the fields that only its definitions have.

A field that belongs to another engine is refused by name, with what Kafka Streams calls it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, StrictInt, ValidationInfo, field_validator

from spark_jobs.definition.fields import Duration, Instant, PositiveDuration, Refusal, Section, as_written
from spark_jobs.definition.watermark import OneRuleWatermark, Partitions, Watermark
from spark_jobs.definition.window import BetweenEventsWindow, HoppingWindow, SessionWindow, TumblingWindow, Window
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, GeneratorSupplier, supplier_of
from spark_jobs.eventtime.kafka_streams.task import Emission as Emits
from spark_jobs.eventtime.kafka_streams.task import StoreState
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents, HoppingWindows, Sessions, StreamsWindows


class TaskRestarted(Section):
    """A start of the application: stream time begins anew in its tasks."""

    offsets: dict[Annotated[int, Field(ge=0)], Annotated[StrictInt, Field(ge=0)]] | None = Field(
        None,
        description="By partition the offset of the first record that its task read after the start; other partitions "
        "went on.",
        examples=[{0: 1200, 1: 988}],
    )
    at: Instant | None = Field(
        None,
        description="When all tasks began anew: records that arrive from then on.",
        examples=["2026-03-01T02:00:00Z"],
    )
    state: StoreState = Field(
        StoreState.LOCAL,
        description="local: the store's files were still on the disk. restored: the store came from its changelog. "
        "lost: it was empty.",
    )

    @field_validator("at")
    @classmethod
    def _one_place(cls, at: int | None, info: ValidationInfo) -> int | None:
        if "offsets" in info.data and (at is None) == (info.data["offsets"] is None):
            raise Refusal("is missing" if at is None else "there are `offsets` too", "write `at` or `offsets`")
        return at


class StreamsWatermark(OneRuleWatermark):
    """When a record of a Kafka Streams application is late: by the stream time of its partition, less the grace."""

    grace: Duration = Field(description="Grace period of the windows.", examples=["10 min"])
    retention: PositiveDuration | None = Field(
        None,
        description="Retention of the store (`Materialized.withRetention`); left out: the least possible.",
        examples=["1 d"],
    )
    restarts: tuple[TaskRestarted, ...] = Field(
        (),
        description="Starts of the application within the history, in their order. Left out: it ran without a pause.",
        examples=[[{"at": "2026-03-01T02:00:00Z"}]],
    )
    partitions: Partitions | None = Field(
        None,
        description="The partitions of the topic that the aggregation reads; left out: those found in the history.",
        examples=[3],
    )

    @property
    def bound(self) -> int:
        """The grace, as the bound of a watermark (ms)."""
        return self.grace

    @property
    def supplier(self) -> GeneratorSupplier:
        """Stream time less the grace."""
        return supplier_of(GeneratorKind.BOUNDED, bound=self.grace)

    generator: ClassVar[GeneratorKind] = GeneratorKind.BOUNDED


class StreamsEmission(Section):
    """When a Kafka Streams application gives a window's row."""

    kind: Literal["each_update", "on_close"] = Field(
        "each_update", description="each_update: a row for each record. on_close: one row when the window has closed."
    )
    strategy: Literal["suppress", "emit"] = Field(
        "suppress",
        description="on_close by `suppress(untilWindowCloses(...))`, or by `EmitStrategy.onWindowClose()`.",
    )
    interval: Duration = Field(
        as_written("1 s"), description="How often the emit strategy looks, by the wall clock.", examples=["1 s"]
    )

    @property
    def emits(self) -> Emits:
        """The same as one of Kafka Streams' three ways."""
        if self.kind == "each_update":
            return Emits.EACH_UPDATE
        return Emits.SUPPRESS if self.strategy == "suppress" else Emits.ON_WINDOW_CLOSE


_GRACE = "Kafka Streams calls it `grace`: write `watermark: {grace: 10 min}`"
_NONE = "Kafka Streams has no counterpart; leave it out"
_FOREIGN_WATERMARK = {
    "bound": _GRACE,
    "lag": _GRACE,
    "delay": _GRACE,
    "generator": "Kafka Streams has one rule, stream time: leave it out",
    "checkpoint": _NONE,
    "emission": "Kafka Streams' is the field `emission` beside `watermark`: each_update or on_close",
    "interval": "the emit strategy's is `emission: {kind: on_close, strategy: emit, interval: 1 s}`",
}
_FOREIGN_WINDOW = {
    "slide": "Kafka Streams calls it `advance`, of `type: hopping`",
    "step": _NONE,
    "offset": "Kafka Streams' windows begin at the multiples of their advance; leave it out",
    "time_zone": "Kafka Streams' windows begin at the multiples of their advance; leave it out",
    "gap_expression": "Kafka Streams' sessions have one `gap`",
}
_ONLY_STREAMS = {"grace": "bound", "retention": "", "restarts": "live.restarts"}
_STREAMS_WINDOWS = ("tumbling", "hopping", "sliding", "session")
BETWEEN_EVENTS = "between_events"
"""How windows between events are called where Flink's sliding windows are known too."""


def in_streams_words(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a definition of Kafka Streams as the model reads it."""
    window = raw.get("window")
    if isinstance(window, Mapping) and window.get("type") == "sliding":
        window = {**window, "type": BETWEEN_EVENTS}
    emission = raw.get("emission", {})
    emission = {"kind": emission} if isinstance(emission, str) else emission
    return {**raw, "window": window, "emission": emission, "end_of_input": "freeze"}


def foreign_to_streams(raw: Mapping[str, Any]) -> Iterator[Refusal]:
    watermark, window = raw.get("watermark"), raw.get("window")
    if isinstance(watermark, Mapping):
        for name in watermark:
            if (name in Watermark.model_fields and name != "partitions") or name in _FOREIGN_WATERMARK:
                hint = _FOREIGN_WATERMARK.get(name, _NONE)
                yield Refusal("does not belong to engine `kafka_streams`", hint, ("watermark", name))
        if "grace" not in watermark:
            yield Refusal("is missing", "write `grace: 10 min`, or `grace: 0`", ("watermark", "grace"))
    if isinstance(window, Mapping):
        if window.get("type") not in (*_STREAMS_WINDOWS, BETWEEN_EVENTS):
            what = "Kafka Streams has no such windows" if window.get("type") else "is missing"
            yield Refusal(what, f"write one of {', '.join(_STREAMS_WINDOWS)}", ("window", "type"))
        elif window.get("type") == "sliding" and "time_difference" not in window:
            hint = "Kafka Streams' sliding windows lie between events: write `time_difference`; or `type: hopping`"
            yield Refusal("is missing", hint, ("window", "time_difference"))
        for name in window:
            if name in _FOREIGN_WINDOW:
                yield Refusal("does not belong to engine `kafka_streams`", _FOREIGN_WINDOW[name], ("window", name))
    filters = raw.get("filter")
    if isinstance(filters, Mapping) and filters.get("after_watermark") is not None:
        hint = "a filter of Kafka Streams is before the aggregation, and so before stream time: `before_watermark`"
        yield Refusal("does not belong to engine `kafka_streams`", hint, ("filter", "after_watermark"))
    if raw.get("deduplicate") is not None:
        hint = "Kafka Streams has no operator for it, and what a processor of your own drops is not in the topic: name "
        hint += "the topic behind it as the history"
        yield Refusal("is not replayed for engine `kafka_streams`", hint, ("deduplicate",))
    if raw.get("output_mode") is not None:
        yield Refusal(
            "does not belong to engine `kafka_streams`", "Kafka Streams calls it `emission`", ("output_mode",)
        )
    if raw.get("allowed_lateness"):
        yield Refusal("does not belong to engine `kafka_streams`", _GRACE, ("allowed_lateness",))
    if raw.get("panes", "last") != "last":
        hint = "a window has one row, the last that came out; leave it out"
        yield Refusal("does not belong to engine `kafka_streams`", hint, ("panes",))
    if raw.get("end_of_input", "freeze") != "freeze":
        hint = "Kafka Streams has no end of input: what is open stays open; leave it out"
        yield Refusal("does not belong to engine `kafka_streams`", hint, ("end_of_input",))


def of_streams_alone(raw: Mapping[str, Any]) -> Iterator[Refusal]:
    what = "belongs to engine `kafka_streams`"
    watermark, window = raw.get("watermark"), raw.get("window")
    for name, here in _ONLY_STREAMS.items():
        if isinstance(watermark, Mapping) and name in watermark:
            hint = f"write `engine: kafka_streams`{f'; Flink calls it `{here}`' if here else ''}"
            yield Refusal(what, hint, ("watermark", name))
    if isinstance(window, Mapping) and window.get("type") in ("hopping", BETWEEN_EVENTS):
        here = "; Flink calls it `sliding`" if window["type"] == "hopping" else ""
        yield Refusal(what, f"write `engine: kafka_streams`{here}", ("window", "type"))
    if raw.get("emission") is not None:
        yield Refusal(what, "write `engine: kafka_streams`, or leave it out", ("emission",))


def streams_windows_of(window: Window) -> StreamsWindows:
    """The windows of a Kafka Streams application. Raises TypeError for other engines' windows."""
    match window:
        case TumblingWindow(size=size):
            return HoppingWindows(size, size)
        case HoppingWindow(size=size, advance=advance):
            return HoppingWindows(size, advance)
        case BetweenEventsWindow(time_difference=difference):
            return BetweenEvents(difference)
        case SessionWindow():
            return Sessions(window.fixed_gap)
        case _:
            raise TypeError(f"Kafka Streams has no windows of type {window.type}")


def short_retention(watermark: StreamsWatermark, window: Window) -> Refusal | None:
    """Why a retention is refused; None: it is long enough."""
    retention, shortest = watermark.retention, streams_windows_of(window).least_retention + watermark.grace
    if retention is None or retention >= shortest:
        return None
    what = f"`{format_duration(retention)}` is shorter than these windows and the grace need"
    return Refusal(
        what, f"write `{format_duration(shortest)}` or more, as Kafka Streams demands", ("watermark", "retention")
    )
