"""The histories whose records are rows: files, a Hive table, an Iceberg table."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from spark_jobs.definition.fields import Refusals, Text, Texts
from spark_jobs.definition.file_options import option_refusals
from spark_jobs.definition.kafka import HistorySection, Tombstones, check_folder
from spark_jobs.definition.position import Position


class HistoryOfRows(HistorySection):
    """A history whose records are rows of files or of a table."""

    @property
    def tombstones(self) -> Tombstones:
        """What happens to a record with a null value."""
        return "quarantine"


class FilesHistory(HistoryOfRows):
    """Parquet, ORC, Avro container, JSON lines or CSV files, read with Spark."""

    kind: Literal["files"] = Field(description="The kind of history: files.")
    path: Texts = Field(
        description="Path, glob or URI, or a list of them. A relative one starts at the project's folder.",
        examples=["data/flights/*.parquet"],
    )
    format: Literal["parquet", "orc", "avro", "json", "csv"] = Field(
        description="Format of the files; json means JSON lines, avro container files.", examples=["parquet"]
    )
    options: dict[str, str | int | float | bool] = Field(
        default={},
        description="Options for Spark's reader. Those without an effect are refused by name.",
        examples=[{"header": True}],
    )
    position: Position = Field(
        default=Position(),
        description="The columns with a record's position in the log.",
        examples=["{partition: partition, offset: offset, arrival: arrival}"],
    )

    @model_validator(mode="after")
    def _options_have_an_effect(self) -> Self:
        if found := list(option_refusals(self.format, self.options)):
            raise Refusals(found)
        return self

    @property
    def has_lines(self) -> bool:
        """Whether the files are text."""
        return self.format in ("json", "csv")

    @property
    def has_columns(self) -> bool:
        """Whether the files are columnar."""
        return self.format in ("parquet", "orc")

    @property
    def metastore(self) -> None:
        """Files need no Hive metastore."""
        return None


class HiveHistory(HistoryOfRows):
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


PRESETS: dict[str, dict[str, str]] = {
    "redpanda": {
        "partition": "redpanda.partition",
        "offset": "redpanda.offset",
        "arrival": "redpanda.timestamp",
    },
    "kafka_connect": {
        "partition": "_kafka_metadata_partition",
        "offset": "_kafka_metadata_offset",
        "arrival": "_kafka_metadata_timestamp",
        "arrival_unit": "ms",
    },
    "rewindow_archive": {"partition": "partition", "offset": "offset", "arrival": "timestamp"},
}
"""The position columns of tables of known writers: a topic of Redpanda's, Iceberg's own sink for Kafka Connect, and
`rewindow archive`."""


class TableHistory(HistoryOfRows):
    """An Iceberg table in a catalog that the Spark session is configured for, or a Delta table."""

    kind: Literal["table"] = Field(description="The kind of history: table.")
    table: Text = Field(
        description="An Iceberg table with its catalog (`rewindow` is the catalog of Rewindow's own tables); a Delta "
        "table of the metastore with its database, or its folder as an absolute path or address.",
        examples=["lake.raw.flights", "s3a://lake/flights"],
    )
    format: Literal["iceberg", "delta"] | None = Field(
        default=None, description="The table's format. Left out: iceberg.", examples=["delta"]
    )
    preset: Literal["redpanda", "kafka_connect", "rewindow_archive"] | None = Field(
        default=None,
        description="Where the position columns are in tables of a known writer: redpanda (a topic with "
        "redpanda.iceberg.mode), kafka_connect (Iceberg's sink with its transform KafkaMetadataTransform) or "
        "rewindow_archive (an Iceberg table of `rewindow archive`).",
        examples=["redpanda"],
    )
    position: Position = Field(
        default=Position(),
        description="The columns with a record's position in the log. With `preset`: what differs from it.",
        examples=["{partition: partition, offset: offset, arrival: arrival}"],
    )

    @property
    def has_columns(self) -> bool:
        """A lake's files are columnar, but for few."""
        return True

    @model_validator(mode="after")
    def _is_where_its_format_is(self) -> Self:
        check_folder(self.table, is_delta=self.format == "delta")
        return self

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, data: Any) -> Any:
        written = data.get("preset") if isinstance(data, dict) else None
        preset = PRESETS.get(written) if isinstance(written, str) else None
        if preset is None or not isinstance(data.get("position", {}), dict):
            return data
        return data | {"position": preset | data.get("position", {})}

    @property
    def metastore(self) -> None:
        """The session's catalogs need no other metastore."""
        return None
