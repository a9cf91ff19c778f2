"""Opens the emitted rows as one frame: from files, a table (Hive or Iceberg) or a Kafka topic."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.comparison.emitted_topic import TopicRows, holding, offsets_shown, pin_rows, placing_of
from spark_jobs.definition import Pipeline
from spark_jobs.definition.live import EmittedSource, Live, TableEmitted, TopicEmitted
from spark_jobs.definition.yaml_tree import FieldPath, dotted
from spark_jobs.errors import SourceError
from spark_jobs.lakehouse.emitted_table import NOTHING, EmittedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.sources.history import named_by
from spark_jobs.sources.records.schemas import pin_schemas
from spark_jobs.spark.failures import plain_path, reading, short
from spark_jobs.spark.gateway import JAVA_ERRORS


@dataclass(frozen=True)
class OpenRows:
    """The rows as stored. Those of a topic have the columns of `spark_jobs.comparison.emitted_topic`.

    `notes` are sentences for the report about records that a topic has already removed.
    """

    frame: DataFrame
    description: str
    notes: tuple[str, ...] = ()
    topic: TopicRows | None = None

    @property
    def ends(self) -> dict[int, int] | None:
        """The offset by partition up to which a topic is read."""
        return None if self.topic is None else self.topic.ends


def open_rows(
    spark: SparkSession, source: EmittedSource, pipeline: Pipeline, path: FieldPath = ("live", "source")
) -> OpenRows:
    """Open the rows of `source`, which is at `path` in the definition. Reads no row yet. Raises SourceError."""
    if isinstance(source, TopicEmitted):
        rows, notes = _open_topic(spark, source, pipeline, path)
        return OpenRows(rows.decoded(), f"{_name(source)}, up to {offsets_shown(rows.pinned)}", notes, rows)
    where = pipeline.source_of(path) or _name(source)
    try:
        with reading(_name(source)):
            if isinstance(source, TableEmitted):
                # Another application may have added partitions or files since this session last read the table.
                spark.catalog.refreshTable(source.table)
                return OpenRows(spark.table(source.table), _name(source))
            reader = spark.read.options(**source.options)
            if source.ddl is not None:
                reader = reader.schema(source.ddl)
            return OpenRows(reader.format(source.format).load(list(source.path)), _name(source))
    except JAVA_ERRORS as error:
        what = f"the emitted windows cannot be read: {short(str(error))}"
        raise SourceError(what, where, f"Correct {dotted(path)}.") from error


def _open_topic(
    spark: SparkSession, source: TopicEmitted, pipeline: Pipeline, path: FieldPath
) -> tuple[TopicRows, tuple[str, ...]]:
    table, kept = None, NOTHING
    if path == ("live", "source"):
        table = EmittedTable(spark, Tables.of(pipeline).emitted, placing_of(source, pipeline))
        kept = table.kept()  # before the topic's ends are asked for: those are later
    pinned, notes = pin_rows(spark, source, path, is_upsert=_is_upsert(pipeline, path), known=kept.coverage)
    schemas = []
    for part in ("key", "value"):
        with named_by(pipeline, *path, part, "registry"):
            schemas.append(pin_schemas(spark, getattr(source, part)))
    rows = TopicRows(
        spark, source, pinned, pipeline, path, table, kept, key_schemas=schemas[0], value_schemas=schemas[1]
    )
    if holding(kept.coverage, pinned.topic_id, rows.ends) != kept.coverage:
        rows = replace(rows, kept=NOTHING, void=kept.coverage)
    return rows, notes


def _is_upsert(pipeline: Pipeline, path: FieldPath) -> bool:
    return path == ("live", "source") and isinstance(pipeline.live, Live) and pipeline.live.mode == "upsert"


def _name(source: EmittedSource) -> str:
    """The name of the source in messages."""
    if isinstance(source, TopicEmitted):
        return f"Kafka topic {source.topic} at {source.servers}"
    if isinstance(source, TableEmitted):
        return f"table {source.table}"
    return ", ".join(plain_path(path) for path in source.path)
