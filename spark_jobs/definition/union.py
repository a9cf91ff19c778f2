"""Several histories as one stream, as a live job's `union` of sources that have a watermark each.

What says how records are read belongs to each input. Records of all inputs have the same keys, and the columns that
the aggregates use. In tables and plans a partition has the number of its input's block plus its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Discriminator, Field, Tag, ValidationInfo, field_validator

from spark_jobs.definition.fields import Refusal, Refusals, Section, shown
from spark_jobs.definition.history import FilesHistory, HiveHistory, TableHistory
from spark_jobs.definition.kafka import HistorySection, KafkaHistory, StitchedHistory, Tombstones
from spark_jobs.definition.names import NamedExpressions, PipelineName
from spark_jobs.definition.payload import EventTime, Filter, Value, payload_of_topic
from spark_jobs.definition.position import Position
from spark_jobs.definition.structured_streaming import QueryInput
from spark_jobs.definition.watermark import Watermark

BLOCK: Final = 10_000
"""So many partition numbers has each input; the numbers of its own partitions are below."""

MAX_INPUTS: Final = 100

OF_INPUTS: Final = "the union's inputs"
"""Stands in a definition's content for a section that each input has."""

T = TypeVar("T")
_OF_EACH = ("value", "keys", "event_time")
InputHistory = Annotated[FilesHistory | HiveHistory | TableHistory | KafkaHistory, Field(discriminator="kind")]


def _tag(value: Any) -> str:
    has_delay = isinstance(value, QueryInput) or (isinstance(value, Mapping) and "delay" in value)
    return QueryInput.__name__ if has_delay else Watermark.__name__


InputWatermark = Annotated[
    Annotated[Watermark, Tag(Watermark.__name__)] | Annotated[QueryInput, Tag(QueryInput.__name__)], Discriminator(_tag)
]


class UnionInput(Section):
    """One input: a history, and the sections that say how its records are read, as at the top of a definition."""

    name: PipelineName = Field(
        description="Its name, in messages and in the reasons of quarantined records.", examples=["orders"]
    )
    history: InputHistory = Field(description="Its history: files, hive, table or kafka.", examples=["{kind: files}"])
    value: Value = Field(
        default=Value(),
        description="How a record's value is decoded.",
        examples=["{format: json, column: value, schema: 'sched_dep STRING'}"],
    )
    columns: NamedExpressions = Field(
        default={},
        description="Columns under the names that the other inputs have them: a name and a SQL expression each.",
        examples=[{"distance": "CAST(miles AS BIGINT)"}],
    )
    keys: NamedExpressions = Field(
        default={},
        description="Key columns, the same names in each input: a name and a SQL expression each.",
        examples=[{"carrier": "key"}],
    )
    event_time: EventTime = Field(
        description="Which time is a record's event time.", examples=["{expression: sched_dep, unit: iso}"]
    )
    watermark: InputWatermark = Field(
        description="The watermark of this input; of engine `spark` its delay.",
        examples=["{generator: bounded_out_of_orderness, bound: 30 min}", "{delay: 10 minutes}"],
    )
    filter: Filter = Field(
        default=Filter(),
        description="before_watermark: records that are left out before the watermark.",
        examples=["{before_watermark: distance > 0}"],
    )

    @field_validator("value", mode="before")
    @classmethod
    def _topics_keep_it_in_value(cls, value: Any, info: ValidationInfo) -> Any:
        return payload_of_topic(value) if isinstance(info.data.get("history"), KafkaHistory) else value

    @field_validator("history")
    @classmethod
    def _orders_by_itself(cls, history: Any) -> Any:
        if history.position.sequence is not None:
            what = "orders the records of one history, and there are several"
            raise Refusal(what, "leave it out", ("position", "sequence"))
        return history

    @field_validator("watermark")
    @classmethod
    def _partitions_fit_their_block(cls, watermark: Watermark | QueryInput) -> Watermark | QueryInput:
        if max(watermark.partitions or (0,)) >= BLOCK:
            raise Refusal(f"an input's partitions have numbers below {BLOCK}", "name others", ("partitions",))
        return watermark

    @field_validator("filter")
    @classmethod
    def _is_before_the_union(cls, rejects: Filter) -> Filter:
        if rejects.after_watermark is not None:
            hint = "write it under the definition's own `filter`"
            raise Refusal("belongs behind the union", hint, ("after_watermark",))
        return rejects


def refuse_different_inputs(inputs: Iterable[UnionInput]) -> None:
    """Raise Refusal where two inputs have one name, other keys, or what a job has once for all of them."""
    first, *others = inputs
    if repeated := [name for name, count in Counter(one.name for one in (first, *others)).items() if count > 1]:
        raise Refusal(f"two inputs have the name {shown(repeated[0])}", "choose another name")
    metastores = sorted({str(one.history.metastore) for one in (first, *others) if one.history.metastore is not None})
    if len(metastores) > 1:
        raise Refusal(f"a run reaches one metastore, and these are {', '.join(metastores)}", "name one of them")
    timed: tuple[str, Watermark] | None = None
    for number, one in enumerate((first, *others)):
        if set(one.keys) != set(first.keys):
            what = f"has not the names of the keys of `{first.name}` ({', '.join(first.keys) or 'none'})"
            raise Refusal(what, "give each input the same keys", (number, "keys"))
        if type(one.watermark) is not type(first.watermark):
            raise Refusal("is of another engine than that of the first input", "write it alike", (number, "watermark"))
        if not isinstance(one.watermark, Watermark) or not isinstance(first.watermark, Watermark):
            continue
        if one.watermark.flink != first.watermark.flink:
            what = f"is another version than that of `{first.name}` ({first.watermark.flink}): one job has one"
            raise Refusal(what, "write it alike", (number, "watermark", "flink"))
        for field in ("interval", "timer_start") if one.watermark.interval else ():
            if timed is not None and getattr(one.watermark, field) != getattr(timed[1], field):
                what = f"is not that of `{timed[0]}`: the sources of one job have one timer"
                raise Refusal(what, "write it alike", (number, "watermark", field))
        if one.watermark.interval and timed is None:
            timed = one.name, one.watermark


class UnionHistory(HistorySection):
    """Several histories as one stream: the watermark is the smallest of the inputs' watermarks."""

    kind: Literal["union"] = Field(description="The kind of history: union.")
    of: tuple[UnionInput, ...] = Field(
        min_length=2,
        max_length=MAX_INPUTS,
        description="The inputs. Each has a history, `event_time`, `watermark`, and `value` and `keys` of its own, "
        "which the definition has not then.",
        examples=["[{name: orders, history: {kind: files, ...}, ...}, {name: returns, ...}]"],
    )

    @field_validator("of")
    @classmethod
    def _belong_to_one_job(cls, inputs: tuple[UnionInput, ...]) -> tuple[UnionInput, ...]:
        refuse_different_inputs(inputs)
        return inputs

    @property
    def position(self) -> Position:
        """What is known of the order: what is known of every input's."""
        positions = [one.history.position for one in self.of]
        missing = {name for position in positions for name in position.missing}
        names = {name: None if name in missing else name for name in ("partition", "offset", "arrival")}
        return Position(
            partition=names["partition"],
            offset=names["offset"] if names["partition"] else None,
            arrival=names["arrival"],
            arrival_kind="producer_time"
            if any(p.arrival_kind == "producer_time" for p in positions)
            else "append_time",
            going_back="running_maximum" if any(p.going_back == "running_maximum" for p in positions) else "refuse",
        )

    @property
    def metastore(self) -> str | None:
        """The first metastore that an input names: a session has one."""
        return next((one.history.metastore for one in self.of if one.history.metastore is not None), None)

    @property
    def tombstones(self) -> Tombstones:
        """What each input does with a record with a null value is done by then."""
        return "quarantine"


History = Annotated[
    FilesHistory | HiveHistory | TableHistory | KafkaHistory | StitchedHistory | UnionHistory,
    Field(discriminator="kind"),
]


def has_union(raw: Mapping[str, Any]) -> bool:
    """Whether the content of a definition has a union for its history."""
    history = raw.get("history")
    return isinstance(history, UnionHistory) or (isinstance(history, Mapping) and history.get("kind") == "union")


def with_sections_of_inputs(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a definition with a union as the model reads it: `OF_INPUTS` for what each input has.

    Raises Refusals for sections that belong to the inputs, and for an engine that has no such union.
    """
    engine = raw.get("engine", "flink")
    if refused := list(_not_of_all(raw, str(engine))):
        raise Refusals(refused)
    read = {**raw, "keys": OF_INPUTS, "event_time": OF_INPUTS}
    return _of_query(read) if engine == "spark" else {**read, "watermark": OF_INPUTS}


def _of_query(raw: dict[str, Any]) -> dict[str, Any]:
    """The same for a Structured Streaming query: the checkpoint is the query's, the delays are the inputs'."""
    history, watermark = raw["history"], raw.get("watermark")
    inputs = history.get("of") if isinstance(history, Mapping) else None
    if isinstance(inputs, list):
        raw = {**raw, "history": {**history, "of": [_dropping(one) for one in inputs]}}
        delays = [one["watermark"]["delay"] for one in inputs if _tag_of(one) == QueryInput.__name__]
        if isinstance(watermark, Mapping) and delays:
            raw = {**raw, "watermark": {**watermark, "delay": delays[0]}}
    return raw


def _tag_of(one: Any) -> str:
    return _tag(one.get("watermark")) if isinstance(one, Mapping) else ""


def _dropping(one: Any) -> Any:
    """Such a record is in no window, and fails nothing."""
    event_time = one.get("event_time") if isinstance(one, Mapping) else None
    return {**one, "event_time": {"missing": "drop", **event_time}} if isinstance(event_time, Mapping) else one


def _not_of_all(raw: Mapping[str, Any], engine: str) -> Iterator[Refusal]:
    for name in (*_OF_EACH, *(() if engine == "spark" else ("watermark",))):
        if name in raw:
            yield Refusal("is that of each input in a union", "write it under `history.of`", (name,))
    watermark = raw.get("watermark")
    for name in ("delay", "source"):
        if engine == "spark" and isinstance(watermark, Mapping) and name in watermark:
            hint = "write it under the `watermark` of each input"
            yield Refusal("is that of each input in a union", hint, ("watermark", name))
    rejects = raw.get("filter")
    if isinstance(rejects, Mapping) and rejects.get("before_watermark") is not None:
        yield Refusal("is that of each input in a union", "write it under `history.of`", ("filter", "before_watermark"))
    for name in ("deduplicate", "lookup"):
        if raw.get(name) is not None:
            yield Refusal("is not replayed behind a union", "leave it out, or define one history", (name,))
    if engine == "kafka_streams":
        hint = "each topic's own order is in the log, not the order among them"
        yield Refusal("a union of several topics in one task cannot be replayed", hint, ("history", "kind"))


def of_input(by_partition: Mapping[int, T], number: int) -> dict[int, T]:
    """What is known by partition, of one input's partitions under their own numbers."""
    first = number * BLOCK
    return {p - first: value for p, value in by_partition.items() if first <= p < first + BLOCK}


def partition_in_words(partition: int, inputs: Sequence[str]) -> str:
    """A partition as people name it: in a union its own number and its input, as `2 of returns`.

    `inputs`: the names of the inputs; none where the history is no union.
    """
    number, own = divmod(partition, BLOCK)
    return f"{own} of {inputs[number]}" if number < len(inputs) else str(partition)


def names_of_inputs(content: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The names of a union's inputs in a definition's content; none where the history is no union."""
    history = (content or {}).get("history")
    inputs = history.get("of") if isinstance(history, Mapping) and history.get("kind") == "union" else None
    return tuple(str(one.get("name")) for one in inputs or () if isinstance(one, Mapping))


def of_union(by_partition: Mapping[int, T], number: int) -> dict[int, T]:
    """The same under the union's numbers."""
    return {number * BLOCK + p: value for p, value in by_partition.items()}
