"""A table that the live job looks each record up in, before it aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from spark_jobs.definition.fields import Expression, Refusal, Section, Text


def _columns_with_expressions(value: Any) -> Any:
    """A name or a list of names stands for columns that are named alike in the records."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return {name: name for name in value}
    return value


class Lookup(Section):
    """Rows of an Iceberg table, joined to the records by equality; a record without a row has nulls.

    Their columns can be used in keys, aggregates and filters, and hide columns of the record that are named alike.
    """

    table: Text = Field(description="The Iceberg table, with its catalog.", examples=["lake.ref.shops"])
    on: Annotated[
        dict[Text, Expression],
        Field(min_length=1),
        BeforeValidator(_columns_with_expressions),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {"type": "array", "items": {"type": "string"}, "minItems": 1},
                    {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1},
                ]
            }
        ),
    ] = Field(
        description="The table's key: a column that the records have too, a list of them, or each column with an "
        "expression over the records.",
        examples=["shop_id", {"shop_id": "payload.shop"}],
    )
    as_of: Literal["run", "event_time"] = Field(
        description="run: the rows that the table has when the run is planned, one for each key. event_time: the row "
        "that was valid at the record's event time.",
        examples=["run"],
    )
    valid_from: Text | None = Field(
        default=None, description="The column from which on a row is valid (event_time).", examples=["valid_from"]
    )
    valid_to: Text | None = Field(
        default=None,
        description="The column before which it is valid; null: it still is (event_time).",
        examples=["valid_to"],
    )

    @field_validator("valid_from", "valid_to")
    @classmethod
    def _with_versions(cls, column: str | None, info: ValidationInfo) -> str | None:
        as_of = info.data.get("as_of")
        if as_of == "event_time" and column is None:
            raise Refusal("is missing", f"name the column, like `{info.field_name}: {info.field_name}`")
        if as_of == "run" and column is not None:
            raise Refusal("belongs to `as_of: event_time`", "leave it out")
        return column

    @field_validator("on")
    @classmethod
    def _not_the_versions(cls, on: Mapping[str, str]) -> Mapping[str, str]:
        lowered = [name.lower() for name in on]
        if len(set(lowered)) < len(lowered):
            raise Refusal("names a column twice", "name each once")
        return on
