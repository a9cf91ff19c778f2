"""What an attempt of a run has computed and not yet published: tables of its own, which readers do not look at."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

from spark_jobs.errors import RunStateError
from spark_jobs.lakehouse.tables import drop_table, ensure_table, guarded
from spark_jobs.spark.gateway import JavaObject, elements, loaded_iceberg_table

CHUNK = "rw_chunk"
_CHUNK_PROPERTY = "rewindow.chunk"
"""A property of the snapshot that staged a chunk; an empty chunk has such a snapshot too."""
_DISTINCT_PROPERTY = "rewindow.distinct-by"
"""A property of the same snapshot: the columns by which one aggregation made its rows, as a JSON list."""


class StagedPart(StrEnum):
    """What is staged, each in a table of its own. The value is the suffix of the table's name."""

    WINDOWS = ""
    LATE = "__late"
    QUARANTINE = "__quarantine"
    TOUCHED = "__touched"
    """The windows that a reconciliation has recomputed one by one: keys, `window_start`, `window_end` (epoch ms)."""
    KEPT = "__kept"
    """Published windows that keep their values, because records that they were made of are gone."""
    TIMELINE = "__timeline"
    """Timeline rows that are too many for memory."""
    DUPLICATES = "__duplicates"
    """The places of the records that a deduplication does not let through."""


class Staging:
    """The staged rows of one attempt. A chunk that is staged again replaces what it staged before.

    `ensure` is called before each write, and raises where the process has lost the run.
    """

    def __init__(self, spark: SparkSession, table: str, ensure: Callable[[], None] = lambda: None) -> None:
        self._spark = spark
        self._ensure = ensure
        self._made: set[StagedPart] = set()
        self.table = table
        self._making = threading.Lock()

    def prepare(self, rows: StructType, part: StagedPart = StagedPart.WINDOWS) -> None:
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

    def write(
        self, chunk: int, rows: DataFrame, part: StagedPart = StagedPart.WINDOWS, *, distinct_by: Sequence[str] = ()
    ) -> None:
        """Stage the rows of chunk number `chunk`: one atomic commit.

        `distinct_by`: the columns by which one aggregation made the rows, so that no two of them have the same values.
        """
        self._ensure()
        self.prepare(rows.schema, part)
        numbered = rows.select(F.lit(chunk).alias(CHUNK), "*")
        table = self._of(part)
        write = numbered.writeTo(table).option(f"snapshot-property.{_CHUNK_PROPERTY}", str(chunk))
        write = write.option(f"snapshot-property.{_DISTINCT_PROPERTY}", json.dumps(list(distinct_by)))
        guarded("cannot write", table, lambda: write.overwrite(F.col(CHUNK) == chunk), reads_history=True)

    def rows(self, part: StagedPart = StagedPart.WINDOWS) -> DataFrame:
        """The staged rows."""
        return self._spark.table(self._of(part)).drop(CHUNK)

    def chunk(self, number: int, part: StagedPart = StagedPart.WINDOWS) -> DataFrame:
        """The staged rows of one chunk."""
        return self._spark.table(self._of(part)).where(F.col(CHUNK) == number).drop(CHUNK)

    def has(self, part: StagedPart = StagedPart.WINDOWS) -> bool:
        return self._spark.catalog.tableExists(self._of(part))

    def position_in(self, part: StagedPart) -> str:
        """SQL of whether the part has a row with the `partition` and `offset` of a record."""
        return f"(`partition`, `offset`) IN (SELECT `partition`, `offset` FROM {self._of(part)})"

    def chunks(self, part: StagedPart = StagedPart.WINDOWS) -> set[int]:
        """The numbers of the chunks that are staged, the empty ones too; none where the table is not there."""
        if not self.has(part):
            return set()
        chunks = (summary.get(_CHUNK_PROPERTY) for summary in _summaries(self._iceberg(part)))
        return {int(chunk) for chunk in chunks if chunk is not None}

    def is_distinct_by(self, columns: Sequence[str]) -> bool:
        """Whether it is known, without reading them, that no two of the staged windows have the same `columns`.

        It is where one aggregation by these columns made each chunk, nobody else has written, and no two chunks have
        windows of the same starts.
        """
        table = self._iceberg(StagedPart.WINDOWS)
        rows_of_chunks: dict[str, int] = {}
        for summary in _summaries(table):
            chunk = summary.get(_CHUNK_PROPERTY)
            if chunk is None or set(json.loads(summary.get(_DISTINCT_PROPERTY) or "[]")) != set(columns):
                return False
            rows_of_chunks[chunk] = int(summary.get("added-records") or 0)  # staged again, a chunk replaces itself
        current = table.currentSnapshot()
        rows = 0 if current is None else int(current.summary().get("total-records"))
        return rows == sum(rows_of_chunks.values()) and (len(rows_of_chunks) == 1 or self._have_starts_of_their_own())

    def _have_starts_of_their_own(self) -> bool:
        """Whether no two chunks have windows of the same starts, by what the table's metadata says of its files."""
        chunk, start = f"readable_metrics.{CHUNK}", "readable_metrics.window_start"
        files = self._spark.sql(
            f"SELECT {chunk}.lower_bound AS chunk, {chunk}.upper_bound AS last_chunk, "
            f"{start}.lower_bound AS start, {start}.upper_bound AS last_start FROM {self.table}.files"
        )
        bounds: dict[int, tuple[datetime, datetime]] = {}
        for file in files.collect():
            if None in (file.chunk, file.start, file.last_start) or file.chunk != file.last_chunk:
                return False
            first, last = bounds.get(file.chunk, (file.start, file.last_start))
            bounds[file.chunk] = (min(first, file.start), max(last, file.last_start))
        ordered = sorted(bounds.values())
        return all(last < next_first for (_, last), (next_first, _) in itertools.pairwise(ordered))

    def snapshots(self) -> dict[str, int]:
        """The current snapshot of each part that is there, by the part's value: what is staged, exactly."""
        found = {}
        for part in StagedPart:
            snapshot = self._iceberg(part).currentSnapshot() if self.has(part) else None
            if snapshot is not None:
                found[part.value] = snapshot.snapshotId()
        return found

    def drop(self) -> None:
        """Remove the tables and their files; the windows last, so that `has` shows whether all is gone."""
        for part in reversed(StagedPart):
            if self.has(part):
                drop_table(self._spark, self._of(part))

    def _iceberg(self, part: StagedPart) -> JavaObject:
        """Iceberg's own handle of a part's table."""
        return loaded_iceberg_table(self._spark, self._of(part))

    def _of(self, part: StagedPart) -> str:
        return f"{self.table}{part.value}"


def _summaries(table: JavaObject) -> Iterator[JavaObject]:
    """The summaries of all snapshots of Iceberg's own `table`, oldest first; a name that one lacks is None."""
    return (snapshot.summary() for snapshot in elements(table.snapshots()))
