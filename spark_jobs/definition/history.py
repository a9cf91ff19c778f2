"""The history that a pipeline replays: files, a Hive table, a Kafka topic, or a table and a topic stitched together."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from spark_jobs.definition.fields import Text
from spark_jobs.definition.kafka import HistorySection, KafkaHistory, StitchedHistory, Tombstones
from spark_jobs.definition.position import Position


def _one_or_many(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[
    tuple[Text, ...],
    Field(min_length=1),
    BeforeValidator(_one_or_many),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}),
]


class FilesHistory(HistorySection):
    """Parquet, JSON lines or CSV files, read with Spark."""

    kind: Literal["files"] = Field(description="The kind of history: files.")
    path: Paths = Field(
        description="Path, glob or URI, or a list of them. A relative one starts at the project's folder.",
        examples=["data/flights/*.parquet"],
    )
    format: Literal["parquet", "json", "csv"] = Field(
        description="Format of the files; json means JSON lines.", examples=["parquet"]
    )
    options: dict[str, str | int | float | bool] = Field(
        default={}, description="Options for Spark's reader.", examples=[{"header": True}]
    )
    position: Position = Field(
        default=Position(),
        description="The columns with a record's position in the log.",
        examples=["{partition: partition, offset: offset, arrival: arrival}"],
    )

    @property
    def metastore(self) -> None:
        """Files need no Hive metastore."""
        return None

    @property
    def tombstones(self) -> Tombstones:
        """What happens to a record with a null value."""
        return "quarantine"


class HiveHistory(HistorySection):
    """A Hive table (or view) behind a metastore."""

    kind: Literal["hive"] = Field(description="The kind of history: hive.")
    table: Text = Field(description="The table, with its database.", examples=["raw.flights"])
    metastore: Text | None = Field(
        default=None,
        description="The metastore's URI; left out, the Spark session's own.",
        examples=["thrift://metastore.example:9083"],
    )
    position: Position = Field(
        default=Position(),
        description="The columns with a record's position in the log.",
        examples=["{partition: partition, offset: offset, arrival: arrival}"],
    )

    @property
    def tombstones(self) -> Tombstones:
        """What happens to a record with a null value."""
        return "quarantine"


History = Annotated[FilesHistory | HiveHistory | KafkaHistory | StitchedHistory, Field(discriminator="kind")]
