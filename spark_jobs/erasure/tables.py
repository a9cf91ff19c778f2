"""A person's rows in a pipeline's tables: found in what readers see and in the files beneath, deleted, and gone.

Iceberg deletes rows by noting that they are gone: the value stays in files, in their bounds in manifests, and in
earlier snapshots. So files with such notes are written anew, all earlier snapshots expire, and what nothing names is
removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.erasure.person import Person
from spark_jobs.lakehouse.publication import REVISIONS
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, guarded, literal
from spark_jobs.operations.maintain import tidy
from spark_jobs.spark.gateway import java_session, jvm, loaded_iceberg_table

ERASED = "erased"
"""What stands where a forgotten value stood."""


@dataclass(frozen=True)
class Part:
    """Rows of a table, or of its `branch`, that go: `where` (SQL) says which. `text`: that column alone is changed."""

    table: str
    where: str
    branch: str = ""
    text: str = ""

    @property
    def name(self) -> str:
        """For people and logs."""
        return self.in_catalog + (f" ({self.branch or self.text})" if self.branch or self.text else "")

    @property
    def in_catalog(self) -> str:
        """The table's name within the catalog."""
        return self.table.split(".", 1)[1]

    @property
    def at(self) -> str:
        return f"{self.table}.branch_{self.branch}" if self.branch else self.table


def parts_of(spark: SparkSession, tables: Tables, person: Person, positions: DataFrame | None) -> list[Part]:
    """Where the person's rows can be. `positions`: of the person's records, where the late table does not name them."""
    found = list(_parts(spark, tables, person, positions))
    return [part for part in found if spark.catalog.tableExists(part.table)]


def _parts(spark: SparkSession, tables: Tables, person: Person, positions: DataFrame | None) -> Iterator[Part]:
    for table in (tables.windows, tables.late, tables.verdicts, tables.corrections):
        where = _named(spark, table, person)
        if where is not None:
            yield Part(table, where)
        if where is not None and table == tables.windows:
            yield Part(table, where, REVISIONS)
        if where is None and table == tables.late and positions is not None:
            positions.createOrReplaceTempView(_POSITIONS)
            same = "p.rw_partition = `partition` AND p.rw_offset = `offset`"
            yield Part(table, f"EXISTS (SELECT 1 FROM {_POSITIONS} p WHERE {same})")
    yield Part(tables.quarantine, _in_texts(person, "raw", "raw_bytes"))
    yield Part(tables.emitted, _in_texts(person, "key", "value"))
    of_pipeline = f"pipeline = {literal(tables.windows.rsplit('.', 1)[1])} AND "
    yield Part(tables.timeline_state, of_pipeline + f"({person.text_sql('state')})")
    yield Part(tables.runs, f"output = {literal(tables.windows)} AND ({person.text_sql('reason')})", text="reason")


_POSITIONS = "rewindow_erased_positions"


def _named(spark: SparkSession, table: str, person: Person) -> str | None:
    return person.sql(spark.table(table).columns) if spark.catalog.tableExists(table) else None


def _in_texts(person: Person, *names: str) -> str:
    return " OR ".join(person.text_sql(f"CAST(`{name}` AS STRING)") for name in names)


def rows_of(spark: SparkSession, part: Part) -> DataFrame:
    """The rows that readers can see now."""
    return spark.table(part.at).where(part.where)


def in_files(spark: SparkSession, part: Part) -> int:
    """Rows in all files of all snapshots, those too that are deleted or superseded."""
    listed = spark.sql(f"SELECT DISTINCT file_path FROM {part.table}.all_data_files").collect()
    paths = [row[0] for row in listed]
    if not paths:
        return 0
    return spark.read.schema(spark.table(part.table).schema).parquet(*paths).where(part.where).count()


def gone_files_named(spark: SparkSession, part: Part) -> int:
    """Files that are gone and that a manifest still names, with the smallest and largest values in them."""
    return spark.sql(f"SELECT count(*) FROM {part.table}.all_entries WHERE status = 2").collect()[0][0]


def delete(spark: SparkSession, part: Part) -> None:
    """Take the rows out of what readers see."""
    if rows_of(spark, part).isEmpty():
        return
    statement = f"DELETE FROM {part.at} WHERE {part.where}"
    if part.text:
        statement = f"UPDATE {part.at} SET {part.text} = {literal(ERASED)} WHERE {part.where}"
    guarded("cannot write", part.table, lambda: spark.sql(statement))


_AFTER = timedelta(hours=1)
"""The commits of a purge itself lie before its end: their snapshots expire, too."""


def purge(spark: SparkSession, tables: Tables, table: str, now: datetime) -> None:
    """Write files with deleted rows anew, and remove all that the current state does not need.

    `now`: later than the last commit, whose files are among what goes. In tables that pipelines share, files that no
    snapshot names stay: another pipeline's run may be about to commit them.
    """
    settle = PublishedTable(spark, tables.windows).vouch_as_it_is
    order = "window_start" if table in (tables.windows, tables.emitted) else ""
    guarded(
        "cannot remove files",
        table,
        lambda: tidy(spark, table, order, now + _AFTER, timedelta(0), settle, every_file=True),
    )
    if table not in (tables.runs, tables.timeline_state):
        guarded("cannot remove files", table, lambda: _remove_unnamed(spark, table, now))


def _remove_unnamed(spark: SparkSession, table: str, now: datetime) -> None:
    """Remove the files that no snapshot names, of any age: no run of the pipeline waits for its commit."""
    actions = jvm(spark).org.apache.iceberg.spark.actions.SparkActions.get(java_session(spark))
    removal = actions.deleteOrphanFiles(loaded_iceberg_table(spark, table))
    removal.olderThan(int(now.timestamp() * 1000)).execute()
