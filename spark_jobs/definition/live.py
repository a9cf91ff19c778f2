"""The live job: the windows that it emitted, the evidence of how it decided, and when it lagged or was restarted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StrictInt, ValidationInfo, WithJsonSchema, field_validator

from spark_jobs.definition.fields import (
    END,
    KNOWN_ZONE,
    Duration,
    Expression,
    Instant,
    PositiveDuration,
    Refusal,
    Section,
    Text,
    Texts,
    as_written,
)
from spark_jobs.definition.kafka import TopicAccess
from spark_jobs.definition.payload import Value, payload_of_topic

TimeUnit = Literal["timestamp", "s", "ms", "us", "iso"]


class FilesEmitted(Section):
    """Emitted rows in Parquet, ORC, Avro container, JSON lines or CSV files."""

    kind: Literal["files"] = Field(description="The kind of source: files.")
    path: Texts = Field(
        description="Path, glob or URI, or a list of them. A relative one starts at the project's folder.",
        examples=["data/emitted/*.parquet"],
    )
    format: Literal["parquet", "orc", "avro", "json", "csv"] = Field(
        description="Format of the files; json means JSON lines, avro container files.", examples=["parquet"]
    )
    ddl: Text | None = Field(
        default=None,
        alias="schema",
        description="Columns as Spark DDL, for json and csv.",
        examples=["key STRING, n BIGINT"],
    )
    options: dict[str, str | int | float | bool] = Field(
        default={}, description="Options for Spark's reader.", examples=[{"header": True}]
    )


class TableEmitted(Section):
    """Emitted rows in a table that Spark knows: Hive, or Iceberg by its catalog."""

    kind: Literal["table"] = Field(description="The kind of source: table.")
    table: Text = Field(
        description="The table as Spark names it: database.table of the metastore, or catalog.namespace.table.",
        examples=["live.departures", "rewindow.live.departures"],
    )


class TopicEmitted(TopicAccess):
    """Emitted rows in a Kafka topic, read once, up to the offsets that it has when the comparison begins.

    Columns are the fields of the decoded value, those of the decoded key, and the topic's own `key`, `value`,
    `headers`, `timestamp`, `partition` and `offset`. Of one name, the value's field comes first; but a record
    without a value has the key's.
    """

    kind: Literal["kafka"] = Field(description="The kind of source: kafka.")
    value: Value = Field(
        description="How a record's value is decoded: format json, csv, avro or text, and its schema.",
        examples=["{format: json, schema: 'key STRING, n BIGINT'}"],
    )
    key: Value = Field(
        default=Value(format="text", column="key"),
        description="How a record's key is decoded; left out, the column `key` is its text.",
        examples=["{format: json, schema: 'carrier STRING, window_start BIGINT'}"],
    )

    @field_validator("value", "key")
    @classmethod
    def _deletes_count(cls, value: Value) -> Value:
        if value.envelope is not None and value.envelope.deletes == "drop":
            hint = "write `envelope: {kind: debezium, deletes: keep}`, and `operation: op` under `live`"
            raise Refusal("would lose deletes, which take windows back", hint, ("envelope",))
        return value

    @field_validator("value", "key", mode="before")
    @classmethod
    def _lies_in_its_column(cls, section: object, info: ValidationInfo) -> object:
        return payload_of_topic(section, info.field_name or "value")


EmittedSource = Annotated[FilesEmitted | TableEmitted | TopicEmitted, Field(discriminator="kind")]


class WindowColumns(Section):
    """The columns with a window's bounds, and their unit."""

    start: Expression | None = Field(
        default=None, description="Column of the window's start.", examples=["window_start"]
    )
    end: Expression | None = Field(default=None, description="Column of the window's end.", examples=["window_end"])
    unit: TimeUnit = Field(
        default="timestamp",
        description="What the bounds are: timestamps, integers of seconds, ms or µs since 1970, or ISO-8601 text.",
    )
    time_zone: Annotated[Text | None, KNOWN_ZONE] = Field(
        default=None,
        description="The time zone of bounds that are local times; left out, bounds are instants (text without zone: "
        "UTC).",
        examples=["America/New_York"],
    )
    inclusive_end: Duration = Field(
        default=as_written("0 s"),
        description="What is added to get the exclusive end, where the job writes a window's last instant.",
        examples=["1 ms", "1 s"],
    )

    @field_validator("end")
    @classmethod
    def _some_bound(cls, end: str | None, info: ValidationInfo) -> str | None:
        if end is None and info.data.get("start", "") is None:
            raise Refusal("is missing, and so is `start`", "name the column of the window's start or of its end")
        return end

    @field_validator("inclusive_end")
    @classmethod
    def _of_an_end(cls, missing: int, info: ValidationInfo) -> int:
        if missing and info.data.get("end", "") is None:
            raise Refusal("there is no `end` to be inclusive", "name the column of the window's end, or leave it out")
        return missing


class Tolerance(Section):
    """How far apart two values of one column may be and still count as equal: one of the two bounds is enough."""

    absolute: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="Largest difference.", examples=[0.01])
    relative: float = Field(default=0.0, ge=0, le=1, description="Largest share of the larger value.", examples=[1e-9])


class LateOutput(Section):
    """The live job's late side output, as evidence of what it dropped."""

    source: EmittedSource = Field(description="Where it lies.", examples=["{kind: table, table: live.late}"])
    partition: Expression = Field(
        default="partition", description="Column of the log partition.", examples=["partition"]
    )
    offset: Expression = Field(default="offset", description="Column of the offset.", examples=["offset"])


class Lag(Section):
    """A time during which the live job was behind: a backlog, a stall."""

    start: Instant = Field(alias="from", description="When it fell behind.", examples=["2013-02-01T10:00:00Z"])
    end: Annotated[Instant, END] = Field(
        alias="to", description="When it had caught up.", examples=["2013-02-01T10:05:00Z"]
    )


def _ascending(instants: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(instants))


Restarts = Annotated[tuple[Instant, ...], AfterValidator(_ascending)]
Columns = Annotated[
    dict[str, Expression],
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "string"}}),
]


class Live(Section):
    """What the live job emitted, and what is known about how it ran."""

    source: EmittedSource = Field(
        description="Where the emitted windows lie.", examples=["{kind: table, table: live.departures}"]
    )
    mode: Literal["append", "upsert", "changelog"] = Field(
        default="append",
        description="append: a row for each firing, the last pane counts. upsert: one row a key and window; in a topic "
        "the last one by position, and a null value retracts. changelog: rows with an operation (+I, -U, +U, -D, or c, "
        "u, d), applied in the order of `order`, in a topic by position.",
    )
    keys: Columns = Field(
        default={},
        description="Column of each key, where it has another name than the key.",
        examples=["{carrier: key}"],
    )
    window: WindowColumns = Field(
        default=WindowColumns(start="window_start", end="window_end"),
        description="The columns of the window's bounds.",
        examples=["{start: window_start}"],
    )
    values: Columns = Field(
        default={},
        description="Column of each aggregate that the job emitted; left out, those with the aggregate's own name.",
        examples=["{flights: count}"],
    )
    tolerance: dict[str, Tolerance] = Field(
        default={}, description="By aggregate: how far values may be apart.", examples=["{distance: {absolute: 0.01}}"]
    )
    pane: Expression | None = Field(
        default=None, description="Column of the pane's number; grows with each firing of a window.", examples=["pane"]
    )
    order: Expression | None = Field(
        default=None,
        description="Column that grows with each row of a window, where there is no pane.",
        examples=["sequence"],
    )
    operation: Expression | None = Field(
        default=None, description="Column of the operation (changelog).", examples=["op"]
    )
    emitted_at: Expression | None = Field(
        default=None,
        description="Column of the time at which the row was emitted; it shows where the job lagged.",
        examples=["emitted_at"],
    )
    emitted_at_unit: TimeUnit = Field(default="timestamp", description="What `emitted_at` holds.")
    last_offsets: Expression | None = Field(
        default=None,
        description="Column with the last offset of each partition in the row's contents, MAP<INT, BIGINT>: evidence "
        "of what was late, exact at any parallelism.",
        examples=["last_offsets"],
    )
    late_output: LateOutput | None = Field(
        default=None,
        description="The job's late side output: evidence where each record has one window (tumbling).",
        examples=["{source: {...}}"],
    )
    interval: Duration | None = Field(
        default=None, description="The job's watermark interval; left out, that of `watermark`.", examples=["200 ms"]
    )
    source_subtasks: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None,
        description="How many source subtasks the job has; left out, as `watermark.subtasks` says, else 1.",
        examples=[4],
    )
    buffer_timeout: Duration = Field(
        default=as_written("100 ms"),
        description="How long records of one subtask may wait in network buffers (several subtasks).",
    )
    margin: Duration = Field(
        default=as_written("10 ms"), description="How far apart the clocks of broker and job may be."
    )
    lag_after: PositiveDuration = Field(
        default=as_written("250 ms"),
        description="A row that is emitted later than its window's close, plus one interval, plus this shows that the "
        "job lagged.",
    )
    lags: tuple[Lag, ...] = Field(
        default=(),
        description="Times at which the job is known to have lagged.",
        examples=[[{"from": "...", "to": "..."}]],
    )
    restarts: Restarts = Field(
        default=(),
        description="When the job was restarted: its watermark began again there, as Flink's does after a restore.",
        examples=[["2013-02-01T10:00:00Z"]],
    )

    @field_validator("operation")
    @classmethod
    def _changelog_needs_operation(cls, operation: str | None, info: ValidationInfo) -> str | None:
        mode = info.data.get("mode")
        if mode == "changelog" and operation is None:
            raise Refusal("is missing: mode `changelog` needs it", "write `operation: op`")
        if mode in ("append", "upsert") and operation is not None:
            raise Refusal(f"has no meaning in mode `{mode}`", "leave it out, or write `mode: changelog`")
        is_ordered = (
            isinstance(info.data.get("source"), TopicEmitted) or info.data.get("pane") or info.data.get("order")
        )
        if mode == "changelog" and not is_ordered:
            raise Refusal("operations need an order to be applied in", "name the column under `order`")
        return operation
