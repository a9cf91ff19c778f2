"""Opens the emitted rows as one frame: from files, a table (Hive or Iceberg) or a Kafka topic."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.comparison.emitted_topic import offsets_shown, pin_rows, read_rows
from spark_jobs.definition import Pipeline
from spark_jobs.definition.live import EmittedSource, Live, TableEmitted, TopicEmitted
from spark_jobs.definition.yaml_tree import FieldPath, dotted
from spark_jobs.errors import SourceError
from spark_jobs.spark.failures import plain_path, reading, short
from spark_jobs.spark.gateway import JAVA_ERRORS


@dataclass(frozen=True)
class OpenRows:
    """The rows as stored. Those of a topic have the columns of `spark_jobs.comparison.emitted_topic`.

    `notes` are sentences for the report about records that a topic has already removed. `ends`: the offset by partition
    up to which a topic is read.
    """

    frame: DataFrame
    description: str
    is_topic: bool = False
    notes: tuple[str, ...] = ()
    ends: dict[int, int] | None = None


def open_rows(
    spark: SparkSession, source: EmittedSource, pipeline: Pipeline, path: FieldPath = ("live", "source")
) -> OpenRows:
    """Open the rows of `source`, which is at `path` in the definition. Reads no row yet. Raises SourceError."""
    if isinstance(source, TopicEmitted):
        pinned, notes = pin_rows(spark, source, path, is_upsert=_is_upsert(pipeline, path))
        frame = read_rows(spark, source, pinned, pipeline, path)
        ends = {chosen.partition: chosen.end for chosen in pinned.ranges}
        return OpenRows(frame, f"{_name(source)}, up to {offsets_shown(pinned)}", True, notes, ends)
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


def _is_upsert(pipeline: Pipeline, path: FieldPath) -> bool:
    return path == ("live", "source") and isinstance(pipeline.live, Live) and pipeline.live.mode == "upsert"


def _name(source: EmittedSource) -> str:
    """The name of the source in messages."""
    if isinstance(source, TopicEmitted):
        return f"Kafka topic {source.topic} at {source.servers}"
    if isinstance(source, TableEmitted):
        return f"table {source.table}"
    return ", ".join(plain_path(path) for path in source.path)
