"""`rewindow archive`: append a topic's new records to the Hive table of a stitched history, each exactly once.

A run writes its files into a folder of its own. Then it adds the folder to the table in one step of the metastore,
together with its offsets; the next run begins at their end. A run that is killed has added everything or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError, DefinitionError
from spark_jobs.sources.archive_table import ArchiveTable, Batch
from spark_jobs.sources.history import stitched_history
from spark_jobs.sources.kafka import pin_topic, read_log
from spark_jobs.sources.kafka_offsets import OffsetRange
from spark_jobs.spark.failures import read_error, short
from spark_jobs.spark.gateway import JAVA_ERRORS
from spark_jobs.spark.java import java_reason


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What an archive run has done.

    Attributes:
        batch: The number of the batch that was added; None where nothing was written.
        ranges: The topic's offsets that the table did not have.
        records: How many records were written.
        notes: What is missing and was accepted by the definition.
    """

    table: str
    batch: int | None
    ranges: tuple[OffsetRange, ...]
    records: int
    notes: tuple[str, ...]


def archive(
    spark: SparkSession, pipeline: Pipeline, *, as_of: Mapping[int, int] | None = None, dry_run: bool = False
) -> ArchiveResult:
    """Append the topic's records from the table's end offsets up to the topic's own, or up to `as_of`.

    Args:
        as_of: End offsets by partition, in place of the topic's own.
        dry_run: Only find the new offsets; write no record.

    Raises:
        DefinitionError: The history is not `stitched`, or its table is an Iceberg table.
        HistoryError: Records between the table and the topic are gone.
        SourceError: The table or the topic cannot be read.
        CatalogError: The table cannot be written.
    """
    history = stitched_history(pipeline)
    if history.past.is_iceberg:
        raise DefinitionError(
            "an archive is a Hive table",
            pipeline.source_of(("history", "past", "table")) or history.past.table,
            "Name it with its database alone. An Iceberg table is read as its writer fills it.",
        )
    table = ArchiveTable.create(spark, history.past.table)
    pinned = pin_topic(spark, history.recent, as_of=as_of, past=table.ends, past_topic_id=table.topic_id)
    new = tuple(chosen for chosen in pinned.ranges if chosen.end > chosen.start)
    if not new or dry_run:
        return ArchiveResult(table.name, None, new, 0, pinned.notes)
    number, location = table.new_location()
    log = read_log(spark, history.recent, new).withColumnRenamed("timestampType", "timestamp_type")
    rows = log.select("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    try:
        rows.write.mode("error").parquet(location)
        records = spark.read.parquet(location).count()
    except JAVA_ERRORS as error:
        if "No space left on device" in str(error):
            hint = "Free space and run again: the table is as it was."
            raise CatalogError("cannot write: the disk is full", table.name, hint) from error
        hint = "Run again: the table is as it was."
        not_written = CatalogError(f"cannot write: {short(java_reason(error))}", table.name, hint)
        raise read_error(error, f"topic {history.recent.topic} at {history.recent.servers}") or not_written from error
    starts = {chosen.partition: chosen.start for chosen in new}
    ends = {chosen.partition: chosen.end for chosen in new}
    table.add(Batch(number, starts, ends, pinned.topic_id, location))
    table.remove_abandoned()
    return ArchiveResult(table.name, number, new, records, pinned.notes)
