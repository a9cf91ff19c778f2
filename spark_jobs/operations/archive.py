"""`rewindow archive`: append a topic's new records to the Iceberg table of a stitched history, each exactly once.

Each run adds one snapshot, with the records and their offsets; the next run begins at their end. The run writes to a
branch of its own; then one commit brings the table to that branch, if nobody has moved it meanwhile: so of two runs
with the same offsets one is refused, and of a killed run there is everything or nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import PastTable
from spark_jobs.errors import CatalogError, DefinitionError, SourceError
from spark_jobs.lakehouse.commits import fast_forward, heads_of, retried
from spark_jobs.lakehouse.tables import Tables, create_tables
from spark_jobs.pins import OffsetRange
from spark_jobs.runs.planning.kept_batches import keep_batches
from spark_jobs.sources.history import stitched_history
from spark_jobs.sources.kafka.topic import pin_topic, read_log
from spark_jobs.sources.lake.archive_table import (
    ARCHIVE_MARK,
    COLUMNS,
    START_OFFSETS,
    Archived,
    archived_in,
    offsets_to_json,
)
from spark_jobs.spark.failures import read_error, short
from spark_jobs.spark.gateway import JAVA_ERRORS, loaded_iceberg_table
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

    def sentence(self) -> str:
        """What was appended, for people."""
        if self.batch is None:
            return f"nothing new: {self.table} holds all of the topic"
        return f"{self.records:,} records appended to {self.table} as batch {self.batch}"


def archived(spark: SparkSession, pipeline: Pipeline) -> str:
    """Archive what is new: of the topic, or of a query's checkpoint. Says what that was.

    Raises what `archive` raises; SourceError and CatalogError for a checkpoint.
    """
    if pipeline.history.is_stitched:
        return archive(spark, pipeline).sentence()
    tables = Tables.of(pipeline)
    create_tables(spark, tables)
    return f"{keep_batches(spark, pipeline):,} files of the checkpoint kept in {tables.checkpoint}"


def archive(
    spark: SparkSession, pipeline: Pipeline, *, as_of: Mapping[int, int] | None = None, dry_run: bool = False
) -> ArchiveResult:
    """Append the topic's records from the table's end offsets up to the topic's own, or up to `as_of`.

    Args:
        as_of: End offsets by partition, in place of the topic's own.
        dry_run: Only find the new offsets; write no record.

    Raises:
        DefinitionError: The history is not `stitched`, or its table is no Iceberg table.
        HistoryError: Records between the table and the topic are gone.
        SourceError: The table or the topic cannot be read.
        CatalogError: The table cannot be written.
    """
    history = stitched_history(pipeline)
    table = _opened(spark, pipeline, history.past, dry_run=dry_run)
    ends, topic_id = (table.ends, table.topic_id) if table is not None else ({}, None)
    pinned = pin_topic(spark, history.recent, as_of=as_of, past=ends, past_topic_id=topic_id)
    new = tuple(chosen for chosen in pinned.ranges if chosen.end > chosen.start)
    if not new or dry_run or table is None:
        return ArchiveResult(history.past.table, None, new, 0, pinned.notes)
    log = read_log(spark, history.recent, new).withColumnRenamed("timestampType", "timestamp_type")
    try:
        number, records = _append(table, log, new, pinned.topic_id)
    except JAVA_ERRORS as error:
        known = read_error(error, f"topic {history.recent.topic} at {history.recent.servers}")
        raise known or _not_written(table, error) from error
    return ArchiveResult(table.name, number, new, records, pinned.notes)


def _opened(spark: SparkSession, pipeline: Pipeline, past: PastTable, *, dry_run: bool) -> IcebergArchive | None:
    """The archive, created where it is missing; with `dry_run` None then."""
    if past.lake_format != "iceberg":
        raise DefinitionError(
            f"an archive is an Iceberg table, and this is a {(past.lake_format or 'hive').title()} table",
            pipeline.source_of(("history", "past", "table")) or past.table,
            "Name an Iceberg table with its catalog, as `table: lake.raw.flights`; or let the program that writes this "
            "table go on.",
        )
    if dry_run and not spark.catalog.tableExists(past.table):
        return None
    return IcebergArchive.create(spark, past.table)


def _append(table: IcebergArchive, log: DataFrame, new: Sequence[OffsetRange], topic_id: str) -> tuple[int, int]:
    rows = log.select("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    starts = {chosen.partition: chosen.start for chosen in new}
    ends = {chosen.partition: chosen.end for chosen in new}
    return table.append(rows, starts, ends, topic_id)


def _not_written(table: IcebergArchive, error: Exception) -> CatalogError:
    if "No space left on device" in str(error):
        return CatalogError(
            "cannot write: the disk is full", table.name, "Free space and run again: the table is as it was."
        )
    return CatalogError(f"cannot write: {short(java_reason(error))}", table.name, "Run again: the table is as it was.")


_MAIN, _BRANCH = "main", "rewindow_archive_"
_PROPERTIES = {
    "format-version": "2",
    ARCHIVE_MARK: "1",
    # A task reads one partition of the topic in the order of offsets, so each file has a range of them as it is.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    "write.metadata.metrics.column.value": "none",
}


class IcebergArchive:
    """An archive in an Iceberg table, partitioned by the day of arrival."""

    def __init__(self, spark: SparkSession, name: str, holds: Archived) -> None:
        self._spark = spark
        self.name = name
        self._holds = holds

    @classmethod
    def create(cls, spark: SparkSession, name: str) -> IcebergArchive:
        """The archive of this name, created where it is missing.

        Raises SourceError where a table of this name is not an archive, CatalogError where it cannot be created.
        """
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in _PROPERTIES.items())
        try:
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS {name} ({COLUMNS}) USING iceberg PARTITIONED BY (days(`timestamp`)) "
                f"TBLPROPERTIES ({properties})"
            )
        except JAVA_ERRORS as error:
            what = f"cannot create the archive table: {short(java_reason(error))}"
            hint = "Check history.past.table, and that Spark is configured for its catalog (REWINDOW_SPARK_CONF)."
            raise CatalogError(what, name, hint) from error
        holds = archived_in(spark, name)
        if holds is None:
            what = "the table exists and was not created by `rewindow archive`"
            raise SourceError(what, name, "Name a table that does not exist yet under history.past.table.")
        return cls(spark, name, holds)

    @property
    def ends(self) -> Mapping[int, int]:
        """The end offset of each partition."""
        return self._holds.ends

    @property
    def topic_id(self) -> str | None:
        """Kafka's id of the topic from which the last batch came; None where there is no batch yet."""
        return self._holds.topic_id

    def append(
        self, rows: DataFrame, starts: Mapping[int, int], ends: Mapping[int, int], topic_id: str
    ) -> tuple[int, int]:
        """Append records as one snapshot; the number of the batch, and how many records it has.

        Raises CatalogError where another run has appended meanwhile; one of `JAVA_ERRORS` where writing fails.
        """
        batch = 0 if self._holds.batch is None else self._holds.batch + 1
        holds = Archived({**self._holds.ends, **ends}, topic_id, batch)
        base, branch = self._new_branch()
        if archived_in(self._spark, self.name, base) != self._holds:
            raise self._too_late()
        writer = rows.writeTo(f"{self.name}.branch_{branch}")
        for key, value in {**holds.to_properties(), START_OFFSETS: offsets_to_json(starts)}.items():
            writer = writer.option(f"snapshot-property.{key}", value)
        writer.append()
        table = loaded_iceberg_table(self._spark, self.name)
        records = int(table.snapshot(branch).summary().get("added-records") or 0)
        if not fast_forward(self._spark, self.name, {_MAIN: branch}, {_MAIN: base}, holds.to_properties):
            raise self._too_late()
        self._spark.catalog.refreshTable(self.name)
        self._holds = holds
        return batch, records

    def _new_branch(self) -> tuple[int, str]:
        """The table's snapshot, and a new branch there. Branches of killed runs go: those that begin elsewhere."""

        def make() -> tuple[int, str]:
            table = loaded_iceberg_table(self._spark, self.name)
            if table.currentSnapshot() is None:
                table.newFastAppend().commit()  # a branch needs a snapshot to begin at
                table.refresh()
            base = table.currentSnapshot().snapshotId()
            change = table.manageSnapshots()
            for name in heads_of(table):
                if name.startswith(_BRANCH) and not name.startswith(f"{_BRANCH}{base}_"):
                    change = change.removeBranch(name)
            branch = f"{_BRANCH}{base}_{secrets.token_hex(4)}"
            change.createBranch(branch, base).commit()
            return base, branch

        return retried(make)

    def _too_late(self) -> CatalogError:
        return CatalogError(
            "the batch cannot be added: the table has changed meanwhile",
            self.name,
            "Another archive run may have been faster. Run again: no record is archived twice.",
        )
