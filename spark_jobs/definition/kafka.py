"""Kafka topics: how they are reached, and as a history, alone or stitched to a Hive table with the older records."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from spark_jobs.definition import instants
from spark_jobs.definition.environment import refuse_variable
from spark_jobs.definition.fields import (
    ARRIVAL_LATEST,
    Expression,
    Instant,
    PositiveDuration,
    Refusal,
    Section,
    Text,
    as_written,
    shown,
)
from spark_jobs.definition.position import Position

SECRET = re.compile(r"password|jaas|secret|token|credential|keystore\.key$|api\.?key|user\.?info", re.IGNORECASE)
_OWN_OPTIONS = {
    "bootstrap.servers": "write it under `servers`",
    "isolation.level": "write it under `isolation`",
    "auto.offset.reset": "write it under `start`",
    "enable.auto.commit": "leave it out: a replay commits nothing",
    "group.id": "leave it out: a replay joins no group",
    "key.deserializer": "leave it out: write `key: text` or `key: binary`",
    "value.deserializer": "leave it out: write it under `value.format`",
}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

LogBound = str | int | dict[int, int]
"""Where a read begins or ends: `earliest`/`latest`, an instant in epoch ms, or an offset for each partition."""


def _read_bound(word: str) -> BeforeValidator:
    def read(value: Any, info: ValidationInfo) -> Any:
        hint = f"write `{word}`, a time like `{instants.EXAMPLE}`, or offsets by partition like `{{0: 120, 1: 95}}`"
        from_yaml = bool(info.context and info.context.get("from_yaml"))
        if value == word or (isinstance(value, int) and not isinstance(value, bool) and not from_yaml):
            return value
        if isinstance(value, dict):
            try:
                offsets = {int(partition): int(offset) for partition, offset in value.items()}
            except (TypeError, ValueError):
                raise Refusal("are not offsets by partition", hint) from None
            if not offsets or min(*offsets, *offsets.values(), 0) < 0:
                raise Refusal("are not offsets by partition: there is none, or one is negative", hint)
            return offsets
        try:
            return instants.parse_instant(value if isinstance(value, str) else "")
        except instants.InstantError:
            raise Refusal(f"{shown(value)} is not a position in the log", hint) from None

    return BeforeValidator(read)


def _bound_schema(word: str) -> WithJsonSchema:
    offsets = {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}, "minProperties": 1}
    return WithJsonSchema({"anyOf": [{"const": word}, {"type": "string"}, offsets]})


Acceptance = Literal["lost_start", "holes", "new_partitions", "unreachable_partitions", "recreated_topic", "compacted"]


Tombstones = Literal["quarantine", "drop", "keep"]


class TopicAccess(Section):
    """A Kafka topic that is read between offsets, and how to connect to its brokers."""

    servers: Text = Field(
        description="Brokers to begin with, as Kafka's bootstrap.servers.", examples=["${KAFKA:-localhost:9092}"]
    )
    topic: Text = Field(description="Name of the topic.", examples=["flights"])
    start: Annotated[LogBound, _read_bound("earliest"), _bound_schema("earliest")] = Field(
        default="earliest",
        description="First record to read: earliest, a time with its zone (first record that arrived then or later), "
        "or offsets by partition.",
        examples=["earliest"],
    )
    end: Annotated[LogBound, _read_bound("latest"), _bound_schema("latest")] = Field(
        default="latest",
        description="Where to stop, exclusive: latest (as it is when the plan is made), a time, or offsets by "
        "partition.",
        examples=["latest"],
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        default="read_committed", description="Transactions: leave out what was aborted or is open, or read everything."
    )
    min_partitions: int | None = Field(
        default=None,
        ge=1,
        description="Read in at least so many tasks: one partition of the topic in several.",
        examples=[8],
    )
    read_timeout: PositiveDuration = Field(
        default=as_written("2 min"),
        description="How long a broker may be silent until the run fails.",
        examples=["2 min"],
    )
    options: dict[str, str | int | float | bool] = Field(
        default={},
        description="More of Kafka's consumer configuration, as security.protocol. No secrets: see `secrets`.",
        examples=[{"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}],
    )
    secrets: dict[str, str] = Field(
        default={},
        description="Secret configuration: Kafka's name and the environment variable that holds the value.",
        examples=[{"sasl.jaas.config": "KAFKA_JAAS_CONFIG"}],
    )
    connection: Text | None = Field(
        default=None,
        description="An Airflow connection with more configuration, from the environment variable "
        "AIRFLOW_CONN_<NAME>: login and password, and Kafka's own names in its extra.",
        examples=["kafka_prod"],
    )

    @field_validator("options")
    @classmethod
    def _no_secrets(cls, options: dict[str, Any]) -> dict[str, Any]:
        for name in options:
            if name.lower().removeprefix("kafka.") in _OWN_OPTIONS:
                raise Refusal("is set by Rewindow", _OWN_OPTIONS[name.lower().removeprefix("kafka.")], (name,))
            if SECRET.search(name) and "location" not in name:
                hint = f"write it under `secrets`: `{name}: NAME_OF_AN_ENVIRONMENT_VARIABLE`"
                raise Refusal("is a secret and does not belong in a definition", hint, (name,))
            if name.startswith("kafka."):
                raise Refusal("begins with Spark's prefix", f"write `{name.removeprefix('kafka.')}`", (name,))
        return options

    @field_validator("secrets")
    @classmethod
    def _variables(cls, secrets: dict[str, str]) -> dict[str, str]:
        for name, variable in secrets.items():
            if not _VARIABLE.fullmatch(variable):
                # The value may be the secret itself: it is not shown.
                raise Refusal("does not name an environment variable", "write the variable's name only", (name,))
            try:
                refuse_variable(variable, os.environ, is_shown=False)
            except Refusal as refusal:
                raise Refusal(refusal.what, refusal.hint, (name,)) from None
        return secrets


class Topic(TopicAccess):
    """A topic that the live job reads."""

    key: Literal["text", "binary"] = Field(
        default="text", description="How expressions see the record's key: as UTF-8 text, or as bytes."
    )
    timestamps: Literal["auto", "append_time", "producer_time"] = Field(
        default="auto",
        description="What the records' timestamps are. auto: what the topic is set to (message.timestamp.type). "
        "append_time: the broker's clock; a record with the producer's time is refused. producer_time: the producer's "
        "clock.",
    )
    going_back: Literal["refuse", "running_maximum"] = Field(
        default="refuse",
        description="A timestamp that goes back within a partition: refuse the history, or use the running maximum.",
    )
    tombstones: Tombstones = Field(
        default="quarantine",
        description="A record with a null value: quarantine it, drop it before the watermark sees it, or keep it with "
        "null fields.",
    )
    arrival_earliest: Instant | None = Field(
        default=None,
        description="Records with a timestamp before this instant go to quarantine. Left out: none does.",
        examples=["2015-01-01T00:00:00Z"],
    )
    arrival_latest: Annotated[Instant | None, ARRIVAL_LATEST] = Field(
        default=None,
        description="Records with a timestamp at or after this instant go to quarantine. Left out: none "
        "does; see `quarantine.ahead` for those of a wrong clock.",
        examples=["2100-01-01T00:00:00Z"],
    )
    accept: tuple[Acceptance, ...] = Field(
        default=(),
        description="What is accepted instead of refused, and recorded in the run's fidelity: lost_start (retention "
        "has removed the beginning), holes (records missing inside the range), new_partitions, unreachable_partitions, "
        "recreated_topic (deleted and created again), compacted.",
        examples=[["lost_start"]],
    )

    @field_validator("accept")
    @classmethod
    def _known_once(cls, accept: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(set(accept)))

    @property
    def position(self) -> Position:
        """A record's position, in the columns of Kafka's connector."""
        return Position(
            partition="partition",
            offset="offset",
            arrival="timestamp",
            arrival_kind="producer_time" if self.timestamps == "producer_time" else "append_time",
            going_back=self.going_back,
            arrival_earliest=self.arrival_earliest,
            arrival_latest=self.arrival_latest,
        )


class HistorySection(Section):
    """A history of any kind, and which topic it has."""

    @property
    def has_lines(self) -> bool:
        """Whether it is text, a record in each line."""
        return False

    @property
    def has_columns(self) -> bool:
        """Whether its files are known to be columnar: some columns are read without the others."""
        return False

    @property
    def topic_alone(self) -> Topic | None:
        """The topic that is the whole history."""
        return None

    @property
    def last_topic(self) -> Topic | None:
        """The topic with the newest records."""
        return self.topic_alone

    @property
    def is_stitched(self) -> bool:
        """Whether the older records lie in a table, and the others in a topic."""
        return self.last_topic is not self.topic_alone


class KafkaHistory(Topic, HistorySection):
    """A Kafka topic alone."""

    kind: Literal["kafka"] = Field(description="The kind of history: kafka.")

    @property
    def topic_alone(self) -> Topic:
        return self

    @property
    def metastore(self) -> None:
        """A topic needs no Hive metastore."""
        return None


def check_folder(table: str, *, is_delta: bool) -> None:
    """Raise Refusal for a folder in the place of a table's name: a Delta table alone has one, and it is absolute."""
    if "/" not in table:
        return
    if not is_delta:
        raise Refusal(f"{shown(table)} is a folder", "write `format: delta`, or name a table", ("table",))
    if not table.startswith("/") and "://" not in table:
        hint = "write an absolute path or an address, as s3a://lake/flights"
        raise Refusal(f"{shown(table)} is a relative path", hint, ("table",))


class PastTable(Section):
    """The table with the older part of the log: that of `rewindow archive`, or one whose columns are mapped."""

    table: Text = Field(
        description="A Hive table with its database, or an Iceberg table with its catalog and namespace; with `format: "
        "delta`, a Delta table of the metastore, or its folder as an absolute path or address.",
        examples=["raw.flights", "lake.raw.flights", "s3a://lake/flights"],
    )
    format: Literal["delta"] | None = Field(
        default=None, description="delta for a Delta table; left out, a Hive or an Iceberg table.", examples=["delta"]
    )
    metastore: Text | None = Field(
        default=None,
        description="The metastore's URI; left out, the Spark session's own.",
        examples=["thrift://metastore.example:9083"],
    )
    position: Position = Field(
        default=Position(partition="partition", offset="offset", arrival="timestamp"),
        description="The columns with a record's position in the log. Left out: those of `rewindow archive`.",
        examples=["{partition: partition, offset: offset, arrival: timestamp}"],
    )
    columns: dict[str, Expression] = Field(
        default={},
        description="The table's columns for the topic's: `value` (the undecoded value), `key`, or the fields of "
        "`value.schema` where the table holds them decoded; a name and a SQL expression over the table's columns each.",
        examples=[{"sched_dep": "departure_time", "distance": "CAST(miles AS BIGINT)"}],
    )

    @property
    def lake_format(self) -> Literal["iceberg", "delta"] | None:
        """The format of a table whose snapshots can be pinned; None: it is a Hive table."""
        if self.format is not None:
            return self.format
        in_catalog = self.table.count(".") > 1 and not self.table.startswith("spark_catalog.")
        return "iceberg" if in_catalog else None

    @model_validator(mode="after")
    def _is_where_its_format_is(self) -> Self:
        check_folder(self.table, is_delta=self.format == "delta")
        return self

    @field_validator("position")
    @classmethod
    def _in_log_order(cls, position: Position) -> Position:
        missing = [name for name in ("partition", "offset", "arrival") if getattr(position, name) is None]
        if missing:
            hint = "name the columns with the topic's partition, offset and timestamp; `rewindow archive` writes them"
            raise Refusal(f"has no {', '.join(missing)}, so the table cannot be cut at an offset", hint)
        return position


class StitchedHistory(HistorySection):
    """A Hive, Iceberg or Delta table up to its last offset of each partition, and the topic from the next one on."""

    kind: Literal["stitched"] = Field(description="The kind of history: stitched.")
    past: PastTable = Field(description="The table.", examples=["{table: raw.flights}"])
    recent: Topic = Field(description="The topic.", examples=["{servers: localhost:9092, topic: flights}"])

    @property
    def last_topic(self) -> Topic:
        return self.recent

    @property
    def position(self) -> Position:
        """A record's position, as the topic names it."""
        recent, past = self.recent.position, self.past.position
        kinds = {recent.arrival_kind, past.arrival_kind}
        back = {recent.going_back, past.going_back}
        return recent.model_copy(
            update={
                "arrival_kind": "producer_time" if "producer_time" in kinds else "append_time",
                "going_back": "running_maximum" if "running_maximum" in back else "refuse",
            }
        )

    @property
    def metastore(self) -> str | None:
        """The metastore of the past."""
        return self.past.metastore

    @property
    def tombstones(self) -> Tombstones:
        """What happens to a record with a null value, in the table and in the topic."""
        return self.recent.tombstones

    @field_validator("recent")
    @classmethod
    def _begins_where_the_past_ends(cls, recent: Topic) -> Topic:
        if recent.start != "earliest":
            raise Refusal("has no meaning here: the topic is read from the table's end", "leave it out", ("start",))
        return recent
