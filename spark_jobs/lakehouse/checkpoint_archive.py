"""The batches of a live Structured Streaming query that its checkpoint no longer has: `<table>__checkpoint`.

Spark keeps the last 100 batches. Every run appends the checkpoint's files that the table does not have, each once, with
what a replay reads of them. So a history of months can be replayed.

| column | type | meaning |
| --- | --- | --- |
| `query` | STRING | the query's id; one that begins anew with an empty checkpoint has another |
| `file` | STRING | the file's path within the checkpoint |
| `text` | STRING | its content, of the settings only those that decide something |
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import uuid4

from pyspark.sql import SparkSession
from pyspark.sql import types as t

from spark_jobs.lakehouse.commits import retried
from spark_jobs.lakehouse.tables import ensure_table, guarded

_SCHEMA = t.StructType([t.StructField(name, t.StringType()) for name in ("query", "file", "text")])
_SETTINGS = ("spark.sql.streaming.multipleWatermarkPolicy", "spark.sql.shuffle.partitions")


def archived_files(spark: SparkSession, table: str, query: str) -> dict[str, str]:
    """The texts that the table has of a query, by path within the checkpoint."""

    def read() -> dict[str, str]:
        if not spark.catalog.tableExists(table):
            return {}
        rows = spark.table(table).where(f"query = '{_quoted(query)}'").select("file", "text").toArrow()
        return dict(zip(rows.column("file").to_pylist(), rows.column("text").to_pylist(), strict=True))

    return guarded("cannot read", table, read)


def archived_queries(spark: SparkSession, table: str) -> set[str]:
    """The ids of the queries that the table has batches of."""

    def read() -> set[str]:
        there = spark.catalog.tableExists(table)
        return {row[0] for row in spark.table(table).select("query").distinct().collect()} if there else set()

    return guarded("cannot read", table, read)


def archive_files(spark: SparkSession, table: str, query: str, files: Mapping[str, str]) -> int:
    """Append the files that the table does not have. Returns how many those were."""
    known = archived_files(spark, table, query)
    new = [(query, name, shortened(name, text)) for name, text in sorted(files.items()) if name not in known]
    if not new:
        return 0

    def write() -> None:
        ensure_table(spark, table, _SCHEMA)
        view = f"rw_checkpoint_{uuid4().hex}"
        spark.createDataFrame(new, _SCHEMA).createOrReplaceTempView(view)
        try:
            spark.sql(
                f"MERGE INTO {table} t USING {view} s ON t.query = s.query AND t.file = s.file "
                "WHEN NOT MATCHED THEN INSERT *"
            )
        finally:
            spark.catalog.dropTempView(view)

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


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
