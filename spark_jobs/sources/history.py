"""Open a pipeline's history: find it, refuse what cannot be read, and give one lazy DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.kafka import KafkaHistory, StitchedHistory
from spark_jobs.errors import SourceError
from spark_jobs.sources.decode import parse_schema
from spark_jobs.sources.expressions import expression_type, refuse_schema
from spark_jobs.sources.files import (
    PinnedFile,
    check_pinned,
    check_same_schema,
    file_partitions,
    find_files,
    read_files,
)
from spark_jobs.sources.hive import read_table, table_partitions
from spark_jobs.sources.kafka import pin_topic, read_topic
from spark_jobs.sources.kafka_offsets import PinnedTopic
from spark_jobs.sources.stitched import open_stitched
from spark_jobs.spark.failures import plain_path


@dataclass(frozen=True)
class OpenHistory:
    """A history that can be read.

    `frame` has all its columns, partition columns too; of JSON and CSV files also `rw_raw` (the line) and `rw_reason`
    (why it could not be decoded). `pinned` are the files that `frame` reads, by path; empty for a table. `topic` are
    the offsets that `frame` reads of a topic; None where there is none.
    """

    frame: DataFrame
    pinned: tuple[PinnedFile, ...]
    description: str
    topic: PinnedTopic | None = None


def open_history(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    pinned: Sequence[PinnedFile] | None = None,
    topic: PinnedTopic | None = None,
    as_of: Mapping[int, int] | None = None,
) -> OpenHistory:
    """The history that the definition names, or exactly the `pinned` files or the `topic`'s offsets of a plan.

    Reads footers and asks brokers, but reads no data. `as_of` (end offsets by partition) counts for a topic only:
    other histories are cut by `cut_at`.

    Raises SourceError: no file matches, a truncated Parquet file, mixed schemas, a pinned file that is gone or has
    another size, a missing table, column or topic, an unreachable metastore or broker. Raises HistoryError where
    records of a topic would silently be missing.
    """
    history = pipeline.history
    if isinstance(history, KafkaHistory):
        chosen = pin_topic(spark, history, pinned=topic, registered=pipeline.watermark.partitions, as_of=as_of)
        frame = read_topic(spark, history, chosen, headers=uses_headers(pipeline))
        return OpenHistory(frame, (), f"Kafka topic {history.topic} at {history.servers}", chosen)
    if isinstance(history, StitchedHistory):
        frame, chosen = open_stitched(spark, pipeline, headers=uses_headers(pipeline), pinned=topic, as_of=as_of)
        recent = f"Kafka topic {history.recent.topic} at {history.recent.servers}"
        return OpenHistory(frame, (), f"Hive table {history.past.table}, then {recent}", chosen)
    if isinstance(history, FilesHistory):
        files = _files(spark, history, pinned)
        frame = read_files(spark, history, files, _line_schema(spark, pipeline))
        opened = OpenHistory(frame, files, _describe(history, files))
    else:
        opened = OpenHistory(read_table(spark, history), (), f"Hive table {history.table}")
    _check_columns(opened, pipeline)
    return opened


def uses_headers(pipeline: Pipeline) -> bool:
    """Whether any expression of the definition names `headers`: reading them costs."""
    return "headers" in pipeline.model_dump_json(exclude={"history", "description"})


def reachable(spark: SparkSession, pipeline: Pipeline) -> None:
    """Raises SourceError if the history cannot be opened."""
    open_history(spark, pipeline)


def partition_columns(spark: SparkSession, pipeline: Pipeline) -> tuple[str, ...]:
    """The columns by which the history is partitioned; a filter on them spares reading the rest."""
    history = pipeline.history
    if isinstance(history, KafkaHistory):
        return ()
    if isinstance(history, StitchedHistory):
        return table_partitions(spark, history.past)
    if not isinstance(history, FilesHistory):
        return table_partitions(spark, history)
    return file_partitions(spark, history)


def _files(spark: SparkSession, history: FilesHistory, pinned: Sequence[PinnedFile] | None) -> tuple[PinnedFile, ...]:
    if pinned:
        check_pinned(spark, history, pinned)
        return tuple(sorted(pinned))
    files = find_files(spark, history)
    check_same_schema(spark, history, files)
    return files


def _line_schema(spark: SparkSession, pipeline: Pipeline) -> StructType | None:
    """The schema of JSON or CSV lines, if the definition gives it: `value.schema`, for the format `columns`."""
    if pipeline.value.format != "columns" or pipeline.value.ddl is None or pipeline.history.format == "parquet":
        return None
    try:
        return parse_schema(spark, pipeline.value.ddl)
    except ValueError as error:
        raise refuse_schema(pipeline, error) from error


def _check_columns(opened: OpenHistory, pipeline: Pipeline) -> None:
    """The columns that the definition names must be there, with the types it says."""
    for name in ("partition", "offset", "arrival", "sequence"):
        if (text := getattr(pipeline.history.position, name)) is not None:
            expression_type(opened.frame, text, pipeline, ("history", "position", name))
    value = pipeline.value
    if value.column is not None:
        expression_type(opened.frame, f"`{value.column}`", pipeline, ("value", "column"))
    elif value.ddl is not None:
        _check_types(opened, pipeline)


def _check_types(opened: OpenHistory, pipeline: Pipeline) -> None:
    try:
        said = parse_schema(opened.frame.sparkSession, pipeline.value.ddl)
    except ValueError as error:
        raise refuse_schema(pipeline, error) from error
    for field in said:
        found = expression_type(opened.frame, f"`{field.name}`", pipeline, ("value", "schema"))
        if found.simpleString() != field.dataType.simpleString():
            raise SourceError(
                f"column `{field.name}` is {found.simpleString().upper()}, and the definition says "
                f"{field.dataType.simpleString().upper()}",
                pipeline.source_of(("value", "schema")) or opened.description,
                "Correct value.schema, or convert the column where an expression uses it.",
            )


def _describe(history: FilesHistory, files: Sequence[PinnedFile]) -> str:
    size, unit = float(sum(file.size for file in files)), "bytes"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    paths = ", ".join(plain_path(path) for path in history.path)
    return f"{paths} ({len(files)} file{'s' if len(files) != 1 else ''}, {size:.3g} {unit})"
