"""Where emitted rows lie: files, a table (Hive or Iceberg), or a Kafka topic, opened as one frame."""

from __future__ import annotations

from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.comparison.emitted_topic import offsets_shown, pin_rows, read_rows
from spark_jobs.definition import Pipeline
from spark_jobs.definition.live import EmittedSource, TableEmitted, TopicEmitted
from spark_jobs.definition.yaml_tree import FieldPath, dotted
from spark_jobs.errors import SourceError
from spark_jobs.spark.failures import plain_path, reading, short


@dataclass(frozen=True)
class OpenRows:
    """Rows as they lie there; those of a topic with the columns of `spark_jobs.comparison.emitted_topic`.

    `notes` say what a topic no longer holds.
    """

    frame: DataFrame
    description: str
    is_topic: bool = False
    notes: tuple[str, ...] = ()


def open_rows(
    spark: SparkSession, source: EmittedSource, pipeline: Pipeline, path: FieldPath = ("live", "source")
) -> OpenRows:
    """The rows that `source`, at `path` of the definition, names. Raises SourceError; reads no row."""
    if isinstance(source, TopicEmitted):
        pinned, notes = pin_rows(spark, source, path, is_upsert=_is_upsert(pipeline, path))
        frame = read_rows(spark, source, pinned, pipeline, path)
        return OpenRows(frame, f"{_name(source)}, up to {offsets_shown(pinned)}", True, notes)
    where = pipeline.source_of(path) or _name(source)
    try:
        with reading(_name(source)):
            if isinstance(source, TableEmitted):
                # Another application may have added partitions or files since this session last looked.
                spark.catalog.refreshTable(source.table)
                return OpenRows(spark.table(source.table), _name(source))
            reader = spark.read.options(**source.options)
            if source.ddl is not None:
                reader = reader.schema(source.ddl)
            return OpenRows(reader.format(source.format).load(list(source.path)), _name(source))
    except (AnalysisException, Py4JJavaError, PySparkException) as error:
        what = f"the emitted windows cannot be read: {short(str(error))}"
        raise SourceError(what, where, f"Correct {dotted(path)}.") from error


def _is_upsert(pipeline: Pipeline, path: FieldPath) -> bool:
    return path == ("live", "source") and pipeline.live is not None and pipeline.live.mode == "upsert"


def _name(source: EmittedSource) -> str:
    """The place, for people."""
    if isinstance(source, TopicEmitted):
        return f"Kafka topic {source.topic} at {source.servers}"
    if isinstance(source, TableEmitted):
        return f"table {source.table}"
    return ", ".join(plain_path(path) for path in source.path)
