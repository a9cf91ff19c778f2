"""What an attempt of a run has computed and not yet published: tables of its own, which readers do not look at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_jobs.errors import RunStateError
from spark_jobs.lakehouse.tables import drop_table, ensure_table, guarded
from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table

CHUNK = "rw_chunk"
_CHUNK_PROPERTY = "rewindow.chunk"
"""A property of the snapshot that staged a chunk; an empty chunk has such a snapshot too."""


class Part(StrEnum):
    """What is staged, each in a table of its own. The value is the suffix of the table's name."""

    WINDOWS = ""
    LATE = "__late"
    QUARANTINE = "__quarantine"
    TOUCHED = "__touched"
    """The windows that a reconciliation has recomputed one by one: keys, `window_start`, `window_end` (epoch ms)."""
    TIMELINE = "__timeline"
    """Timeline rows that are too many for memory."""


class Staging:
    """The staged rows of one attempt. A chunk that is staged again replaces what it staged before.

    `ensure` is called before each write, and raises where the process has lost the run.
    """

    def __init__(self, spark: SparkSession, table: str, ensure: Callable[[], None] = lambda: None) -> None:
        self._spark = spark
        self._ensure = ensure
        self._made: set[Part] = set()
        self.table = table
        self._making = threading.Lock()

    def prepare(self, rows: StructType, part: Part = Part.WINDOWS) -> None:
        """Make the table, so that processes can stage chunks side by side."""
        schema = StructType([StructField(CHUNK, IntegerType()), *rows])
        table = self._of(part)
        with self._making:
            if part in self._made and not self.has(part):
                raise RunStateError(
                    "the staging table is gone: the run was given up, discarded or begun again meanwhile",
                    table,
                    "Start the run again.",
                )
            guarded("cannot make", table, lambda: ensure_table(self._spark, table, schema))
            self._made.add(part)

    def write(self, chunk: int, rows: DataFrame, part: Part = Part.WINDOWS) -> None:
        """Stage the rows of chunk number `chunk`: one atomic commit."""
        self._ensure()
        self.prepare(rows.schema, part)
        numbered = rows.select(F.lit(chunk).alias(CHUNK), "*")
        table = self._of(part)
        write = numbered.writeTo(table).option(f"snapshot-property.{_CHUNK_PROPERTY}", str(chunk))
        guarded("cannot write", table, lambda: write.overwrite(F.col(CHUNK) == chunk), reads_history=True)

    def rows(self, part: Part = Part.WINDOWS) -> DataFrame:
        """The staged rows."""
        return self._spark.table(self._of(part)).drop(CHUNK)

    def has(self, part: Part = Part.WINDOWS) -> bool:
        return self._spark.catalog.tableExists(self._of(part))

    def chunks(self, part: Part = Part.WINDOWS) -> set[int]:
        """The numbers of the chunks that are staged, the empty ones too; none where the table is not there."""
        if not self.has(part):
            return set()
        snapshots = self._iceberg(part).snapshots().iterator()
        found = set()
        while snapshots.hasNext():
            chunk = snapshots.next().summary().get(_CHUNK_PROPERTY)
            if chunk is not None:
                found.add(int(chunk))
        return found

    def snapshots(self) -> dict[str, int]:
        """The current snapshot of each part that is there, by the part's value: what is staged, exactly."""
        found = {}
        for part in Part:
            snapshot = self._iceberg(part).currentSnapshot() if self.has(part) else None
            if snapshot is not None:
                found[part.value] = snapshot.snapshotId()
        return found

    def drop(self) -> None:
        """Remove the tables and their files; the windows last, so that `has` shows whether all is gone."""
        for part in reversed(Part):
            if self.has(part):
                drop_table(self._spark, self._of(part))

    def _iceberg(self, part: Part) -> JavaObject:
        """Iceberg's own handle of a part's table."""
        return loaded_iceberg_table(self._spark, self._of(part))

    def _of(self, part: Part) -> str:
        return f"{self.table}{part.value}"
