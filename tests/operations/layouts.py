"""The layouts that Rewindow's tables have had, frozen, and the way from today's rows back to them.

1: windows without revisions, a short ledger. 2: revisions, `as_of` as a map. 3: `as_of` as text. 4: attempts and claims
in the ledger, late and quarantined records not yet named by the windows' snapshots. (5 is today's.)
"""

from __future__ import annotations

import socket

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.publication import FACTS, RANGE, REVISIONS
from spark_jobs.lakehouse.published_state import RUN_ID
from spark_jobs.lakehouse.tables import Tables, branch_of

_RUNS_1 = """run_id pipeline status definition_hash definition range_start range_end as_of processing_time_end mode
panes fidelity fidelity_reasons records_read records_quarantined windows windows_open windows_all_late pairs_on_time
pairs_late pairs_dropped records_late timings rewindow_version started_at finished_at""".split()  # noqa: SIM905
_RUNS_3 = [*_RUNS_1, "output", "kind", "whole", "replaces", "changes", "reason", "layout", "process"]
_RUNS_2 = [name for name in _RUNS_3 if name not in ("whole", "replaces")]
_RUNS_4 = [*_RUNS_3, "attempt", "claim", "heartbeat_at", "evidence", "person"]
RUNS = {1: _RUNS_1, 2: _RUNS_2, 3: _RUNS_3, 4: _RUNS_4}
"""The columns of the ledger."""


def downgrade(spark: SparkSession, pipeline: Pipeline, layout: int) -> None:
    """Write all tables of a pipeline again, as a version with this layout would have made them."""
    tables = Tables.of(pipeline)
    runs = spark.table(tables.runs).select(*RUNS[layout])
    _rewrite(spark, tables.runs, runs.withColumn("layout", F.lit(layout)) if layout > 1 else runs)
    states = spark.table(tables.timeline_state)
    _rewrite(spark, tables.timeline_state, states.drop("steps") if layout == 1 else states)
    for table in filter(spark.catalog.tableExists, (tables.late, tables.quarantine)):
        rows = spark.table(table)
        _rewrite(spark, table, rows.drop("raw_bytes") if layout == 1 else rows)
    run = spark.table(tables.windows).agg(F.max("run_id")).collect()[0][0]
    revisions = spark.table(f"{tables.windows}.branch_{REVISIONS}")
    named = {RUN_ID: run, RANGE: "[-9223372036854775808, 9223372036854775807)"}
    if layout == 1:
        kept = [name for name in FACTS.names if name != "run_id"]
        _rewrite(spark, tables.windows, spark.table(tables.windows).drop(*kept))
        return
    history = _frozen(spark, _as_of(revisions, layout))
    _rewrite(spark, tables.windows, _as_of(spark.table(tables.windows), layout), named)
    spark.sql(f"ALTER TABLE {tables.windows} CREATE BRANCH {REVISIONS}")
    history.writeTo(f"{tables.windows}.branch_{REVISIONS}").overwrite(F.lit(True))


def leave_open(spark: SparkSession, pipeline: Pipeline, layout: int) -> str:
    """A run of this layout that was killed while it published: its id. It has written its late records."""
    tables, run_id = Tables.of(pipeline), "cut-off"
    names = RUNS[layout]
    row = spark.table(tables.runs).orderBy(F.desc("finished_at")).limit(1).collect()[0].asDict()
    killed = {"run_id": run_id, "status": "publishing", "finished_at": None, "process": f"{socket.gethostname()}:1:0"}
    killed |= {"attempt": "a", "claim": "b"} if layout == 4 else {}
    spark.createDataFrame([{**row, **killed}], spark.table(tables.runs).select(*names).schema).writeTo(
        tables.runs
    ).append()
    spark.table(tables.late).limit(1).withColumn("run_id", F.lit(run_id)).writeTo(tables.late).append()
    staging, branch = tables.staging(run_id, "a"), branch_of(run_id, "b")
    if layout < 4:
        staging, branch = f"{tables.windows}__staging_cut_off", "publishing_cut_off"
    spark.range(1).writeTo(staging).create()
    spark.sql(f"ALTER TABLE {tables.windows} CREATE BRANCH {branch}")
    return run_id


def _as_of(windows: DataFrame, layout: int) -> DataFrame:
    return (
        windows.withColumn("as_of", F.from_json("as_of", "map<string,bigint>").cast("map<int,bigint>"))
        if layout == 2
        else windows
    )


def _frozen(spark: SparkSession, frame: DataFrame) -> DataFrame:
    return spark.createDataFrame(frame.collect(), frame.schema)


def _rewrite(spark: SparkSession, table: str, frame: DataFrame, properties: dict[str, str] | None = None) -> None:
    rows = _frozen(spark, frame)
    spark.sql(f"DROP TABLE {table} PURGE")
    columns = ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in frame.schema)
    spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg TBLPROPERTIES ('format-version'='2')")
    writer = rows.writeTo(table)
    for name, value in (properties or {}).items():
        writer = writer.option(f"snapshot-property.{name}", value)
    writer.append()


def without(schema: StructType, *names: str) -> str:
    """DDL of the columns but those in `names`."""
    return ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in schema if f.name not in names)


KEY = StructType().add("k", StringType()).add("window_start", "timestamp").add("window_end", "timestamp")
"""The columns that tell one window of `small_nights` from another."""
