"""The definition of a Kafka Streams application, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StrictInt, ValidationInfo, field_validator, model_validator

from spark_jobs.definition.asked import SESSION, TUMBLING, Asked, Question
from spark_jobs.definition.deployments import LiveField, refuse_words_of_live
from spark_jobs.definition.fields import Duration, Instant, PositiveDuration, Refusal, Section, as_written
from spark_jobs.definition.history import FilesHistory, HiveHistory, TableHistory
from spark_jobs.definition.kafka import KafkaHistory, StitchedHistory
from spark_jobs.definition.payload import Filter
from spark_jobs.definition.pipeline import HISTORY, OF_INPUTS, WATERMARK, WINDOW, Pipeline, PlainPipeline
from spark_jobs.definition.watermark import OneRuleWatermark, Partitions
from spark_jobs.definition.window import (
    BetweenEventsWindow,
    HoppingWindow,
    SessionWindow,
    TumblingWindow,
    Window,
)
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
        """Which of Kafka Streams' three ways of emitting this is."""
        if self.kind == "each_update":
            return Emits.EACH_UPDATE
        return Emits.SUPPRESS if self.strategy == "suppress" else Emits.ON_WINDOW_CLOSE


_ASKED = Asked(
    flags=("grace",),
    windows={**TUMBLING, "hopping": ("size", "advance"), "sliding": ("time_difference",), **SESSION},
    tolerance=Question(
        "grace", "Grace period", "The grace period of the windows: TimeWindows.ofSizeAndGrace(size, grace)."
    ),
    behind_watermark="""\
  # restarts: [{at: 2026-03-01T02:00:00Z}]    # starts of the application: stream time begins anew""",
    behind_window="emission: each_update               # CHECK: the application's own; also: on_close",
)
_GRACE = "Kafka Streams calls it `grace`: write `watermark: {grace: 10 min}`"
_MULTIPLES = "Kafka Streams' windows begin at the multiples of their advance; leave it out"
_BAND = ("interval", "source_subtasks", "buffer_timeout", "margin", "lag_after", "lags")


class KafkaStreamsPipeline(PlainPipeline):
    engine_name: ClassVar[str] = "kafka_streams"
    title: ClassVar[str] = "Kafka Streams"
    asked: ClassVar[Asked] = _ASKED
    decides_by_order_alone: ClassVar[bool] = True
    tolerance: ClassVar[str | None] = "grace"
    elsewhere: ClassVar[Mapping[str, str]] = {
        "watermark": "write `watermark: {grace: 10 min}`, or `grace: 0`",
        "watermark.bound": _GRACE,
        "watermark.lag": _GRACE,
        "watermark.delay": _GRACE,
        "watermark.generator": "Kafka Streams has one rule, stream time: leave it out",
        "watermark.emission": "Kafka Streams' is the field `emission` beside `watermark`: each_update or on_close",
        "watermark.interval": "the emit strategy's is `emission: {kind: on_close, strategy: emit, interval: 1 s}`",
        "window.type": "write one of tumbling, hopping, sliding, session",
        "window.type.cumulative": "write one of tumbling, hopping, sliding, session",
        "window.time_difference": "Kafka Streams' sliding windows lie between events: write `time_difference`; or "
        "`type: hopping`",
        "window.slide": "Kafka Streams calls it `advance`, of `type: hopping`",
        "window.offset": _MULTIPLES,
        "window.time_zone": _MULTIPLES,
        "window.gap_expression": "Kafka Streams' sessions have one `gap`",
        "filter.after_watermark": "a filter of Kafka Streams is before the aggregation, and so before stream time: "
        "`before_watermark`",
        "deduplicate": "Kafka Streams has no operator for it, and what a processor of your own drops is not in the "
        "topic: name the topic behind it as the history",
        "output_mode": "Kafka Streams calls it `emission`",
        "allowed_lateness": _GRACE,
        "panes": "a window has one row, the last that came out; leave it out",
        "end_of_input": "Kafka Streams has no end of input: what is open stays open; leave it out",
        "live.definition": "compare that time with a definition of its own",
        "live.restarts": "write `watermark.restarts`",
        **{f"live.{name}": "a task reads its partition in the order of the log: leave it out" for name in _BAND},
    }

    history: Annotated[
        FilesHistory | HiveHistory | TableHistory | KafkaHistory | StitchedHistory,
        HISTORY,
    ]
    watermark: Annotated[StreamsWatermark, WATERMARK] = OF_INPUTS
    window: Annotated[
        TumblingWindow | HoppingWindow | BetweenEventsWindow | SessionWindow,
        WINDOW,
    ]
    emission: StreamsEmission | None = Field(
        default=None,
        description="When a Kafka Streams application gives a row: each_update, or on_close with its strategy.",
        examples=["each_update", "{kind: on_close, strategy: suppress}"],
    )

    @property
    def row_emission(self) -> StreamsEmission:
        """When the application gives a window's row."""
        assert self.emission is not None  # `_emission_is_a_kind`
        return self.emission

    @field_validator("history", mode="before")
    @classmethod
    def _one_topic(cls, history: Any) -> Any:
        if isinstance(history, Mapping) and history.get("kind") == "union":
            hint = "each topic's own order is in the log, not the order among them"
            raise Refusal("a union of several topics in one task cannot be replayed", hint, ("kind",))
        return history

    @field_validator("window", mode="before")
    @classmethod
    def _sliding_is_between_events(cls, window: Any) -> Any:
        """Flink and Spark have other sliding windows."""
        is_sliding = isinstance(window, Mapping) and window.get("type") == "sliding"
        return {**window, "type": "between_events"} if is_sliding else window

    @field_validator("window")
    @classmethod
    def _begins_at_multiples(cls, window: Any) -> Any:
        for name in ("offset", "time_zone", "gap_expression"):
            if getattr(window, name, None):
                hint = cls.elsewhere[f"window.{name}"]
                raise Refusal("does not belong to engine `kafka_streams`", hint, (name,))
        return window

    @field_validator("filter")
    @classmethod
    def _is_before_the_aggregation(cls, chosen: Filter) -> Filter:
        if chosen.after_watermark is not None:
            hint = cls.elsewhere["filter.after_watermark"]
            raise Refusal("does not belong to engine `kafka_streams`", hint, ("after_watermark",))
        return chosen

    @field_validator("emission", mode="before")
    @classmethod
    def _emission_is_a_kind(cls, emission: Any) -> Any:
        return {"kind": emission or "each_update"} if emission is None or isinstance(emission, str) else emission

    @field_validator("live")
    @classmethod
    def _late_by_the_log(cls, live: LiveField | None) -> LiveField | None:
        return refuse_words_of_live(live, cls.engine_name, cls.elsewhere)

    @model_validator(mode="after")
    def _store_keeps_long_enough(self) -> Self:
        if (refusal := _short_retention(self.watermark, self.window)) is not None:
            raise refusal
        return self


def streams_of(pipeline: Pipeline) -> KafkaStreamsPipeline:
    """The definition as that of an application. Raises TypeError for another engine's."""
    if not isinstance(pipeline, KafkaStreamsPipeline):
        raise TypeError(f"{pipeline.name} is no application of Kafka Streams")
    return pipeline


MODEL = KafkaStreamsPipeline


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


def _short_retention(watermark: StreamsWatermark, window: Window) -> Refusal | None:
    """Why a retention is refused; None: it is long enough."""
    retention, shortest = watermark.retention, streams_windows_of(window).least_retention + watermark.grace
    if retention is None or retention >= shortest:
        return None
    what = f"`{format_duration(retention)}` is shorter than these windows and the grace need"
    return Refusal(
        what, f"write `{format_duration(shortest)}` or more, as Kafka Streams demands", ("watermark", "retention")
    )
