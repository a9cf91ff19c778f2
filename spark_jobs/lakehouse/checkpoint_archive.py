"""The batches of a live Structured Streaming query that its checkpoint no longer has: `<table>__checkpoint`.

Spark keeps the last 100 batches. Every run appends the checkpoint's files that the table does not have, each once, with
what a replay reads of them. So a history of months can be replayed.

| column | type | meaning |
| --- | --- | --- |
| `query` | STRING | the query's id; one that begins anew with an empty checkpoint has another. With ` (given up)`: of a
  life that ended when the checkpoint was put back from a copy |
| `file` | STRING | the file's path within the checkpoint |
| `text` | STRING | its content, of the settings only those that decide something |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from spark_jobs.lakehouse.commits import retried
from spark_jobs.lakehouse.tables import ensure_table, guarded, literal
from spark_jobs.spark.cached import viewed

_SCHEMA = t.StructType([t.StructField(name, t.StringType()) for name in ("query", "file", "text")])
_GIVEN_UP = " (given up)"
_NUMBER = "CASE WHEN file RLIKE '^(offsets|commits)/' THEN CAST(substring_index(file, '/', -1) AS BIGINT) END"
_SETTINGS = ("spark.sql.streaming.multipleWatermarkPolicy", "spark.sql.shuffle.partitions")


def archived_texts(spark: SparkSession, table: str, query: str, since: int = 0) -> Iterator[tuple[str, str]]:
    """The files that the table has of a query: path within the checkpoint and text, one by one.

    `since`: without the files of batches below this number.
    """

    def read() -> pa.Table:
        files = spark.table(table).where(f"query = {literal(query)}")
        chosen = files.where(f"{_NUMBER} >= {since}") if since else files
        return chosen.select("file", "text").toArrow()

    for batch in guarded("cannot read", table, read).to_batches(1024):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def archived_queries(spark: SparkSession, table: str) -> set[str]:
    """The ids of the queries that the table has batches of; none where it is not there."""

    def read() -> set[str]:
        there = spark.catalog.tableExists(table)
        return {row[0] for row in spark.table(table).select("query").distinct().collect()} if there else set()

    return {query for query in guarded("cannot read", table, read) if not query.endswith(_GIVEN_UP)}


def archived_names(spark: SparkSession, table: str, query: str) -> set[str]:
    """The paths of the files that the table has of a query; none where it is not there."""

    def read() -> set[str]:
        if not spark.catalog.tableExists(table):
            return set()
        files = spark.table(table).where(f"query = {literal(query)}").select("file").toArrow()
        return set(files.column("file").to_pylist())

    return guarded("cannot read", table, read)


def give_up_batches(spark: SparkSession, table: str, query: str, since: int) -> None:
    """Mark the batches from this number on as those of a life that the query has given up: no replay reads them."""

    def write() -> None:
        spark.sql(
            f"UPDATE {table} SET query = {literal(query + _GIVEN_UP)} "
            f"WHERE query = {literal(query)} AND {_NUMBER} >= {since}"
        )

    guarded("cannot write", table, lambda: retried(write))


def archive_files(spark: SparkSession, table: str, query: str, files: Iterable[tuple[str, str]]) -> int:
    """Append files that the table did not have. Returns how many they are."""
    new = [(query, name, shortened(name, text)) for name, text in files]
    if not new:
        return 0

    def write() -> None:
        ensure_table(spark, table, _SCHEMA)
        with viewed(spark.createDataFrame(new, _SCHEMA)) as view:
            spark.sql(
                f"MERGE INTO {table} t USING {view} s ON t.query = s.query AND t.file = s.file "
                "WHEN NOT MATCHED THEN INSERT *"
            )

    guarded("cannot write", table, lambda: retried(write))
    return len(new)


def shortened(name: str, text: str) -> str:
    """The file without the settings that decide nothing: most of its length."""
    if not name.startswith("offsets/"):
        return text
    version, metadata, *offsets = text.split("\n")
    fields = json.loads(metadata)
    conf = {key: value for key, value in (fields.get("conf") or {}).items() if key in _SETTINGS}
    return "\n".join([version, json.dumps({**fields, "conf": conf}, separators=(",", ":")), *offsets])
