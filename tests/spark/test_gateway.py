"""The one module that touches PySpark's private members (`make lint` allows it nowhere else): what it gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.spark.gateway import (
    analyzed_plan,
    hadoop_conf,
    hadoop_path,
    has_jvm,
    iceberg_catalog,
    is_spark_running,
    java_context,
    java_session,
    java_throwable,
    jvm,
    loaded_iceberg_table,
    session_state,
)


def test_a_running_spark_has_a_jvm(spark: SparkSession) -> None:
    assert is_spark_running()
    assert has_jvm()
    assert jvm(spark).java.lang.Math.addExact(2, 3) == 5
    assert java_session(spark).version() == spark.version
    assert java_context(spark).applicationId() == spark.sparkContext.applicationId


def test_the_parser_of_a_session_parses_expressions(spark: SparkSession) -> None:
    parsed = session_state(spark).sqlParser().parseExpression("a AND b")
    assert parsed.getClass().getSimpleName() == "And"


def test_hadoop_reads_the_local_file_system(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    path = hadoop_path(spark, str(tmp_path / "file"))
    assert path.getFileSystem(hadoop_conf(spark)).getFileStatus(path).getLen() == 5


def test_an_analyzed_plan_knows_the_columns_it_uses(spark: SparkSession) -> None:
    used = analyzed_plan(spark.range(3).select(F.col("id") + 1)).references().toSeq()
    assert [used.apply(index).name() for index in range(used.size())] == ["id"]


def test_an_iceberg_table_is_loaded_as_it_is_now(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.gateway")
    spark.range(3).writeTo("rewindow.gateway.numbers").create()
    first = loaded_iceberg_table(spark, "rewindow.gateway.numbers").currentSnapshot().snapshotId()
    spark.range(2).writeTo("rewindow.gateway.numbers").append()
    second = loaded_iceberg_table(spark, "rewindow.gateway.numbers").currentSnapshot()
    assert second.parentId() == first

    identifier = jvm(spark).org.apache.iceberg.catalog.TableIdentifier.parse("gateway.numbers")
    assert iceberg_catalog(spark, "rewindow").tableExists(identifier)


def test_the_java_exception_behind_an_error(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException) as of_spark:
        spark.sql("SELECT nothing")
    assert java_throwable(of_spark.value).getClass().getSimpleName() == "ExtendedAnalysisException"
    with pytest.raises(Py4JJavaError) as of_py4j:
        jvm(spark).java.util.Optional.empty().get()
    assert java_throwable(of_py4j.value).getClass().getSimpleName() == "NoSuchElementException"
    assert java_throwable(ValueError("in Python")) is None
