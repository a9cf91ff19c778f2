"""Runs on the catalogs that people use: JDBC on a real PostgreSQL server, and a real Hive metastore."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.spark.session import spark_session
from tests.lakehouse.catalog_runs import check_catalog_runs
from tests.sampling import IN_FULL
from tests.services.hive_metastore import HiveMetastore
from tests.services.postgresql import DRIVER, catalog_of, postgresql


@pytest.mark.long
@pytest.mark.packages(DRIVER)
def test_runs_on_a_jdbc_catalog_in_postgresql(spark: SparkSession, tmp_path: Path) -> None:
    with postgresql() as (host, port):
        catalog = catalog_of(host, port, str(tmp_path / "warehouse"))
        check_catalog_runs(spark_session("postgresql catalog", catalog=catalog), tmp_path)


@pytest.mark.skipif(not IN_FULL, reason="in make test-long; all other tests have this catalog")
def test_runs_on_the_catalog_in_sqlite(spark: SparkSession, tmp_path: Path) -> None:
    check_catalog_runs(spark, tmp_path)


@pytest.mark.long
def test_runs_on_a_hive_metastore(spark: SparkSession, hive_metastore: HiveMetastore, tmp_path: Path) -> None:
    """In a session of its own: that of the other tests keeps its catalog."""
    catalog = {"type": "hive", "uri": hive_metastore.uri, "warehouse": str(tmp_path / "warehouse")}
    check_catalog_runs(spark_session("hive catalog", catalog=catalog), tmp_path)
