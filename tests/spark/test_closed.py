"""What SQL of a definition, a suite or a query cannot reach, and who cannot reach a local Spark."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_jobs.errors import DefinitionError
from spark_jobs.operations.query import query
from spark_jobs.spark.expression_tree import foreign_in_text
from spark_jobs.spark.gateway import jvm
from spark_jobs.spark.session import spark_session

CALLS = [
    f"{name}('java.lang.System', 'getProperty', 'user.home')"
    for name in ("reflect", "java_method", "try_reflect", "REFLECT", "`Java_Method`", "system.builtin.reflect")
]
READS = ["'${env:PATH}'", "'${system:user.home}'", "'${spark.app.name}'"]


@pytest.fixture(params=["the first", "a new one"])
def session(request: pytest.FixtureRequest, spark: SparkSession, tmp_path) -> SparkSession:
    if request.param == "the first":
        return spark
    return spark_session("tests", home=tmp_path)


@pytest.mark.parametrize("text", CALLS)
def test_sql_calls_no_java(session: SparkSession, text: str) -> None:
    frame = session.range(1)
    for attempt in (lambda: session.sql(f"SELECT {text}"), lambda: frame.selectExpr(f"max({text})"),
                    lambda: frame.where(f"{text} = ''"), lambda: query(session, f"SELECT {text}", 1)):  # fmt: skip
        with pytest.raises((AnalysisException, DefinitionError)):
            attempt()
    found = foreign_in_text(session, text)
    assert found is not None and "calls Java" in found.what


@pytest.mark.parametrize("text", READS)
def test_sql_reads_neither_the_environment_nor_settings(session: SparkSession, text: str) -> None:
    """Spark would put the value into the text before it parses it."""
    assert session.sql(f"SELECT {text} AS a").collect()[0].a == text.strip("'")
    assert session.range(1).selectExpr(f"{text} AS a").collect()[0].a == text.strip("'")
    assert query(session, f"SELECT {text} AS a", 1).rows == ((text.strip("'"),),)


def test_sql_opens_no_files(session: SparkSession, tmp_path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    for kind in ("text", "csv", "json", "binaryFile"):
        with pytest.raises((AnalysisException, DefinitionError)):
            session.sql(f"SELECT * FROM {kind}.`{tmp_path}/secret`").collect()


def test_a_stranger_cannot_speak_to_a_local_spark(spark: SparkSession) -> None:
    """Any user of the machine can connect to the ports of the driver: without the secret, nothing is answered."""
    packages = jvm(spark).org.apache.spark
    conf = packages.SparkConf(False).set("spark.rpc.askTimeout", "20s").set("spark.rpc.lookupTimeout", "20s")
    by_default = [getattr(packages.SecurityManager, f"$lessinit$greater$default${n}")() for n in (2, 3)]
    manager = packages.SecurityManager(conf, *by_default)
    stranger = packages.rpc.RpcEnv.create("stranger", "127.0.0.1", 0, conf, manager, True)
    try:
        address = packages.rpc.RpcAddress("127.0.0.1", int(spark.conf.get("spark.driver.port") or 0))
        with pytest.raises(Py4JJavaError):
            stranger.setupEndpointRef(address, "MapOutputTracker")
    finally:
        stranger.shutdown()
