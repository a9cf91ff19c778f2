"""What a run has computed and not yet published: a table of its own, which readers do not look at."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_jobs.lakehouse.tables import ensure_table, guarded

CHUNK = "rw_chunk"


class Staging:
    """The staged windows of one run. A chunk that is staged again replaces what it staged before."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self.table = table

    def write(self, chunk: int, rows: DataFrame) -> None:
        """Stage the windows of chunk number `chunk`: one atomic commit."""
        schema = StructType([StructField(CHUNK, IntegerType()), *rows.schema])

        def write() -> None:
            ensure_table(self._spark, self.table, schema)
            numbered = rows.select(F.lit(chunk).alias(CHUNK), "*")
            numbered.writeTo(self.table).overwrite(F.col(CHUNK) == chunk)

        guarded("cannot write", self.table, write, reads_history=True)

    def rows(self) -> DataFrame:
        """The staged windows."""
        return self._spark.table(self.table).drop(CHUNK)

    def drop(self) -> None:
        """Remove the table and its files."""
        guarded("cannot drop", self.table, lambda: self._spark.sql(f"DROP TABLE IF EXISTS {self.table} PURGE"))
