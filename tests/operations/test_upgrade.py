"""`rewindow upgrade`: tables of an earlier layout get what they lack, and the nights go on with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.published_table import FACTS, PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.upgrade import BEFORE, upgrade
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.progress import NoProgress
from spark_jobs.runs.store import RunStore
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, write


def test_a_table_without_revisions_is_upgraded_and_the_next_night_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    records, store = log_of(9, count=120), RunStore(str(tmp_path / "runs"))
    defined = pipeline(tmp_path, "upgraded", "tumbling, per event")
    tables = Tables.of(defined)
    write(tmp_path / "data", records[:80], "part-0.json")
    reconcile(spark, defined, NoProgress(), store=store)
    assert upgrade(spark, defined) == []

    old = spark.table(tables.windows).drop(*FACTS.names)
    rows, schema = old.collect(), old.schema
    spark.sql(f"DROP TABLE {tables.windows} PURGE")
    spark.createDataFrame(rows, schema).writeTo(tables.windows).create()
    spark.sql(f"ALTER TABLE {tables.runs} DROP COLUMN person")
    write(tmp_path / "data", records[80:], "part-1.json")
    with pytest.raises(CatalogError, match="`rewindow upgrade PIPELINE` adds them"):
        PublishedTable(spark, tables.windows).prepare(schema)

    done = {one.table: one for one in upgrade(spark, defined)}
    assert done[tables.windows].columns == tuple(FACTS.names)
    assert done[tables.windows].windows == len(rows)
    assert upgrade(spark, defined) == []
    published = PublishedTable(spark, tables.windows)
    assert {(r.revision, r.run_id) for r in published.current().collect()} == {(1, BEFORE)}
    assert published.revisions().count() == len(rows)

    night = reconcile(spark, defined, NoProgress(), store=store)
    assert sum(night.changes.values()) > 0
    assert_history_is_whole(spark, defined)


def test_a_table_of_somebody_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    defined = pipeline(tmp_path, "not_ours", "tumbling, per event")
    table = Tables.of(defined).windows
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}")
    spark.range(1).writeTo(table).createOrReplace()
    with pytest.raises(CatalogError, match="has no column k, window_end, window_start"):
        upgrade(spark, defined)
