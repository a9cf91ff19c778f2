"""What a run has computed and not yet published: tables of its own, which readers do not look at."""

from __future__ import annotations

import threading
from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_jobs.lakehouse.tables import drop_table, ensure_table, guarded

CHUNK = "rw_chunk"


class Part(StrEnum):
    """What is staged, each in a table of its own."""

    WINDOWS = ""
    LATE = "__late"
    QUARANTINE = "__quarantine"
    TOUCHED = "__touched"
    """The windows that a reconciliation has recomputed one by one: keys, `window_start`, `window_end` (epoch ms)."""
    TIMELINE = "__timeline"
    """Timeline rows that are too many for memory."""


class Staging:
    """The staged rows of one run. A chunk that is staged again replaces what it staged before."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self.table = table
        self._making = threading.Lock()

    def prepare(self, rows: StructType, part: Part = Part.WINDOWS) -> None:
        """Make the table, so that processes can stage chunks side by side."""
        schema = StructType([StructField(CHUNK, IntegerType()), *rows])
        table = self._of(part)
        with self._making:
            guarded("cannot make", table, lambda: ensure_table(self._spark, table, schema))

    def write(self, chunk: int, rows: DataFrame, part: Part = Part.WINDOWS) -> None:
        """Stage the rows of chunk number `chunk`: one atomic commit."""
        self.prepare(rows.schema, part)
        numbered = rows.select(F.lit(chunk).alias(CHUNK), "*")
        table = self._of(part)
        write = numbered.writeTo(table)
        guarded("cannot write", table, lambda: write.overwrite(F.col(CHUNK) == chunk), reads_history=True)

    def rows(self, part: Part = Part.WINDOWS) -> DataFrame:
        """The staged rows."""
        return self._spark.table(self._of(part)).drop(CHUNK)

    def has(self, part: Part = Part.WINDOWS) -> bool:
        return self._spark.catalog.tableExists(self._of(part))

    def drop(self) -> None:
        """Remove the tables and their files; the windows last, so that `has` tells whether all is gone."""
        for part in reversed(Part):
            if self.has(part):
                drop_table(self._spark, self._of(part))

    def _of(self, part: Part) -> str:
        return f"{self.table}{part.value}"
