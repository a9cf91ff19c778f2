"""The table into which `rewindow archive` writes a topic's records, and which a stitched history reads.

Each archive run adds one partition of a Hive table, `batch`. Its parameters in the metastore are the offsets that it
has. Readers see a batch once the metastore has its partition, so they see all of it or nothing.

To an Iceberg table each archive run adds one snapshot. Its properties name the end offsets of the whole table; so
those of the latest such snapshot count, also after other programs have compacted the table.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import CatalogError, SourceError
from spark_jobs.spark.failures import reading, short
from spark_jobs.spark.gateway import (
    JAVA_ERRORS,
    JavaObject,
    hadoop_conf,
    hadoop_path,
    jvm,
    loaded_iceberg_table,
    session_state,
)
from spark_jobs.spark.java import java_reason
from spark_jobs.spark.snapshots import snapshots_back

ARCHIVE_MARK = "rewindow.archive"
"""The property of tables that `rewindow archive` has created."""
START_OFFSETS, END_OFFSETS = "rewindow.start_offsets", "rewindow.end_offsets"
TOPIC_ID, BATCH = "rewindow.topic_id", "rewindow.batch"
COLUMNS = (
    "`partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, timestamp_type INT, `key` BINARY, `value` BINARY, "
    "headers ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
)
"""The columns of an archive, as DDL."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What an archive holds.

    Attributes:
        ends: End offsets by partition, exclusive.
        topic_id: Kafka's id of the topic from which the last batch came; None where there is no batch yet.
        batch: The number of the last batch; None where there is none.
    """

    ends: Mapping[int, int] = field(default_factory=dict)
    topic_id: str | None = None
    batch: int | None = None

    def to_properties(self) -> dict[str, str]:
        """As the properties of a snapshot or a table."""
        return {END_OFFSETS: offsets_to_json(self.ends), TOPIC_ID: self.topic_id or "", BATCH: str(self.batch)}


def archived_in(spark: SparkSession, table: str, snapshot: int | None = None) -> Archived | None:
    """What the Iceberg table holds at a snapshot (None: the current one); None where it is no archive.

    Where the snapshots of the archive runs have expired, the table's own properties tell it.
    """
    try:
        found = loaded_iceberg_table(spark, table)
    except JAVA_ERRORS:
        return None
    properties = found.properties()
    if properties.get(ARCHIVE_MARK) is None:
        return None
    has_expired = False
    for one in snapshots_back(found, snapshot):
        if (summary := one.summary()).get(END_OFFSETS) is not None:
            return _archived(summary)
        has_expired = one.parentId() is not None and found.snapshot(one.parentId()) is None
    return _archived(properties) if has_expired and properties.get(END_OFFSETS) is not None else Archived()


def not_created(name: str, error: Exception, needed: str) -> CatalogError:
    """What is raised where the archive of this name cannot be made; `needed`: what to check beside its name."""
    what = f"cannot create the archive table: {short(java_reason(error))}"
    return CatalogError(what, name, f"Check history.past.table, and that {needed}.")


def not_an_archive(table: str) -> SourceError:
    """The refusal of a table that another program has created."""
    what = "the table exists and was not created by `rewindow archive`"
    return SourceError(what, table, "Name a table that does not exist yet under history.past.table.")


def _archived(properties: Mapping[str, str]) -> Archived:
    ends = offsets_from_json(str(properties.get(END_OFFSETS)))
    return Archived(ends, properties.get(TOPIC_ID) or None, int(str(properties.get(BATCH))))


def offsets_to_json(offsets: Mapping[int, int]) -> str:
    return json.dumps({str(partition): offset for partition, offset in sorted(offsets.items())})


def offsets_from_json(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(text).items()}


_FOLDER = re.compile(r"batch=(\d+)-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Batch:
    """What one archive run added: the offsets `[start, end)` of each partition of the topic.

    Attributes:
        number: Counts the batches from 0.
        starts, ends: Offsets by partition; the ends are exclusive.
        topic_id: Kafka's id of the topic from which the records came.
        location: The folder with the batch's files, as a URI.
    """

    number: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    topic_id: str
    location: str


class ArchiveTable:
    """An archive table with the batches that the metastore had when this object was created."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self.name = name
        state = session_state(spark)
        self._catalog: JavaObject = state.catalog()
        self._identifier: JavaObject = state.sqlParser().parseTableIdentifier(name)
        self.batches = self._read_batches()

    @classmethod
    def find(cls, spark: SparkSession, name: str) -> ArchiveTable | None:
        """The archive of this name; None where there is no such table, or it is not an archive."""
        try:
            with reading(name):
                state = session_state(spark)
                identifier = state.sqlParser().parseTableIdentifier(name)
                metadata = state.catalog().getTableMetadata(identifier)
                if not metadata.properties().contains(ARCHIVE_MARK):
                    return None
                return cls(spark, name)
        except JAVA_ERRORS:
            return None

    @classmethod
    def create(cls, spark: SparkSession, name: str) -> ArchiveTable:
        """The archive of this name, created where it is missing.

        Raises SourceError where a table of this name is not an archive, CatalogError where it cannot be created.
        """
        try:
            with reading(name):
                database, _, _ = name.rpartition(".")
                if database:
                    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
                spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {name} ({COLUMNS}) PARTITIONED BY (batch STRING) STORED AS PARQUET "
                    f"TBLPROPERTIES ('{ARCHIVE_MARK}' = '1')"
                )
        except JAVA_ERRORS as error:
            raise not_created(name, error, "the session may create tables in its database") from error
        found = cls.find(spark, name)
        if found is None:
            raise not_an_archive(name)
        return found

    @property
    def starts(self) -> dict[int, int]:
        """The first offset of each partition."""
        starts: dict[int, int] = {}
        for batch in self.batches:
            for partition, start in batch.starts.items():
                starts[partition] = min(start, starts.get(partition, start))
        return starts

    @property
    def ends(self) -> dict[int, int]:
        """The end offset of each partition."""
        ends: dict[int, int] = {}
        for batch in self.batches:
            for partition, end in batch.ends.items():
                ends[partition] = max(end, ends.get(partition, 0))
        return ends

    @property
    def topic_id(self) -> str | None:
        """Kafka's id of the topic from which the last batch came; None where there is no batch yet."""
        return self.batches[-1].topic_id if self.batches else None

    def append(
        self, rows: DataFrame, starts: Mapping[int, int], ends: Mapping[int, int], topic_id: str
    ) -> tuple[int, int]:
        """Append records as one batch; its number, and how many records it has.

        Raises CatalogError where another run has added a batch with this number; one of `JAVA_ERRORS` where writing
        fails.
        """
        number, location = self.new_location()
        rows.write.mode("error").parquet(location)
        records = self._spark.read.parquet(location).count()
        self.add(Batch(number, starts, ends, topic_id, location))
        self.remove_abandoned()
        return number, records

    def new_location(self) -> tuple[int, str]:
        """The next batch's number, and a new folder for it that no other run uses."""
        number = self.batches[-1].number + 1 if self.batches else 0
        return number, f"{self._root()}/batch={number:06}-{secrets.token_hex(4)}"

    def add(self, batch: Batch) -> None:
        """Add the batch's folder to the table as a partition, in one step of the metastore.

        Raises CatalogError where another run has added a batch with this number in the meantime.
        """
        packages = jvm(self._spark)
        metadata = self._catalog.getTableMetadata(self._identifier)
        storage = metadata.storage()
        uri = packages.java.net.URI(batch.location)
        own = storage.copy(
            packages.scala.Option.apply(uri),
            storage.inputFormat(),
            storage.outputFormat(),
            storage.serde(),
            storage.compressed(),
            storage.properties(),
        )
        parameters = {
            START_OFFSETS: offsets_to_json(batch.starts),
            END_OFFSETS: offsets_to_json(batch.ends),
            TOPIC_ID: batch.topic_id,
        }
        package = packages.org.apache.spark.sql.catalyst.catalog
        now = packages.java.lang.System.currentTimeMillis()
        partition = package.CatalogTablePartition(
            self._scala_map({"batch": f"{batch.number:06}"}),
            own,
            self._scala_map(parameters),
            now,
            -1,
            packages.scala.Option.empty(),
        )
        many = packages.PythonUtils.toSeq(packages.java.util.List.of(partition))
        try:
            self._catalog.createPartitions(self._identifier, many, False)
        except JAVA_ERRORS as error:
            raise CatalogError(
                f"the batch cannot be added: {short(java_reason(error))}",
                self.name,
                "Another archive run may have been faster. Run again: no record is archived twice.",
            ) from error
        self._spark.catalog.refreshTable(self.name)
        self.batches = self._read_batches()

    def remove_abandoned(self) -> None:
        """Delete the folders of killed runs: those whose number another batch of the table has."""
        used = {batch.location.rstrip("/").rpartition("/")[2] for batch in self.batches}
        last = self.batches[-1].number if self.batches else -1
        root = hadoop_path(self._spark, self._root())
        system = root.getFileSystem(hadoop_conf(self._spark))
        for status in system.listStatus(root):
            name = status.getPath().getName()
            found = _FOLDER.fullmatch(name)
            if found and int(found[1]) <= last and name not in used:
                system.delete(status.getPath(), True)

    def rows(self) -> DataFrame:
        """The records of `batches`."""
        last = self.batches[-1].number if self.batches else -1
        return self._spark.table(self.name).where(F.col("batch") <= f"{last:06}").drop("batch")

    def _root(self) -> str:
        location = self._catalog.getTableMetadata(self._identifier).storage().locationUri().get()
        return location.toString().rstrip("/")

    def _read_batches(self) -> tuple[Batch, ...]:
        listed = self._catalog.listPartitions(self._identifier, jvm(self._spark).scala.Option.empty())
        found = [_batch(listed.apply(index)) for index in range(listed.size())]
        return tuple(sorted(found, key=lambda batch: batch.number))

    def _scala_map(self, content: Mapping[str, str]) -> JavaObject:
        java_map = jvm(self._spark).java.util.HashMap()
        for key, value in content.items():
            java_map.put(key, value)
        return jvm(self._spark).PythonUtils.toScalaMap(java_map)


def _batch(partition: JavaObject) -> Batch:
    parameters = partition.parameters()
    return Batch(
        number=int(partition.spec().apply("batch")),
        starts=offsets_from_json(parameters.apply(START_OFFSETS)),
        ends=offsets_from_json(parameters.apply(END_OFFSETS)),
        topic_id=parameters.apply(TOPIC_ID),
        location=partition.storage().locationUri().get().toString(),
    )
