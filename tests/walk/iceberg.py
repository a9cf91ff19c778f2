"""A walk's records in an Iceberg table, in partitions of 25 offsets; rows are deleted without writing files again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.walk import plan as s
from tests.walk.definitions import COLUMNS, NAMESPACE, position
from tests.walk.log import Log, Record
from tests.walk.places import LakeTable

_WIDTH = 25
_PROPERTIES = (
    "'write.delete.mode'='merge-on-read', 'write.distribution-mode'='none', 'write.spark.fanout.enabled'='true'"
)


class IcebergTable(LakeTable):
    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.table = f"rewindow.{NAMESPACE}.{name}_log"
        spark.sql(f"CREATE TABLE {self.table} {self._made}")

    @property
    def _made(self) -> str:
        return f"({COLUMNS}) USING iceberg PARTITIONED BY (truncate(o, {_WIDTH})) TBLPROPERTIES ({_PROPERTIES})"

    @property
    def history(self) -> str:
        return f"{{kind: table, table: {self.table}, {position(self.walk)}}}"

    def snapshot(self) -> int:
        rows = self.spark.sql(f"SELECT snapshot_id FROM {self.table}.refs WHERE name = 'main'").collect()
        return rows[0][0] if rows else 0

    def append(self, records: Sequence[Record]) -> None:
        self._shaped(records).writeTo(self.table).append()

    def _shaped(self, records: Sequence[Record]) -> DataFrame:
        """The records in all columns of the table; those that were renamed are null."""
        frame = self.frame(records)
        old = [c for c in self.spark.table(self.table).columns if c not in frame.columns]
        return frame.withColumns({c: F.lit(None).cast("bigint") for c in old})

    def overwrite_parts(self, records: Sequence[Record], log: Log) -> None:
        parts = {(r.offset or 0) // _WIDTH for r in records}
        whole = [r for r in log.records.values() if r.offset is not None and r.offset // _WIDTH in parts]
        self._shaped(whole).writeTo(self.table).overwritePartitions()

    def overwrite_all(self, records: Sequence[Record]) -> None:
        self._shaped(records).writeTo(self.table).overwrite(F.lit(True))

    def replace(self, records: Sequence[Record]) -> None:
        self.sql(f"CREATE OR REPLACE TABLE {self.table} {self._made}")
        self.append(records)

    def compact(self) -> None:
        options = "map('rewrite-all', 'true')"
        self.sql(f"CALL rewindow.system.rewrite_data_files(table => '{self.table}', options => {options})")

    def expire(self) -> None:
        self.sql(
            f"CALL rewindow.system.expire_snapshots(table => '{self.table}', older_than => now(), retain_last => 1)"
        )

    def roll_back(self, snapshot: int) -> None:
        self.sql(f"CALL rewindow.system.rollback_to_snapshot('{self.table}', {snapshot})")

    def new_column(self, drops: bool) -> None:
        self.sql(f"ALTER TABLE {self.table} {'DROP COLUMN v' if drops else f'RENAME COLUMN v TO v_{self._old}'}")
        self.sql(f"ALTER TABLE {self.table} ADD COLUMN v BIGINT AFTER t")

    @property
    def _old(self) -> int:
        return len(self.spark.table(self.table).columns)

    def fast_forward(self, records: Sequence[Record]) -> None:
        self.sql(f"ALTER TABLE {self.table} CREATE OR REPLACE BRANCH audit")
        self._shaped(records).writeTo(f"{self.table}.branch_audit").append()
        self.sql(f"CALL rewindow.system.fast_forward('{self.table}', 'main', 'audit')")
        self.sql(f"ALTER TABLE {self.table} DROP BRANCH audit")
