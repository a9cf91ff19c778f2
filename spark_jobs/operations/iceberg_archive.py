"""The Iceberg table into which `rewindow archive` writes a topic's records, one snapshot for each run.

A run writes to a branch of its own. Then one commit brings the table to that branch, if nobody has moved it meanwhile:
so of two runs with the same offsets one is refused, and of a killed run there is everything or nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.commits import fast_forward, heads_of, retried
from spark_jobs.sources.archived import (
    ARCHIVE_MARK,
    COLUMNS,
    START_OFFSETS,
    Archived,
    archived_in,
    not_an_archive,
    offsets_to_json,
)
from spark_jobs.spark.failures import short
from spark_jobs.spark.gateway import JAVA_ERRORS, loaded_iceberg_table
from spark_jobs.spark.java import java_reason

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
            raise not_an_archive(name)
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
