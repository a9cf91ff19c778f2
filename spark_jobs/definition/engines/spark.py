"""The definition of a Structured Streaming query, in Spark's words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    StrictBool,
    ValidationInfo,
    field_validator,
    model_validator,
)

from spark_jobs.definition import union
from spark_jobs.definition.asked import SESSION, SLIDING, TUMBLING, Asked, Question
from spark_jobs.definition.deduplicate import OF_SPARK, Deduplicate, refuse_kind
from spark_jobs.definition.delay import Delay
from spark_jobs.definition.deployments import LiveField, refuse_words_of_live
from spark_jobs.definition.fields import PositiveDuration, Refusal, Text
from spark_jobs.definition.flink_sql import FlinkSql
from spark_jobs.definition.history import FilesHistory, HiveHistory, TableHistory
from spark_jobs.definition.kafka import HistorySection, KafkaHistory, StitchedHistory
from spark_jobs.definition.payload import Reader
from spark_jobs.definition.pipeline import HISTORY, OF_INPUTS, WATERMARK, WINDOW, DeduplicateField, PanesField, Pipeline
from spark_jobs.definition.watermark import OneRuleWatermark
from spark_jobs.definition.window import SessionWindow, SlidingWindow, TumblingWindow
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, GeneratorSupplier, supplier_of
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.intervals import IntervalError, parse_interval


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

    @model_validator(mode="after")
    def _batches_are_known(self) -> Self:
        if self.checkpoint is None and self.gaps is Gaps.REFUSE:
            hint = "write `checkpoint: /srv/checkpoints/orders`; where it is lost, `gaps: approximate` and "
            hint += "`trigger: 10 s`"
            raise Refusal("is missing", hint, ("checkpoint",))
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


class UnionInput(union.UnionInput):
    """One input: a history, and the sections that say how its records are read, as at the top of a definition."""

    watermark: Annotated[QueryInput, union.WATERMARK]

    @field_validator("event_time", mode="before")
    @classmethod
    def _drops_without_a_time(cls, section: Any) -> Any:
        return dropping(section)


class UnionHistory(union.UnionHistory):
    """Several histories as one stream: the watermark is the smallest of the inputs' watermarks."""

    of: Annotated[tuple[UnionInput, ...], union.INPUTS]


def dropping(event_time: Any) -> Any:
    """A record without an event time is in no window of a query, and fails nothing."""
    return {"missing": "drop", **event_time} if isinstance(event_time, Mapping) else event_time


_ASKED = Asked(
    flags=("delay", "checkpoint", "trigger"),
    windows={**TUMBLING, **SLIDING, **SESSION},
    tolerance=Question("delay", "Delay of the watermark", "The delay of the query's withWatermark(eventTime, delay)."),
    has_checkpoint=True,
    behind_window="output_mode: append                 # CHECK: the query's own; also: update, complete",
)
_DELAY = "Spark calls it `delay`: write `watermark: {delay: 10 minutes}`"
_BAND = ("interval", "source_subtasks", "buffer_timeout", "margin", "lag_after", "lags")


class SparkPipeline(Pipeline):
    engine_name: ClassVar[str] = "spark"
    title: ClassVar[str] = "Structured Streaming"
    asked: ClassVar[Asked] = _ASKED
    own_reader: ClassVar[Reader] = Reader.SPARK
    records_what_it_read: ClassVar[bool] = True
    counts_microseconds: ClassVar[bool] = True
    takes_ids_without_event_time: ClassVar[bool] = True
    tolerance: ClassVar[str | None] = "delay"
    of_machine: ClassVar[tuple[tuple[str, str], ...]] = (("watermark", "checkpoint"),)
    constants: ClassVar[Mapping[str, Any]] = {"emission": None, "allowed_lateness": 0, "end_of_input": "freeze"}
    elsewhere: ClassVar[Mapping[str, str]] = {
        "watermark": "write `watermark: {delay: 10 minutes, checkpoint: /srv/checkpoints/orders}`",
        "watermark.bound": _DELAY,
        "watermark.lag": _DELAY,
        "watermark.grace": _DELAY,
        "watermark.generator": "Structured Streaming has one rule, the largest event time less the `delay`: leave it "
        "out",
        "watermark.emission": "the watermark moves from one micro-batch to the next, as the checkpoint has it: leave "
        "it out",
        "watermark.interval": "the watermark moves from one micro-batch to the next, as the checkpoint has it: leave "
        "it out",
        "watermark.restarts": "the checkpoint knows the starts of the query: leave it out",
        "watermark.partitions": "the checkpoint knows the partitions: leave it out",
        **dict.fromkeys(
            ("window.type.cumulative", "window.type.hopping", "window.type.between_events"),
            "write one of tumbling, sliding, session",
        ),
        "allowed_lateness": _DELAY,
        "end_of_input": "a query has no end of input: what is open stays open; leave it out",
        "live.definition": "a query with other rules has another checkpoint: compare that time with a definition of "
        "its own",
        "live.restarts": "the checkpoint knows the starts of the query: leave it out",
        **{f"live.{name}": "which records were late follows from the micro-batches: leave it out" for name in _BAND},
    }

    history: Annotated[
        FilesHistory | HiveHistory | TableHistory | KafkaHistory | StitchedHistory | UnionHistory,
        HISTORY,
    ]
    watermark: Annotated[StreamingWatermark, WATERMARK] = OF_INPUTS
    window: Annotated[
        TumblingWindow | SlidingWindow | SessionWindow,
        WINDOW,
    ]
    deduplicate: DeduplicateField = None
    output_mode: OutputMode | None = Field(
        default=None,
        description="Output mode of a Structured Streaming query: append (a row when a window closes), update (a row "
        "for each batch that it took a record in) or complete.",
        examples=["append"],
    )
    panes: PanesField = "last"
    allowed_lateness: ClassVar[int] = 0
    end_of_input: ClassVar[Literal["flush", "freeze"]] = "freeze"
    flink_sql: ClassVar[FlinkSql | None] = None

    @classmethod
    def is_of_inputs(cls, section: str) -> bool:
        return section != "watermark"  # the checkpoint is the query's, the delays are the inputs'

    @classmethod
    def reads_files_itself(cls, history: HistorySection | None) -> bool:
        names = ("partition", "offset", "arrival", "sequence")
        return isinstance(history, FilesHistory) and all(getattr(history.position, name) is None for name in names)

    @property
    def has_files_of_query(self) -> bool:
        return isinstance(self.watermark, StreamingWatermark) and self.reads_files_itself(self.history)

    @field_validator("event_time", mode="before")
    @classmethod
    def _drops_without_a_time(cls, section: Any) -> Any:
        return dropping(section)

    @field_validator("watermark", mode="before")
    @classmethod
    def _delays_are_of_the_inputs(cls, watermark: Any, info: ValidationInfo) -> Any:
        history = info.data.get("history")
        if not isinstance(history, UnionHistory) or not isinstance(watermark, Mapping):
            return watermark
        for name in ("delay", "source"):
            if name in watermark:
                hint = "write it under the `watermark` of each input"
                raise Refusal("is that of each input in a union", hint, (name,))
        return {**watermark, "delay": f"{history.of[0].watermark.delay} ms"}

    @field_validator("window", mode="before")
    @classmethod
    def _months_follow_a_calendar(cls, window: Any) -> Any:
        is_session = isinstance(window, Mapping) and window.get("type") == "session"
        if is_session and window.get("time_zone") is None and _has_months(window.get("gap")):
            hint = "name the query's `spark.sql.session.timeZone` in `window.time_zone`, such as `UTC`"
            raise Refusal("a gap in months or years follows a calendar", hint, ("gap",))
        return window

    @field_validator("window")
    @classmethod
    def _days_are_of_utc(cls, window: Any) -> Any:
        if isinstance(window, TumblingWindow) and window.time_zone is not None:
            hint = "Spark's windows of a day begin at midnight UTC; leave it out"
            raise Refusal("does not belong to engine `spark`", hint, ("time_zone",))
        return window

    @field_validator("output_mode", mode="before")
    @classmethod
    def _appends_by_default(cls, output_mode: Any) -> Any:
        return OutputMode.APPEND if output_mode is None else output_mode

    @field_validator("output_mode")
    @classmethod
    def _sessions_are_not_updated(cls, output_mode: OutputMode, info: ValidationInfo) -> OutputMode:
        if output_mode is OutputMode.UPDATE and isinstance(info.data.get("window"), SessionWindow):
            raise Refusal("Spark refuses sessions in update mode", "write `append` or `complete`")
        return output_mode

    @field_validator("deduplicate", mode="before")
    @classmethod
    def _within_the_watermark_by_default(cls, section: Any) -> Any:
        return {"kind": OF_SPARK[0], **section} if isinstance(section, Mapping) else section

    @field_validator("deduplicate")
    @classmethod
    def _duplicates_of_spark(cls, deduplicate: Deduplicate | None) -> Deduplicate | None:
        return refuse_kind(deduplicate, OF_SPARK, cls.engine_name)

    @field_validator("live")
    @classmethod
    def _late_by_batches(cls, live: LiveField | None) -> LiveField | None:
        return refuse_words_of_live(live, cls.engine_name, cls.elsewhere)

    @model_validator(mode="after")
    def _aggregates_behind_duplicates(self) -> Self:
        if self.deduplicate is not None and not self.watermark.allow_multiple:
            hint = "Spark refuses a deduplication before an aggregation without it: leave it out"
            raise Refusal("does not go with `deduplicate`", hint, ("watermark", "allow_multiple"))
        return self

    def leave_to_inputs(self, content: dict[str, Any]) -> None:
        del content["watermark"]["delay"], content["watermark"]["source"]


def _has_months(gap: Any) -> bool:
    try:
        return bool(parse_interval(str(gap)).months)
    except IntervalError:
        return False


def query_of(pipeline: Pipeline) -> SparkPipeline:
    """The definition as that of a query. Raises TypeError for another engine's."""
    if not isinstance(pipeline, SparkPipeline):
        raise TypeError(f"{pipeline.name} is no Structured Streaming query")
    return pipeline


MODEL = SparkPipeline
