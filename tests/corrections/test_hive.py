"""Corrections into a Hive table, partition by partition, and as files."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.compare import run_compare
from spark_jobs.corrections.delivery import deliver, repeat
from spark_jobs.corrections.partitions import PartitionedTable
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.work.progress import NoProgress
from tests.corrections.boundaries import LEDGER, boundaries_of, ended_at
from tests.corrections.small_corrections import counts_of, defined, emitted_rows, published, with_faults
from tests.faults.boundaries import Stopped
from tests.sampling import sample

pytestmark = pytest.mark.long

SECTIONS = """
live:
  source: {kind: table, table: corrected_live.emitted}
  window: {start: s, unit: ms}
corrections: {value: complete}
"""
HIVE = [*LEDGER, (PartitionedTable, "_replace")]


def test_partitions_are_put_right_and_the_same_goes_to_files(spark, hive_metastore, tmp_path) -> None:
    job = defined(tmp_path, "corrected_hive", SECTIONS)
    rows = with_faults(emitted_rows(spark, job))
    spark.sql("CREATE DATABASE IF NOT EXISTS corrected_live")
    frame = spark.createDataFrame([tuple(r.values()) for r in rows], "k STRING, s BIGINT, n BIGINT, total BIGINT")
    frame = frame.withColumn("part", F.expr("CAST((s - 1600000020000) DIV 60000 AS STRING)"))
    frame.write.mode("overwrite").format("parquet").partitionBy("part").saveAsTable("corrected_live.emitted")
    before = counts_of(published(spark, job))
    for boundary in sample(["after _replace"], boundaries_of(HIVE)):
        with ended_at(HIVE, boundary), pytest.raises(Stopped):
            if not deliver(spark, job).rows:
                repeat(spark, job)
        done = deliver(spark, job)
    after = run_compare(spark, job, NoProgress()).counts
    assert after["match"] > before["match"] + 3 and not after.get("mismatch"), (before, after, done)
    assert spark.table("corrected_live.emitted").where("n IS NULL").isEmpty()
    assert not deliver(spark, job).rows, "what waits for its partition is no delivery"
    assert_maintenance_removes_what_was_replaced(spark, job)
    files = tmp_path / "corrections"
    path = tmp_path / "corrected_hive.yaml"
    to_files = f"corrections: {{value: complete, to: {{kind: files, path: {files}}}}}"
    path.write_text(path.read_text().replace("corrections: {value: complete}", to_files))
    other = load_pipeline(path)
    with ended_at(LEDGER, "before finish"), pytest.raises(Stopped):
        deliver(spark, other)
    assert deliver(spark, other).resumed and not deliver(spark, other).rows
    (folder,) = files.iterdir()
    written = [json.loads(line) for file in folder.glob("part-*") for line in file.read_text().splitlines()]
    assert {row["action"] for row in written} == {"upsert"} and len(written) > 5


def assert_maintenance_removes_what_was_replaced(spark: SparkSession, job: Pipeline) -> None:
    """A kill after a partition was replaced left its first folder behind: the second try has a folder of its own."""
    table = "corrected_live.emitted"

    def seen() -> tuple[list[Row], set[str]]:
        spark.catalog.refreshTable(table)
        frame = spark.table(table)
        return sorted(frame.collect(), key=str), {Path(file).parent.name for file in frame.inputFiles()}

    rows, folders = seen()
    (location,) = (r[1] for r in spark.sql(f"DESCRIBE EXTENDED {table}").collect() if r[0] == "Location")
    parent = Path(urlsplit(location).path) / ".rewindow"
    there = {folder.name for folder in parent.iterdir()}
    assert there - folders, "a folder in which no partition lies"
    assert maintain(spark, job, NoProgress(), now=datetime.now(UTC)).replaced_deleted == 0, "too new"
    for folder in there:
        os.utime(parent / folder, times=(0, 0))
    done = maintain(spark, job, NoProgress(), now=datetime.now(UTC))
    assert done.replaced_deleted == len(there - folders)
    assert {folder.name for folder in parent.iterdir()} == there & folders
    assert seen() == (rows, folders)
