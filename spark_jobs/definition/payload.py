"""A record's contents: how its value is decoded, its event time, and the filters that leave records out."""

from __future__ import annotations

import json
import os
import re
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from spark_jobs.definition.environment import refuse_variable
from spark_jobs.definition.fields import LATEST, Expression, Instant, Refusal, Section, Text, as_written, shown


class Reader(StrEnum):
    """Whose rules decide what a value of another type than its field's becomes."""

    FLINK = "flink"
    SPARK = "spark"


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST = re.compile(r"[\w.:%-]+")


def refuse_address(url: str) -> None:
    """Raise Refusal for what is no web address without credentials."""
    hint = "write one like `https://registry.example:8081`"
    try:
        parts = urlsplit(url)
        has_place = bool(_HOST.fullmatch(parts.hostname or "")) and (parts.port or 1) > 0
    except ValueError:
        raise Refusal("is not a web address", hint) from None
    if "@" in parts.netloc:
        # It holds a password: it is not shown.
        raise Refusal("holds credentials", "write them into an environment variable, and its name under `auth`")
    if parts.scheme not in ("http", "https") or not has_place or parts.query or parts.fragment:
        raise Refusal(f"{shown(url)} is not a web address", hint)


def sends_in_clear(url: str) -> bool:
    """Whether what is sent to a web address can be read on its way: by plain HTTP to another machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1")


class RegistryAccess(Section):
    """How a schema registry is asked: the environment variables that hold the credentials."""

    basic: Text | None = Field(
        default=None,
        description="The environment variable that holds `user:password`.",
        examples=["REGISTRY_USER_INFO"],
    )
    bearer: Text | None = Field(
        default=None, description="The environment variable that holds a token.", examples=["REGISTRY_TOKEN"]
    )

    @field_validator("basic", "bearer")
    @classmethod
    def _names_a_variable(cls, variable: str | None, info: ValidationInfo) -> str | None:
        if variable is None:
            return None
        if not _VARIABLE.fullmatch(variable):
            # The value may be the secret itself: it is not shown.
            raise Refusal("does not name an environment variable", "write the variable's name only")
        refuse_variable(variable, os.environ, is_shown=False)
        if info.data.get("basic") is not None:
            raise Refusal("is there beside `basic`", "keep one of the two")
        return variable


class Registry(Section):
    """A schema registry that speaks Confluent's REST protocol."""

    url: Text = Field(
        description="The registry's address, without credentials.",
        examples=["https://registry.example:8081", "${REGISTRY:-http://localhost:8081}"],
    )
    subject: Text = Field(
        description="The subject of the values; by Confluent's default `<topic>-value`.", examples=["flights-value"]
    )
    version: Annotated[int, Field(ge=1)] | Literal["latest"] = Field(
        default="latest",
        description="The version of the subject whose fields the records get, whichever version wrote them. A `schema` "
        "beside the registry takes its place.",
        examples=["latest", 3],
    )
    auth: RegistryAccess | None = Field(
        default=None,
        description="Credentials, by the names of environment variables. Left out: none.",
        examples=["{basic: REGISTRY_USER_INFO}"],
    )

    @field_validator("url")
    @classmethod
    def _is_an_address(cls, url: str, info: ValidationInfo) -> str:
        if "${" in url and not (info.context or {}).get("from_yaml"):
            return url  # as written, in what the ledger keeps of a definition
        refuse_address(url)
        return url.rstrip("/")

    @field_validator("auth")
    @classmethod
    def _credentials_are_encrypted(cls, auth: RegistryAccess | None, info: ValidationInfo) -> RegistryAccess | None:
        if auth is not None and sends_in_clear(info.data.get("url", "")):
            raise Refusal("would send credentials in clear", "write an address that begins with `https://`")
        return auth


_ENCODED = ("json", "json_schema", "csv", "avro")


class Envelope(Section):
    """An envelope of change records, as Debezium writes one for each change of a row of a database."""

    kind: Literal["debezium"] = Field(
        description="debezium: the row `after` the change gives the record's fields; `op`, `ts_ms` and `source` are "
        "there beside them."
    )
    deletes: Literal["drop", "keep", "quarantine"] = Field(
        default="drop",
        description="A delete (`op` is d), which has no row after it: drop it before the watermark sees it, keep it "
        "with the row `before` it, or quarantine it.",
    )
    schema_include: bool = Field(
        default=False,
        description="json: whether each value has its schema too (the converter's schemas.enable), as "
        '{"schema": ..., "payload": ...}.',
    )


def _read_envelope(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


EnvelopeField = Annotated[
    Envelope | None,
    BeforeValidator(_read_envelope, json_schema_input_type=Literal["debezium"] | Envelope | None),
]


class Value(Section):
    """How a record's value becomes columns."""

    format: Literal["columns", "json", "json_schema", "csv", "avro", "text"] = Field(
        default="columns",
        description="columns: the history's own columns are the payload. json, csv, avro: one column holds the encoded "
        "fields. json_schema: JSON behind Confluent's framing. text: one column is the payload, as the field `value`.",
    )
    registry: Registry | None = Field(
        default=None,
        description="avro, json_schema: the schema registry, where the schema that wrote a record is found by the id "
        "in Confluent's framing.",
        examples=["{url: 'https://registry.example:8081', subject: flights-value}"],
    )
    reader: Reader | None = Field(
        default=None,
        description="json, csv: whose rules hold for a value of another type than its field's. flink: text with a "
        "number is one, else the record goes to quarantine. spark: the value is null, and the record counts. Left "
        "out: those of the live job's `engine` (flink for kafka_streams).",
        examples=["flink"],
    )
    column: Text | None = Field(
        default=None,
        description="The column that holds the text or bytes; left out for Kafka, where it is the record's value.",
        examples=["value"],
    )
    schema_file: Text | None = Field(
        default=None,
        description="File with the schema, in place of `schema`; a relative path starts at the project's folder.",
        examples=["schemas/flight.avsc"],
    )
    ddl: Text | None = Field(
        default=None,
        alias="schema",
        description="Fields to decode: as Spark DDL for json and csv (fields not named are not read; of an `envelope` "
        "those of the row), for avro the writer's schema as Avro JSON, beside a `registry` that which all "
        "records are read by.",
        examples=["sched_dep STRING, distance BIGINT"],
    )
    framing: Literal["none", "confluent"] = Field(
        default="none",
        description="avro: confluent, if each value begins with a zero byte and the four of a schema's id. With a "
        "`registry`, each does.",
    )

    schema_id: int | None = Field(
        default=None,
        ge=0,
        lt=1 << 32,
        description="avro with framing `confluent`: the id that the registry gives to `schema`. Records with another "
        "id go to quarantine. Left out, all records must have one id, and nobody checks that it is the schema's.",
        examples=[7],
    )

    envelope: EnvelopeField = Field(
        default=None,
        description="Records are changes of rows in an envelope: debezium, or a section with what is done with "
        "deletes. Left out: they are not.",
        examples=["debezium", "{kind: debezium, deletes: keep}"],
    )

    @field_validator("registry")
    @classmethod
    def _registries_are_of_framed_values(cls, registry: Registry | None, info: ValidationInfo) -> Registry | None:
        if registry is not None and info.data.get("format", "avro") not in ("avro", "json_schema"):
            raise Refusal("is for the formats `avro` and `json_schema`", "leave it out, or correct `format`")
        return registry

    @field_validator("column", "ddl")
    @classmethod
    def _text_needs_both(cls, value: str | None, info: ValidationInfo) -> str | None:
        value_format = info.data.get("format")
        name = "schema" if info.field_name == "ddl" else "column"
        example = "value" if name == "column" else "sched_dep STRING, distance BIGINT"
        if value_format == "avro" and name == "schema":
            example = '{"type": "record", ...}` in quotes, or `schema_file: flight.avsc'
        needed = _ENCODED if name == "schema" else (*_ENCODED, "text")
        if name == "schema" and value_format == "avro" and info.data.get("registry", "refused") is not None:
            needed = ()
        if value is None and value_format in needed:
            raise Refusal(f"is missing: format `{value_format}` needs it", f"write `{name}: {example}`")
        if value is not None and value_format == "columns" and name == "column":
            hint = "leave it out, or write `format: json` or `format: csv`"
            raise Refusal("has no meaning for format `columns`", hint)
        if value is not None and value_format == "text" and name == "schema":
            raise Refusal("has no meaning for format `text`", "leave it out: the field is `value`")
        if value is not None and value_format == "avro" and name == "schema":
            _refuse_unless_avro_record(value)
            registry = info.data.get("registry")
            if registry is not None and registry.version != "latest":
                raise Refusal("is there beside `registry.version`", "keep one of the two: it says the fields")
        return value

    @property
    def is_framed(self) -> bool:
        """Whether each value begins with Confluent's framing."""
        return self.framing == "confluent" or self.format == "json_schema" or self.registry is not None

    @field_validator("framing")
    @classmethod
    def _frames_are_avro(cls, framing: str, info: ValidationInfo) -> str:
        if framing != "none" and info.data.get("format", "avro") not in ("avro", "json_schema"):
            raise Refusal("is for format `avro`", "leave it out, or write `format: json_schema`")
        return framing

    @field_validator("schema_id")
    @classmethod
    def _ids_are_in_frames(cls, schema_id: int | None, info: ValidationInfo) -> int | None:
        if schema_id is not None and info.data.get("registry") is not None:
            raise Refusal("has no meaning beside `registry`, which knows all ids", "leave it out")
        if schema_id is not None and info.data.get("framing", "confluent") != "confluent":
            raise Refusal("is for values with `framing: confluent`", "leave it out")
        return schema_id

    @field_validator("envelope")
    @classmethod
    def _envelopes_have_fields(cls, envelope: Envelope | None, info: ValidationInfo) -> Envelope | None:
        value_format = info.data.get("format", "json")
        if envelope is not None and value_format in ("csv", "text"):
            raise Refusal(f"is not for format `{value_format}`, which has no rows in it", "leave it out")
        if envelope is not None and envelope.schema_include and value_format == "avro":
            raise Refusal("is for JSON", "leave it out: Avro has its schema elsewhere", ("schema_include",))
        return envelope


def payload_of_topic(section: Any, column: str = "value") -> Any:
    """The section `value` (or `key`) of a topic with its column filled in. Raises Refusal where it is wrong.

    Args:
        section: The section as it is written, or a Value.
        column: The topic's column, `value` or `key`.
    """
    given = section.model_dump(by_alias=True, exclude_none=True) if isinstance(section, Value) else section
    if not isinstance(given, dict):
        return section
    if given.get("format", "columns") == "columns":
        hint = "write `format: json`, `csv`, `avro`, `json_schema` or `text`"
        raise Refusal(f"is missing: a topic's {column}s are bytes", hint, ("format",))
    if given.get("column") not in (None, column):
        raise Refusal(
            f"a topic has its {'payload' if column == 'value' else 'keys'} in `{column}`", "leave it out", ("column",)
        )
    return {**given, "column": column}


def _refuse_unless_avro_record(text: str) -> None:
    hint = 'write Avro JSON: {"type": "record", "name": "flight", "fields": [...]}'
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise Refusal(f"not JSON: {error}", hint) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise Refusal("not the schema of an Avro record", hint)


class EventTime(Section):
    """A record's event time, and what happens to a record without a usable one."""

    expression: Expression = Field(description="SQL expression over the payload's columns.", examples=["sched_dep"])
    unit: Literal["timestamp", "s", "ms", "us", "iso"] = Field(
        default="timestamp",
        description="What the expression gives: a timestamp, an integer of seconds, ms or µs since 1970, or ISO-8601 "
        "text with a date and a clear zone: `Z`, an offset, `UTC` or a name such as `Europe/Berlin` (other text has no "
        "event time; `IST`, `CST`, `EST` each stand for several zones).",
    )
    missing: Literal["fail", "drop", "quarantine"] = Field(
        default="fail",
        description="A record without event time: fail the run (as Flink does), drop it before the watermark "
        "generator sees it, or put it into quarantine.",
    )
    earliest: Instant = Field(
        default=as_written("1970-01-01T00:00:00Z"),
        description="Event times before this instant are absurd and go to quarantine.",
        examples=["1970-01-01T00:00:00Z"],
    )
    latest: Annotated[Instant, LATEST] = Field(
        default=as_written("2100-01-01T00:00:00Z"),
        description="Event times at or after this instant are absurd and go to quarantine.",
        examples=["2100-01-01T00:00:00Z"],
    )


class Filter(Section):
    """Records that are left out; the watermark generator sees those that `after_watermark` rejects."""

    before_watermark: Expression | None = Field(
        default=None,
        description="SQL condition; a record it rejects never reaches the watermark generator, and is no activity.",
        examples=["distance > 0"],
    )
    after_watermark: Expression | None = Field(
        default=None,
        description="SQL condition; a record it rejects has moved the watermark, but enters no window and is not late.",
        examples=["carrier <> 'XX'"],
    )
