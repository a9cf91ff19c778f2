"""The watermark of the live job: its generator, when it emits, idleness, partitions and source subtasks.

The semantics are the golden rules 1 to 15. The definition also fixes what decides results and is not in the log
(registered partitions, source subtasks, the timer's phase, the Flink version), so that every result follows from the
definition and the log alone.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictInt, ValidationInfo, WithJsonSchema, field_validator

from spark_jobs.definition.custom import refuse_no_class
from spark_jobs.definition.fields import (
    Duration,
    Expression,
    Instant,
    PositiveDuration,
    Refusal,
    Refusals,
    Section,
    Text,
    shown,
)
from spark_jobs.eventtime.flink.strategy import WatermarkScope
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, GeneratorSupplier, supplier_of


@dataclass(frozen=True, slots=True)
class Parameters:
    """The fields of `watermark` that one generator needs, and those it may have."""

    needed: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Every parameter the generator takes."""
        return self.needed + self.optional


PARAMETERS: dict[GeneratorKind, Parameters] = {
    GeneratorKind.ASCENDING: Parameters(),
    GeneratorKind.BOUNDED: Parameters(("bound",)),
    GeneratorKind.LAG: Parameters(("lag",)),
    GeneratorKind.AVERAGE_OF_LAST: Parameters(("last", "lag")),
    GeneratorKind.TIME_LAG: Parameters(("lag",)),
    GeneratorKind.PUNCTUATED: Parameters(("marker", "lag")),
    GeneratorKind.ADVANCE_AFTER_WAIT: Parameters(("bound", "wait")),
    GeneratorKind.INTERLEAVED: Parameters(("stream", "bound"), ("streams",)),
    GeneratorKind.CUSTOM: Parameters(("class",), ("parameters",)),
    GeneratorKind.NONE: Parameters(),
}
EXAMPLES = {
    "bound": "30 min",
    "lag": "30 min",
    "last": "10",
    "marker": "is_marker = 1",
    "wait": "1 min",
    "stream": "device",
    "class": "my_module:MyGenerator",
}
"""The value that a message shows for a missing parameter."""


DEFAULT_INTERVAL = 200
"""Flink's `pipeline.auto-watermark-interval`, in ms."""

_DEPENDS_ON_EMISSION: Any = None
_MAX_PARTITIONS = 100_000
_VERSION = re.compile(r"([0-9]+)\.([0-9]+)(\.[0-9]+)?")


def _count_or_ids(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 0 < value <= _MAX_PARTITIONS:
            hint = f"write 1 to {_MAX_PARTITIONS}, or a list of partition ids"
            raise Refusal(f"{shown(value)} is not a count of partitions", hint)
        return tuple(range(value))
    return value


def _refuse_repeated(ids: tuple[Any, ...], what: str) -> None:
    repeated = sorted(item for item, count in Counter(ids).items() if count > 1)
    if repeated:
        raise Refusal(f"{what} {_listed(repeated)} is given twice", "name each once")


def _listed(items: Any) -> str:
    return ", ".join(str(item) for item in items)


PartitionId = Annotated[StrictInt, Field(ge=0, le=2**31 - 1)]
Partitions = Annotated[
    tuple[PartitionId, ...],
    Field(min_length=1),
    BeforeValidator(_count_or_ids),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True},
            ]
        }
    ),
]
Subtasks = tuple[tuple[PartitionId, ...], ...]


class OneWatermark(Section):
    """A live job's watermark, in the words of its engine."""

    if TYPE_CHECKING:
        partitions: tuple[int, ...] | None
        emission: str
        interval: int
        scope: WatermarkScope
        idleness: int | None
        timer_start: int | None
        subtasks: tuple[tuple[int, ...], ...] | None
        custom_class: str | None
        parameters: dict[str, Any]
        discovered: dict[int, int]
        marker: str | None
        stream: str | None

        @property
        def supplier(self) -> GeneratorSupplier: ...
        @property
        def all_idle_emits_maximum(self) -> bool: ...


class OneRuleWatermark(OneWatermark):
    """What Flink's watermark has, and that of an engine with one rule of its own has not."""

    emission: ClassVar[str] = "per_event"
    interval: ClassVar[int] = 0
    scope: ClassVar[WatermarkScope] = WatermarkScope.PARTITION
    idleness: ClassVar[int | None] = None
    timer_start: ClassVar[int | None] = None
    subtasks: ClassVar[tuple[tuple[int, ...], ...] | None] = None
    custom_class: ClassVar[str | None] = None
    parameters: ClassVar[dict[str, Any]] = {}
    discovered: ClassVar[dict[int, int]] = {}
    marker: ClassVar[str | None] = None
    stream: ClassVar[str | None] = None
    all_idle_emits_maximum: ClassVar[bool] = False


class Watermark(OneWatermark):
    """The watermark generator with its parameters, its emission mode, the timer and the partitions."""

    generator: GeneratorKind = Field(
        description="How the watermark follows the records: ascending (max - 1 ms), bounded_out_of_orderness "
        "(max - bound - 1 ms), lag (max - lag), average_of_last (mean of the last N - lag), time_lag (arrival - lag), "
        "punctuated (marker records: time - lag), advance_after_wait (bounded, advances by itself after a quiet wait), "
        "interleaved (minimum over the streams in a partition), custom (a Python class), none (never advances).",
        examples=["bounded_out_of_orderness"],
    )
    emission: Literal["per_event", "periodic"] = Field(
        "per_event", description="per_event: after every record. periodic: at the ticks of a timer, as Flink's own."
    )
    bound: Duration | None = Field(
        None,
        description="Out-of-orderness bound (bounded_out_of_orderness, advance_after_wait, interleaved).",
        examples=["30 min"],
    )
    lag: Duration | None = Field(
        None,
        description="How far the watermark stays behind (lag, average_of_last, time_lag, punctuated).",
        examples=["30 min"],
    )
    last: Annotated[StrictInt, Field(ge=1)] | None = Field(
        None, description="Over how many of the last records average_of_last takes the mean.", examples=[10]
    )
    marker: Expression | None = Field(
        None, description="SQL condition that selects the marker records (punctuated).", examples=["is_marker = 1"]
    )
    wait: Duration | None = Field(
        None,
        description="Quiet time after which the watermark advances by itself (advance_after_wait).",
        examples=["1 min"],
    )
    stream: Expression | None = Field(
        None, description="SQL expression that names a record's logical stream (interleaved).", examples=["device"]
    )
    streams: Annotated[tuple[Text, ...], Field(min_length=1)] | None = Field(
        None,
        description="The streams that must all have been seen before there is a watermark; left out, those seen so far "
        "count (interleaved).",
        examples=[["a", "b"]],
    )
    custom_class: Text | None = Field(
        None,
        alias="class",
        description="module:Class with on_event(timestamp, arrival, output) and on_periodic_emit(now, output); for "
        "speed also on_batch(timestamps, arrivals).",
        examples=["my_module:MyGenerator"],
    )
    parameters: dict[str, Any] = Field(
        {}, description="Arguments for the class's constructor (custom).", examples=[{"bound": 1000}]
    )
    idleness: PositiveDuration | None = Field(
        None,
        description="A partition without records for this long is idle: it does not hold the watermark. Needs a timer.",
        examples=["45 min"],
    )
    interval: Duration = Field(
        _DEPENDS_ON_EMISSION,
        description="Interval of the timer. Default 200 ms for periodic, 0 (no timer) for per_event.",
        examples=["200 ms"],
    )
    scope: WatermarkScope = Field(
        WatermarkScope.PARTITION,
        description="One generator per partition, or one per source subtask, behind the source.",
    )
    subtasks: Annotated[Subtasks, Field(min_length=1)] | None = Field(
        None,
        description="The partitions that each source subtask reads; left out, one subtask reads all. One without "
        "partitions holds the watermark until it is idle.",
        examples=[[[0, 1], [2]]],
    )
    partitions: Partitions | None = Field(
        None,
        description="The partitions the job has registered, a count or a list of ids; one without records holds the "
        "watermark. Left out: those in `subtasks`, else those found in the history.",
        examples=[3, [0, 1, 2]],
    )
    discovered: dict[Annotated[int, Field(ge=0)], Instant] = Field(
        {},
        description="Partitions that were added while the job ran, with the time at which it discovered each. Until "
        "then it does not hold the watermark; what came to it before is read then, and has this time as its arrival.",
        examples=[{3: "2013-02-01T09:05:00Z"}],
    )
    timer_start: Instant | None = Field(
        None,
        description="When the live job's timer started: ticks are at timer_start + k * interval. Needed with a timer.",
        examples=["2013-01-01T10:00:00Z"],
    )
    flink: str = Field(
        "2.3", description="The Flink version whose rules the live job follows.", examples=["2.3", "1.20.3"]
    )

    @field_validator("bound", "lag", "last", "marker", "wait", "stream", "streams", "custom_class", "parameters")
    @classmethod
    def _belongs_to_the_generator(cls, value: Any, info: ValidationInfo) -> Any:
        generator = info.data.get("generator")
        if generator is None:
            return value
        name = "class" if info.field_name == "custom_class" else info.field_name
        takes = PARAMETERS[generator]
        if value is None and name in takes.needed:
            raise Refusal(f"is missing: generator `{generator}` needs it", f"write `{name}: {EXAMPLES[name]}`")
        if value not in (None, {}) and name not in takes.all:
            takers = [kind for kind, parameters in PARAMETERS.items() if name in parameters.all]
            hint = f"`{generator}` takes {_listed(takes.all) or 'no parameters'}"
            raise Refusal(f"does not belong to generator `{generator}`; it is a parameter of {_listed(takers)}", hint)
        return value

    @field_validator("custom_class")
    @classmethod
    def _class_is_named(cls, reference: str | None) -> str | None:
        if reference is not None:
            refuse_no_class(reference)
        return reference

    @field_validator("streams")
    @classmethod
    def _streams_once(cls, streams: tuple[str, ...] | None) -> tuple[str, ...] | None:
        _refuse_repeated(streams or (), "stream")
        return streams

    @field_validator("interval", mode="before")
    @classmethod
    def _effective_interval(cls, interval: Any, info: ValidationInfo) -> Any:
        if interval is not None:
            return interval
        if info.data.get("emission") == "periodic":
            return f"{DEFAULT_INTERVAL} ms"
        waits = info.data.get("generator") == GeneratorKind.ADVANCE_AFTER_WAIT
        if waits or info.data.get("idleness") is not None:
            what = "generator `advance_after_wait` advances by itself" if waits else "idleness is noticed"
            raise Refusal(
                f"is missing: {what} only at the ticks of a timer, and per_event emission has none by default",
                "write `interval: 200 ms` (Flink's default), or `interval: 0` if the live job ran without a timer",
            )
        return "0 s"

    @field_validator("interval")
    @classmethod
    def _periodic_needs_ticks(cls, interval: int, info: ValidationInfo) -> int:
        if interval == 0 and info.data.get("emission") == "periodic":
            raise Refusal("periodic emission with interval 0 never emits", "write `interval: 200 ms` (Flink's default)")
        return interval

    @field_validator("subtasks")
    @classmethod
    def _subtasks_share_nothing(cls, subtasks: Subtasks | None) -> Subtasks | None:
        _refuse_repeated(tuple(partition for subtask in subtasks or () for partition in subtask), "partition")
        if subtasks is not None and not any(subtasks):
            raise Refusal("no subtask reads a partition", "write those that each reads, like `[[0, 1], [2]]`")
        return subtasks

    @field_validator("partitions")
    @classmethod
    def _partitions_are_the_subtasks(cls, partitions: Partitions | None, info: ValidationInfo) -> Partitions | None:
        _refuse_repeated(partitions or (), "partition")
        subtasks = info.data.get("subtasks")
        if subtasks is None:
            return None if partitions is None else tuple(sorted(partitions))
        read = sorted(partition for subtask in subtasks for partition in subtask)
        if partitions is None:
            return tuple(read)
        refusals = []
        if unread := sorted(set(partitions) - set(read)):
            what = f"partition {_listed(unread)} is read by none of the subtasks"
            refusals.append(Refusal(what, "add it to `subtasks`"))
        if unregistered := sorted(set(read) - set(partitions)):
            what = f"partition {_listed(unregistered)} of `subtasks` is not registered"
            refusals.append(Refusal(what, "add it to `partitions`"))
        if refusals:
            raise Refusals(refusals)
        return tuple(sorted(partitions))

    @field_validator("discovered")
    @classmethod
    def _discovered_are_registered(cls, discovered: dict[int, int], info: ValidationInfo) -> dict[int, int]:
        partitions = info.data.get("partitions")
        if unknown := sorted(discovered.keys() - set(partitions or ())):
            raise Refusal(f"partition {_listed(unknown)} is not registered", "write it under `partitions` too")
        return discovered

    @field_validator("timer_start")
    @classmethod
    def _timer_needs_start(cls, timer_start: int | None, info: ValidationInfo) -> int | None:
        may_tick = info.data.get("emission") == "periodic" or info.data.get("idleness") is not None
        ticks = info.data.get("interval", may_tick)
        if ticks and timer_start is None:
            raise Refusal(
                "is missing: with a timer the result depends on when it ticks, which is not to be guessed",
                "write when the live job's source started, like `timer_start: 2013-01-01T10:00:00Z`",
            )
        if not ticks and timer_start is not None:
            raise Refusal("there is no timer to start (interval is 0)", "leave it out, or set `interval`")
        return timer_start

    @field_validator("flink", mode="before")
    @classmethod
    def _flink_version(cls, version: Any) -> Any:
        if isinstance(version, (int, float)) and not isinstance(version, bool):
            hint = 'write it in quotes, like `flink: "2.3"`'
            raise Refusal(f"{shown(version)} is a number, and 1.20 would read as 1.2", hint)
        if isinstance(version, str) and not _VERSION.fullmatch(version.strip()):
            raise Refusal(f"{shown(version)} is not a Flink version", 'write one like "2.3" or "1.20.3"')
        return version.strip() if isinstance(version, str) else version

    @property
    def is_since_2(self) -> bool:
        """Whether the job runs on Flink 2.0 or later."""
        return int(self.flink.split(".")[0]) >= 2

    @property
    def supplier(self) -> GeneratorSupplier:
        """The generator with its parameters (ms)."""
        return supplier_of(
            self.generator,
            bound=self.bound or 0,
            lag=self.lag or 0,
            last=self.last or 1,
            wait=self.wait or 0,
            streams=self.streams or (),
            reference=self.custom_class or "",
            parameters=self.parameters or {},
        )

    @property
    def all_idle_emits_maximum(self) -> bool:
        """Golden rule 13: when all partitions are idle, Flink >= 2.2 emits the largest watermark; older ones do not."""
        major, minor, *_ = self.flink.split(".")
        return (int(major), int(minor)) >= (2, 2)
