"""Several histories as one stream, as a live job's `union` of sources that have a watermark each.

What says how records are read belongs to each input. Records of all inputs have the same keys, and the columns that
the aggregates use. In tables and plans a partition has the number of its input's block plus its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationInfo, field_validator

from spark_jobs.definition.fields import Refusal, Section, shown
from spark_jobs.definition.history import FilesHistory, HiveHistory, TableHistory
from spark_jobs.definition.kafka import HistorySection, KafkaHistory, StitchedHistory, Tombstones
from spark_jobs.definition.names import NamedExpressions, PipelineName
from spark_jobs.definition.payload import EventTime, Filter, Value, payload_of_topic
from spark_jobs.definition.position import Position
from spark_jobs.definition.watermark import OneWatermark

BLOCK: Final = 10_000
"""So many partition numbers has each input; the numbers of its own partitions are below."""

MAX_INPUTS: Final = 100

T = TypeVar("T")
InputHistory = Annotated[FilesHistory | HiveHistory | TableHistory | KafkaHistory, Field(discriminator="kind")]


INPUTS: Any = Field(
    min_length=2,
    max_length=MAX_INPUTS,
    description="The inputs. Each has a history, `event_time`, `watermark`, and `value` and `keys` of its own, "
    "which the definition has not then.",
    examples=["[{name: orders, history: {kind: files, ...}, ...}, {name: returns, ...}]"],
)
"""The field `of`, whose inputs are those of an engine."""
WATERMARK: Any = Field(
    description="The watermark of this input; of engine `spark` its delay.",
    examples=["{generator: bounded_out_of_orderness, bound: 30 min}", "{delay: 10 minutes}"],
)


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
    watermark: Annotated[OneWatermark, WATERMARK]
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
    def _partitions_fit_their_block(cls, watermark: OneWatermark) -> OneWatermark:
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
    """Raise Refusal where two inputs have one name, or other keys."""
    first, *others = inputs
    if repeated := [name for name, count in Counter(one.name for one in (first, *others)).items() if count > 1]:
        raise Refusal(f"two inputs have the name {shown(repeated[0])}", "choose another name")
    metastores = sorted({str(one.history.metastore) for one in (first, *others) if one.history.metastore is not None})
    if len(metastores) > 1:
        raise Refusal(f"a run reaches one metastore, and these are {', '.join(metastores)}", "name one of them")
    for number, one in enumerate(others, 1):
        if set(one.keys) != set(first.keys):
            what = f"has not the names of the keys of `{first.name}` ({', '.join(first.keys) or 'none'})"
            raise Refusal(what, "give each input the same keys", (number, "keys"))


class UnionHistory(HistorySection):
    """Several histories as one stream: the watermark is the smallest of the inputs' watermarks."""

    kind: Literal["union"] = Field(description="The kind of history: union.")
    of: Annotated[tuple[UnionInput, ...], INPUTS]

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
    """What one input has by partition, under the numbers that its partitions have in the union."""
    return {number * BLOCK + p: value for p, value in by_partition.items()}
