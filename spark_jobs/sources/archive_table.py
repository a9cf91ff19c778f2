"""A Hive table that keeps a topic's records with their positions: what `rewindow archive` writes and a stitch reads.

Each run of the archive adds one partition, `batch`, whose parameters in the metastore say which offsets it holds.
Readers see a batch when the metastore has its partition, all of it at once or nothing.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.errors import CatalogError, SourceError
from spark_jobs.spark.failures import reading, short
from spark_jobs.spark.java import java_reason

COLUMNS = (
    "`partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, timestamp_type INT, `key` BINARY, `value` BINARY, "
    "headers ARRAY<STRUCT<`key`: STRING, `value`: BINARY>>"
)
_MARK = "rewindow.archive"
_STARTS, _ENDS, _TOPIC_ID = "rewindow.start_offsets", "rewindow.end_offsets", "rewindow.topic_id"
_FOLDER = re.compile(r"batch=(\d+)-[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Batch:
    """The offsets `[start, end)` by partition that one run of the archive has added."""

    number: int
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    topic_id: str
    location: str


class ArchiveTable:
    """An archive as the metastore has it at one moment."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self._spark = spark
        self.name = name
        state = spark._jsparkSession.sessionState()
        self._catalog: JavaObject = state.catalog()
        self._identifier: JavaObject = state.sqlParser().parseTableIdentifier(name)
        self.batches = self._read_batches()

    @classmethod
    def find(cls, spark: SparkSession, name: str) -> ArchiveTable | None:
        """The archive of this name; None where the table is none (a view, another layout)."""
        try:
            with reading(name):
                state = spark._jsparkSession.sessionState()
                identifier = state.sqlParser().parseTableIdentifier(name)
                metadata = state.catalog().getTableMetadata(identifier)
                if not metadata.properties().contains(_MARK):
                    return None
                return cls(spark, name)
        except (Py4JJavaError, PySparkException):
            return None

    @classmethod
    def make(cls, spark: SparkSession, name: str) -> ArchiveTable:
        """The archive of this name, made where it is missing. Raises SourceError for a table of another layout."""
        try:
            with reading(name):
                database, _, _ = name.rpartition(".")
                if database:
                    spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
                spark.sql(
                    f"CREATE TABLE IF NOT EXISTS {name} ({COLUMNS}) PARTITIONED BY (batch STRING) STORED AS PARQUET "
                    f"TBLPROPERTIES ('{_MARK}' = '1')"
                )
        except (Py4JJavaError, PySparkException) as error:
            raise CatalogError(f"cannot make the table: {short(java_reason(error))}", name) from error
        found = cls.find(spark, name)
        if found is None:
            raise SourceError(
                "the table is there already and is no archive of Rewindow's",
                name,
                "Name another table under history.past.table; a stitch can read only one of the two.",
            )
        return found

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
        """The topic that the last batch came from; None before the first."""
        return self.batches[-1].topic_id if self.batches else None

    def new_location(self) -> tuple[int, str]:
        """Number and folder of the next batch; the folder is nobody else's."""
        number = self.batches[-1].number + 1 if self.batches else 0
        return number, f"{self._root()}/batch={number:06}-{secrets.token_hex(4)}"

    def add(self, batch: Batch) -> None:
        """Make the files in the batch's folder part of the table, in one step of the metastore.

        Raises CatalogError where another run has added a batch of this number meanwhile.
        """
        jvm = self._spark._jvm
        metadata = self._catalog.getTableMetadata(self._identifier)
        storage = metadata.storage()
        uri = jvm.java.net.URI(batch.location)
        own = storage.copy(
            jvm.scala.Option.apply(uri),
            storage.inputFormat(),
            storage.outputFormat(),
            storage.serde(),
            storage.compressed(),
            storage.properties(),
        )
        parameters = {_STARTS: _packed(batch.starts), _ENDS: _packed(batch.ends), _TOPIC_ID: batch.topic_id}
        package = jvm.org.apache.spark.sql.catalyst.catalog
        now = jvm.java.lang.System.currentTimeMillis()
        partition = package.CatalogTablePartition(
            self._scala_map({"batch": f"{batch.number:06}"}),
            own,
            self._scala_map(parameters),
            now,
            -1,
            jvm.scala.Option.empty(),
        )
        many = jvm.PythonUtils.toSeq(jvm.java.util.List.of(partition))
        try:
            self._catalog.createPartitions(self._identifier, many, False)
        except (Py4JJavaError, PySparkException) as error:
            raise CatalogError(
                f"the batch cannot be added: {short(java_reason(error))}",
                self.name,
                "Another archive run may have been faster. Run again: what is archived is not archived twice.",
            ) from error
        self._spark.catalog.refreshTable(self.name)
        self.batches = self._read_batches()

    def remove_abandoned(self) -> None:
        """Delete the folders of killed runs: those whose number has been given to another one."""
        used = {batch.location.rstrip("/").rpartition("/")[2] for batch in self.batches}
        last = self.batches[-1].number if self.batches else -1
        jvm = self._spark._jvm
        root = jvm.org.apache.hadoop.fs.Path(self._root())
        system = root.getFileSystem(self._spark._jsparkSession.sessionState().newHadoopConf())
        for status in system.listStatus(root):
            name = status.getPath().getName()
            found = _FOLDER.fullmatch(name)
            if found and int(found[1]) <= last and name not in used:
                system.delete(status.getPath(), True)

    def rows(self) -> DataFrame:
        """All archived records."""
        return self._spark.table(self.name)

    def _root(self) -> str:
        location = self._catalog.getTableMetadata(self._identifier).storage().locationUri().get()
        return location.toString().rstrip("/")

    def _read_batches(self) -> tuple[Batch, ...]:
        listed = self._catalog.listPartitions(self._identifier, self._spark._jvm.scala.Option.empty())
        found = [_batch(listed.apply(index)) for index in range(listed.size())]
        return tuple(sorted(found, key=lambda batch: batch.number))

    def _scala_map(self, content: Mapping[str, str]) -> Any:
        java_map = self._spark._jvm.java.util.HashMap()
        for key, value in content.items():
            java_map.put(key, value)
        return self._spark._jvm.PythonUtils.toScalaMap(java_map)


def _batch(partition: JavaObject) -> Batch:
    parameters = partition.parameters()
    return Batch(
        number=int(partition.spec().apply("batch")),
        starts=_unpacked(parameters.apply(_STARTS)),
        ends=_unpacked(parameters.apply(_ENDS)),
        topic_id=parameters.apply(_TOPIC_ID),
        location=partition.storage().locationUri().get().toString(),
    )


def _packed(offsets: Mapping[int, int]) -> str:
    return json.dumps({str(partition): offset for partition, offset in sorted(offsets.items())})


def _unpacked(text: str) -> dict[int, int]:
    return {int(partition): offset for partition, offset in json.loads(text).items()}
