"""`rewindow archive`: append what is new in a topic to the Hive table that keeps its past, exactly once.

A run writes its files into a folder of its own and then adds them to the table in one step of the metastore, together
with the offsets that they hold; the next run begins there. One that is killed has added all or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import StitchedHistory
from spark_jobs.errors import CatalogError, DefinitionError
from spark_jobs.sources.archive_table import ArchiveTable, Batch
from spark_jobs.sources.kafka import pin_topic, read_log
from spark_jobs.sources.kafka_offsets import OffsetRange
from spark_jobs.spark.failures import read_error, short
from spark_jobs.spark.java import java_reason


@dataclass(frozen=True, slots=True)
class ArchiveResult:
    """What was appended: the ranges of offsets that are new, and how many records they held; `batch` None: nothing."""

    table: str
    batch: int | None
    ranges: tuple[OffsetRange, ...]
    records: int
    notes: tuple[str, ...]


def archive(
    spark: SparkSession, pipeline: Pipeline, *, as_of: Mapping[int, int] | None = None, dry_run: bool = False
) -> ArchiveResult:
    """Append the topic's records from the table's end up to its own (or up to `as_of`).

    Raises DefinitionError unless the history is `stitched`, HistoryError where records between the two are gone,
    SourceError where one of them cannot be read, CatalogError where the table cannot be written.
    """
    history = pipeline.history
    if not isinstance(history, StitchedHistory):
        raise DefinitionError(
            "there is no table to archive into",
            pipeline.source_of(("history",)) or pipeline.name,
            "Write `kind: stitched` with the table under `past` and the topic under `recent`.",
        )
    table = ArchiveTable.make(spark, history.past.table)
    pinned = pin_topic(spark, history.recent, as_of=as_of, past=table.ends, past_topic_id=table.topic_id)
    new = tuple(chosen for chosen in pinned.ranges if chosen.end > chosen.start)
    if not new or dry_run:
        return ArchiveResult(table.name, None, new, 0, pinned.notes)
    number, location = table.new_location()
    log = read_log(spark, history.recent, pinned).withColumnRenamed("timestampType", "timestamp_type")
    rows = log.select("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    try:
        rows.write.mode("error").parquet(location)
        records = spark.read.parquet(location).count()
    except (PySparkException, Py4JJavaError) as error:
        if "No space left on device" in str(error):
            hint = "Free space and run again: nothing was added."
            raise CatalogError("cannot write: the disk is full", table.name, hint) from error
        told = read_error(error, f"topic {history.recent.topic} at {history.recent.servers}")
        raise told or CatalogError(f"cannot write: {short(java_reason(error))}", table.name) from error
    starts = {chosen.partition: chosen.start for chosen in new}
    ends = {chosen.partition: chosen.end for chosen in new}
    table.add(Batch(number, starts, ends, pinned.topic_id, location))
    table.remove_abandoned()
    return ArchiveResult(table.name, number, new, records, pinned.notes)
