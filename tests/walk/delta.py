"""A walk's records in a Delta table. It needs a Spark that was started with Delta (`REWINDOW_PACKAGES`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrameWriter, SparkSession

from tests.walk import plan as s
from tests.walk.definitions import position
from tests.walk.log import Log, Record
from tests.walk.places import LakeTable

_PROPERTIES = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true"}


class DeltaTable(LakeTable):
    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.path = folder / f"{name}_log"
        self.table = f"delta.`{self.path}`"
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")  # for VACUUM at once
        self._writer([], "append").options(**_PROPERTIES).save(str(self.path))  # SQL would want a metastore

    @property
    def history(self) -> str:
        return f"{{kind: table, format: delta, table: {self.path}, {position(self.walk)}}}"

    def snapshot(self) -> int:
        return self.spark.sql(f"DESCRIBE HISTORY {self.table} LIMIT 1").collect()[0]["version"]

    def sql(self, text: str) -> None:
        self.spark.sql(text).collect()

    def append(self, records: Sequence[Record]) -> None:
        self._writer(records, "append").save(str(self.path))

    def _writer(self, records: Sequence[Record], mode: str) -> DataFrameWriter:
        return self.frame(records).write.format("delta").mode(mode)

    def overwrite_parts(self, records: Sequence[Record], log: Log) -> None:
        offsets = {r.offset for r in records}
        whole = [r for r in log.records.values() if r.offset in offsets]
        chosen = f"o IN ({', '.join(map(str, sorted(o for o in offsets if o is not None)))})"
        self._writer(whole, "overwrite").option("replaceWhere", chosen).save(str(self.path))

    def overwrite_all(self, records: Sequence[Record]) -> None:
        self._writer(records, "overwrite").save(str(self.path))

    def replace(self, records: Sequence[Record]) -> None:
        self._writer(records, "overwrite").option("overwriteSchema", "true").save(str(self.path))

    def compact(self) -> None:
        self.sql(f"OPTIMIZE {self.table}")

    def expire(self) -> None:
        self.sql(f"VACUUM {self.table} RETAIN 0 HOURS")

    def roll_back(self, snapshot: int) -> None:
        self.sql(f"RESTORE TABLE {self.table} TO VERSION AS OF {snapshot}")

    def new_column(self, drops: bool) -> None:
        old = f"v_{len(self.spark.table(self.table).columns)}"
        self.sql(f"ALTER TABLE {self.table} {'DROP COLUMN v' if drops else f'RENAME COLUMN v TO {old}'}")
        self.sql(f"ALTER TABLE {self.table} ADD COLUMN v BIGINT")
