"""The definition of a Flink job, in Flink's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from spark_jobs.definition import union
from spark_jobs.definition.asked import SESSION, SLIDING, TUMBLING, Asked, Question
from spark_jobs.definition.deduplicate import OF_FLINK, Deduplicate, DeduplicateKind, refuse_kind
from spark_jobs.definition.deployments import LiveField
from spark_jobs.definition.fields import Lateness, Refusal, Refusals, as_written, shown
from spark_jobs.definition.flink_sql import FlinkSql, refuse_other_jobs
from spark_jobs.definition.history import FilesHistory, HiveHistory, TableHistory
from spark_jobs.definition.kafka import KafkaHistory, StitchedHistory
from spark_jobs.definition.live import Live
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.pipeline import HISTORY, OF_INPUTS, WATERMARK, WINDOW, DeduplicateField, PanesField, Pipeline
from spark_jobs.definition.watermark import Watermark
from spark_jobs.definition.window import CumulativeWindow, SessionWindow, SlidingWindow, TumblingWindow

_ASKED = Asked(
    flags=("job", "generator", "bound", "lag", "lateness"),
    windows={**TUMBLING, **SLIDING, "cumulative": ("size", "step"), **SESSION},
    tolerance=Question(
        "bound",
        "Out-of-orderness bound",
        "How far the live job's watermark stays behind the latest event time. Take it from the job: in Flink "
        "forBoundedOutOfOrderness(...), or WATERMARK FOR ts AS ts - INTERVAL ...",
    ),
    generators=("bounded_out_of_orderness", "ascending", "none"),
    has_lateness=True,
    has_sql=True,
    behind_watermark="""\
  emission: per_event               # `periodic` also needs `timer_start`, the phase of the job's timer
  # partitions: [0, 1, 2]           # the registered partitions; left out, those found in the history
  flink: "2.3"                      # in quotes: the version whose rules the job follows""",
    at_end="end_of_input: flush                 # windows still open at the end fire; `freeze` leaves them open, as a "
    "live job does",
)
_ONLY_SPARK = "only Structured Streaming has it"


class UnionInput(union.UnionInput):
    """One input: a history, and the sections that say how its records are read, as at the top of a definition."""

    watermark: Annotated[Watermark, union.WATERMARK]


class UnionHistory(union.UnionHistory):
    """Several histories as one stream: the watermark is the smallest of the inputs' watermarks."""

    of: Annotated[tuple[UnionInput, ...], union.INPUTS]

    @field_validator("of")
    @classmethod
    def _have_one_timer(cls, inputs: tuple[UnionInput, ...]) -> tuple[UnionInput, ...]:
        timed: UnionInput | None = None
        for number, one in enumerate(inputs):
            if one.watermark.flink != inputs[0].watermark.flink:
                first = inputs[0]
                what = f"is another version than that of `{first.name}` ({first.watermark.flink}): one job has one"
                raise Refusal(what, "write it alike", (number, "watermark", "flink"))
            if not one.watermark.interval:
                continue
            timed = timed or one
            for field in ("interval", "timer_start"):
                if getattr(one.watermark, field) != getattr(timed.watermark, field):
                    what = f"is not that of `{timed.name}`: the sources of one job have one timer"
                    raise Refusal(what, "write it alike", (number, "watermark", field))
        return inputs


class FlinkPipeline(Pipeline):
    engine_name: ClassVar[str] = "flink"
    title: ClassVar[str] = "Flink"
    is_default: ClassVar[bool] = True
    asked: ClassVar[Asked] = _ASKED
    elsewhere: ClassVar[Mapping[str, str]] = {
        "watermark.delay": "Flink calls it `bound`, of the generator `bounded_out_of_orderness`",
        "watermark.checkpoint": "only Structured Streaming has one",
        "watermark.allow_multiple": _ONLY_SPARK,
        "watermark.merge_sessions_in_local_partition": _ONLY_SPARK,
        "watermark.gaps": "only Structured Streaming has micro-batches",
        "watermark.trigger": "only Structured Streaming has one",
        "watermark.no_data_batches": "only Structured Streaming has micro-batches",
        "watermark.grace": "Flink calls it `bound`",
        "window.type.hopping": "write `engine: kafka_streams`; Flink calls it `sliding`",
        "window.type.between_events": "write `engine: kafka_streams`",
        "watermark.restarts": "Flink calls it `live.restarts`",
    }

    history: Annotated[
        FilesHistory | HiveHistory | TableHistory | KafkaHistory | StitchedHistory | UnionHistory,
        HISTORY,
    ]
    watermark: Annotated[Watermark, WATERMARK] = OF_INPUTS
    window: Annotated[
        TumblingWindow | SlidingWindow | CumulativeWindow | SessionWindow,
        WINDOW,
    ]
    deduplicate: DeduplicateField = None
    flink_sql: FlinkSql | None = Field(
        default=None,
        description="The live job is a query of Flink SQL; left out: a DataStream job.",
        examples=["{aggregation: auto}"],
    )
    allowed_lateness: Lateness = Field(
        default=as_written("0 s"),
        description="How long after its window's end a late record is still counted.",
        examples=["0 s", "2 h", "forever"],
    )
    panes: PanesField = "last"
    end_of_input: Literal["flush", "freeze"] = Field(
        default="flush",
        description="flush: open windows fire at the end, as of a bounded input. freeze: as the live job stands there.",
    )

    @classmethod
    def watermark_of(cls, mode: Mode | None) -> Any:
        """Nothing is late where every record counts."""
        return {"generator": "none"} if mode is Mode.COMPLETE else None

    @field_validator("flink_sql")
    @classmethod
    def _goes_with_the_job(cls, section: FlinkSql | None, info: ValidationInfo) -> FlinkSql | None:
        window, watermark, history = (info.data.get(name) for name in ("window", "watermark", "history"))
        if section is not None and window is not None and watermark is not None and history is not None:
            refuse_other_jobs(section, window, watermark, history)
        return section

    @field_validator("allowed_lateness")
    @classmethod
    def _lateness_of_the_job(cls, lateness: int, info: ValidationInfo) -> int:
        section = info.data.get("flink_sql")
        is_session = isinstance(info.data.get("window"), SessionWindow)
        if lateness and section is not None and (is_session or section.windows == "table_function"):
            what = "sessions of Flink SQL" if is_session else "window table functions"
            hint = "Flink takes `table.exec.emit.allow-lateness` for other windows with `windows: group_by`: write 0 s"
            raise Refusal(f"does not go with {what}, which drop every late record", hint)
        return lateness

    @field_validator("window")
    @classmethod
    def _gaps_are_fixed(cls, window: Any) -> Any:
        if isinstance(window, SessionWindow) and window.time_zone is not None:
            hint = "write `engine: spark`; Flink's gaps have a fixed length: leave it out"
            raise Refusal("belongs to engine `spark`", hint, ("time_zone",))
        return window

    @field_validator("live")
    @classmethod
    def _deployments_read_the_same_columns(cls, live: LiveField | None, info: ValidationInfo) -> LiveField | None:
        """The records are read once for all deployments."""
        defined = info.data.get("watermark")
        for number, one in enumerate(live if isinstance(live, tuple) else ()):
            for field in ("marker", "stream"):
                expression = getattr(one.definition.watermark, field, None)
                if defined is not None and expression is not None and expression != getattr(defined, field):
                    what = f"{shown(expression)} is not the `{field}` of the definition's watermark"
                    hint = f"the records are read once for all deployments: write `watermark.{field}` alike"
                    raise Refusal(what, hint, (number, "definition", "watermark", field))
        return live

    @field_validator("deduplicate")
    @classmethod
    def _duplicates_of_flink(cls, deduplicate: Deduplicate | None) -> Deduplicate | None:
        return refuse_kind(deduplicate, OF_FLINK, cls.engine_name)

    @model_validator(mode="after")
    def _goes_with_row_time(self) -> Self:
        section = self.deduplicate
        if section is not None and section.kind is DeduplicateKind.ROW_TIME and (found := list(self._beside())):
            raise Refusals(found)
        return self

    @model_validator(mode="after")
    def _restarts_in_one_phase(self) -> Self:
        section = self.flink_sql
        if section is None or not section.is_in_two_phases(self.window) or len(self.watermark.subtasks or ()) < 2:
            return self
        if self._is_restarted:
            hint = "write `aggregation: one_phase`: it is right for records that are not behind their own subtask"
            raise Refusals(
                [Refusal("two phases are not replayed over `live.restarts`", hint, ("flink_sql", "aggregation"))]
            )
        return self

    @property
    def _is_restarted(self) -> bool:
        return any(one.restarts for one in ((self.live,) if isinstance(self.live, Live) else self.live or ()))

    def _beside(self) -> Iterator[Refusal]:
        what = "does not go with `deduplicate` of kind row_time"
        if isinstance(self.window, SessionWindow):
            hint = "before sessions duplicates can be dropped by `kind: processing_time`"
            yield Refusal("cannot be replayed before sessions", hint, ("deduplicate", "kind"))
        if self.allowed_lateness:
            hint = "no record is late for its window behind a deduplication by row time: leave it out"
            yield Refusal(what, hint, ("allowed_lateness",))
        if self.watermark.flink.startswith(("1.", "2.0")):
            hint = "before 2.1 Flink's deduplication by row time gives updates, which no window takes"
            yield Refusal(what, hint, ("watermark", "flink"))
        if self._is_restarted:
            hint = "which records were late there after a restart is not replayed: leave it out, or `live.restarts`"
            yield Refusal("by row time does not go with `live.restarts`", hint, ("deduplicate",))


MODEL = FlinkPipeline
