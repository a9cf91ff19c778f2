"""The table of the rows that the live job has written to a topic: `<table>__emitted`.

A run that compares appends the records that no run has read before. It then reads those of the windows that it
compares, and not the whole topic; and records that retention has removed from the topic since are still here.

| column | type | meaning |
| --- | --- | --- |
| `placing` | STRING | a digest of all in the definition by which the rows were read and `window_start` was found |
| `partition`, `offset`, `timestamp` | INT, BIGINT, TIMESTAMP | of the record |
| `key`, `value` | BINARY | of the record, as they were in the topic |
| `headers` | ARRAY of name and value | null where the definition does not use them |
| `window_start` | TIMESTAMP | of the row's window; null where it has none, or none that can be read |

The property `rewindow.emitted.<placing>` says which offsets have been read (`Coverage`). It changes in the commit that
adds the rows: a run that is killed has added all of its rows, or none.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import BaseModel, ConfigDict
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.commits import fast_forward, retried
from spark_jobs.lakehouse.tables import aligned, ensure_table, guarded
from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table
from spark_jobs.spark.snapshots import rows_at

HEADERS = t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())]))
EMITTED_COLUMNS = t.StructType(
    [
        t.StructField("placing", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField("headers", HEADERS),
        t.StructField("window_start", t.TimestampType()),
    ]
)
_PROPERTY = "rewindow.emitted."
_ATTEMPTS = 8
_BRANCH_DAYS = 3

Offsets = tuple[int, int]
"""The first offset, and the one behind the last."""


class Coverage(BaseModel):
    """Which offsets of a topic have been read: for each partition its ranges, ascending, none next to another."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    topic_id: str = ""
    ranges: dict[int, tuple[Offsets, ...]] = {}

    def end(self, partition: int) -> int:
        """The offset behind the last one that has been read; 0 where none has."""
        ranges = self.ranges.get(partition)
        return ranges[-1][1] if ranges else 0

    def holes(self, partition: int, start: int) -> list[Offsets]:
        """What was never read, from offset 0 up to `start`, where reading goes on."""
        read = [edge for part in self.ranges.get(partition, ()) for edge in part]
        edges = [0, *read, max(start, self.end(partition))]
        return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low < high]

    def extended(self, topic_id: str, read: Iterable[tuple[int, int, int]]) -> Coverage:
        """With ranges (partition, start, end) that are read now; each begins at `end(partition)` or behind it."""
        ranges = dict(self.ranges)
        for partition, start, end in read:
            parts = ranges.get(partition, ())
            if parts and parts[-1][1] == start:
                ranges[partition] = (*parts[:-1], (parts[-1][0], end))
            elif start < end:
                ranges[partition] = (*parts, (start, end))
        return Coverage(topic_id=topic_id, ranges=ranges)


@dataclass(frozen=True, slots=True)
class Addition:
    """Rows to append, and the coverage with them. `replaces`: rows that the table has go, they are of another topic."""

    rows: DataFrame
    coverage: Coverage
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Kept:
    """What the table has of one placing at a snapshot; `snapshot` None: nothing."""

    coverage: Coverage
    snapshot: int | None


NOTHING = Kept(Coverage(), None)


class EmittedTable:
    """The rows of one placing in `<table>__emitted`."""

    def __init__(self, spark: SparkSession, table: str, placing: str) -> None:
        self._spark = spark
        self.table = table
        self.placing = placing

    def kept(self) -> Kept:
        """What the table has now. Raises CatalogError where the catalog does not answer."""
        return guarded("cannot read", self.table, self._now)

    def _now(self) -> Kept:
        return self._kept(self._java()) if self._spark.catalog.tableExists(self.table) else NOTHING

    def _kept(self, table: JavaObject) -> Kept:
        text, snapshot = table.properties().get(_PROPERTY + self.placing), table.currentSnapshot()
        if text is None or snapshot is None:
            return NOTHING
        return Kept(Coverage.model_validate_json(text), snapshot.snapshotId())

    def rows(self, kept: Kept) -> DataFrame:
        """The rows at this snapshot, in the columns that the module lists."""
        assert kept.snapshot is not None, "nothing has no rows"
        rows = rows_at(self._spark, self.table, kept.snapshot)
        return rows.where(F.col("placing") == self.placing)

    def append(self, addition: Callable[[Kept], Addition | None]) -> Kept:
        """Add what `addition` makes of what the table has, in one commit; called again where another run was faster.

        None: the table has all there is. Returns what the table has then. Raises CatalogError where it cannot be
        written, SourceError where the topic cannot be read.
        """
        guarded("cannot make", self.table, self._prepare)
        for _ in range(_ATTEMPTS):
            table = self._java()
            kept = self._kept(table)
            added = addition(kept)
            if added is None:
                return kept
            commit = partial(self._commit, added, table.currentSnapshot())
            if guarded("cannot write", self.table, commit, reads_history=True):
                return self.kept()
        hint = "Run again when fewer runs compare this pipeline at the same time."
        raise CatalogError(f"other runs were faster {_ATTEMPTS} times", self.table, hint)

    def _prepare(self) -> None:
        is_new = not self._spark.catalog.tableExists(self.table)
        ensure_table(self._spark, self.table, EMITTED_COLUMNS)
        if is_new:  # a query for few windows reads few row groups
            retried(lambda: self._spark.sql(f"ALTER TABLE {self.table} WRITE LOCALLY ORDERED BY window_start"))
        if self._java().currentSnapshot() is None:
            self._java().newFastAppend().commit()  # a branch needs a snapshot to start from

    def _commit(self, added: Addition, snapshot: JavaObject) -> bool:
        """Write the rows on a branch that begins at `snapshot`, and move `main` there with the coverage.

        False: `main` was moved meanwhile.
        """
        branch = f"reading_{secrets.token_hex(8)}"
        base, is_empty = snapshot.snapshotId(), snapshot.summary().get("total-records") == "0"
        # A killed run leaves its branch behind: it expires.
        made = f"CREATE BRANCH {branch} AS OF VERSION {base} RETAIN {_BRANCH_DAYS} DAYS"
        retried(lambda: self._spark.sql(f"ALTER TABLE {self.table} {made}"))
        try:
            target = f"{self.table}.branch_{branch}"
            if added.replaces and not is_empty:
                self._spark.sql(f"DELETE FROM {target} WHERE placing = '{self.placing}'")
            rows = added.rows.withColumn("placing", F.lit(self.placing))
            aligned(self._spark, self.table, rows).writeTo(target).append()
            if self._move(branch, base, added.coverage):
                return True
            self._drop(branch)
            return False
        except BaseException:
            self._drop(branch)
            raise

    def _move(self, branch: str, base: int, coverage: Coverage) -> bool:
        properties = {_PROPERTY + self.placing: coverage.model_dump_json()}
        return fast_forward(self._spark, self.table, {"main": branch}, {"main": base}, lambda: properties)

    def _drop(self, branch: str) -> None:
        retried(lambda: self._spark.sql(f"ALTER TABLE {self.table} DROP BRANCH IF EXISTS {branch}"))

    def _java(self) -> JavaObject:
        return loaded_iceberg_table(self._spark, self.table)


def forget_others(spark: SparkSession, table: str, placings: Sequence[str]) -> int:
    """Delete the rows of all placings but these; how many placings they had."""
    properties = loaded_iceberg_table(spark, table).properties()
    known = {name.removeprefix(_PROPERTY) for name in properties if name.startswith(_PROPERTY)}
    others = known - set(placings)

    def forget() -> None:
        change = loaded_iceberg_table(spark, table).updateProperties()
        for placing in others:
            change = change.remove(_PROPERTY + placing)
        change.commit()

    # First the properties: a run that starts in between reads the topic again, and replaces the rows.
    if others:
        retried(forget)
    kept = ", ".join(f"'{placing}'" for placing in placings)
    retried(lambda: spark.sql(f"DELETE FROM {table} WHERE " + (f"placing NOT IN ({kept})" if kept else "TRUE")))
    return len(others)
