"""The JVM behind PySpark: the only module that touches PySpark's private members.

PySpark offers no public way to Hadoop's file systems, Spark's parser and catalog, or Iceberg's own Java interface. All
other modules reach them through the functions here, so that a new PySpark has to be checked in one place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from py4j import java_gateway
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

JavaObject: TypeAlias = Any
"""An object, class or package in the JVM. py4j looks its members up when they are called, so no type describes them."""

JAVA_ERRORS = (Py4JJavaError, PySparkException)
"""What a call into Java raises: PySpark turns some of Java's exceptions (as IllegalArgumentException) into its own."""

_LOOKED_UP_OFTEN = ("org.apache.spark.sql.functions", "functions", "PythonUtils", "PythonSQLUtils", "py4j")


def jvm(spark: SparkSession) -> JavaObject:
    """The root of all Java packages, as in `jvm(spark).java.util.HashMap()`."""
    return spark._jvm


def java_session(spark: SparkSession) -> JavaObject:
    """Java's SparkSession."""
    return spark._jsparkSession


def session_state(spark: SparkSession) -> JavaObject:
    """The session's parser, catalog and configuration (`org.apache.spark.sql.internal.SessionState`)."""
    return java_session(spark).sessionState()


def parsed_plan(spark: SparkSession, text: str) -> JavaObject:
    """The logical plan of a statement as Spark's parser reads it; nothing is looked up and nothing is carried out.

    Raises ParseException for what is no SQL.
    """
    return session_state(spark).sqlParser().parsePlan(text)


def is_instance_of(spark: SparkSession, value: JavaObject, java_class: str) -> bool:
    """Whether a Java object is of a class or has an interface, by its full name."""
    context: JavaObject = spark.sparkContext
    return java_gateway.is_instance_of(context._gateway, value, java_class)


def elements(found: JavaObject) -> Iterator[JavaObject]:
    """What a collection of Java or Scala has, one after the other."""
    iterator = found.iterator()
    while iterator.hasNext():
        yield iterator.next()


def hadoop_conf(spark: SparkSession) -> JavaObject:
    """A new Hadoop configuration with the session's settings."""
    return session_state(spark).newHadoopConf()


def hadoop_path(spark: SparkSession, path: str) -> JavaObject:
    """Hadoop's Path of a path or address."""
    return jvm(spark).org.apache.hadoop.fs.Path(path)


def all_bytes(stream: JavaObject) -> bytes:
    """What is left of a Java stream, which is closed then."""
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def java_context(spark: SparkSession) -> JavaObject:
    """Scala's SparkContext, which knows the jobs and stages."""
    context: JavaObject = spark.sparkContext
    return context._jsc.sc()


def query_execution(frame: DataFrame) -> JavaObject:
    """The plans of a DataFrame (`org.apache.spark.sql.execution.QueryExecution`); no Spark job runs."""
    private: JavaObject = frame
    return private._jdf.queryExecution()


def analyzed_plan(frame: DataFrame) -> JavaObject:
    """The logical plan of a DataFrame after Spark has resolved its columns; no Spark job runs."""
    return query_execution(frame).analyzed()


def tried(column: Column) -> Column:
    """The column; null where computing it fails on a record."""
    private: JavaObject = column
    context: JavaObject = SparkContext._active_spark_context
    packages = context._jvm
    utils = packages.org.apache.spark.sql.classic.ExpressionUtils
    return Column(
        utils.column(packages.org.apache.spark.sql.catalyst.expressions.TryEval(utils.expression(private._jc)))
    )


def literal_map(texts: Mapping[str, str]) -> Column:
    """A map as one literal. `create_map` has a builder in its expression, which two threads that plan one frame share.

    One of them then finds each key twice (DUPLICATED_MAP_KEY).
    """
    context: JavaObject = SparkContext._active_spark_context
    packages = context._jvm
    kind = packages.org.apache.spark.sql.types.DataType.fromDDL("MAP<STRING, STRING>")
    literal = packages.org.apache.spark.sql.catalyst.expressions.Literal
    value = literal.create(packages.PythonUtils.toScalaMap(dict(texts)), kind)
    return Column(packages.org.apache.spark.sql.classic.ExpressionUtils.column(value))


def expression_of(spark: SparkSession, column: Column) -> JavaObject:
    """The expression of a column; the opposite of `column_of`."""
    private: JavaObject = column
    return jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.expression(private._jc)


def with_children(spark: SparkSession, expression: JavaObject, children: Sequence[JavaObject]) -> JavaObject:
    """The expression with other children."""
    return expression.withNewChildren(jvm(spark).PythonUtils.toSeq(list(children)))


def column_of(spark: SparkSession, expression: JavaObject) -> Column:
    """A resolved expression of an analyzed plan as a column, for frames with the columns that it refers to."""
    return Column(jvm(spark).org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def csv_cells(spark: SparkSession, line: str, options: Mapping[str, Any]) -> list[str]:
    """The cells of one CSV line, by Spark's own parser and options."""
    packages = jvm(spark)
    texts = packages.PythonUtils.toScalaMap({key: str(value) for key, value in options.items()})
    settings = packages.org.apache.spark.sql.catalyst.csv.CSVOptions(texts, False, "UTC").asParserSettings()
    cells = packages.com.univocity.parsers.csv.CsvParser(settings).parseLine(line)
    return ["" if cell is None else str(cell) for cell in cells or []]


def frame_of(spark: SparkSession, java_frame: JavaObject) -> DataFrame:
    """A DataFrame of Java as one of Python."""
    return ClassicDataFrame(java_frame, spark)


def iceberg_catalog(spark: SparkSession, name: str) -> JavaObject:
    """Iceberg's own catalog (`org.apache.iceberg.catalog.Catalog`) behind Spark's catalog `name`."""
    with active_session(spark):
        return session_state(spark).catalogManager().catalog(name).icebergCatalog()


def loaded_iceberg_table(spark: SparkSession, name: str) -> JavaObject:
    """Iceberg's own table (`org.apache.iceberg.Table`), as it is now, by its full name with the catalog."""
    with active_session(spark):
        table = jvm(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java_session(spark), name)
    table.refresh()
    return table


@contextmanager
def active_session(spark: SparkSession) -> Iterator[None]:
    """Make the session the active one of the JVM's thread while the block runs.

    Spark makes a session's catalog at its first use, with the settings of the active session, whichever that is.
    """
    sessions = jvm(spark).org.apache.spark.sql.SparkSession
    before = sessions.getActiveSession()
    sessions.setActiveSession(java_session(spark))
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def java_throwable(error: BaseException) -> JavaObject | None:
    """The Java exception behind an error of py4j or PySpark; None where the error began in Python."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def context_conf(spark: SparkSession) -> SparkConf:
    """The settings of the running context itself; `SparkContext.getConf` gives a copy of them."""
    return spark.sparkContext._conf


def is_spark_running() -> bool:
    """Whether this process has a Spark context."""
    return SparkContext._active_spark_context is not None


def stop_context() -> None:
    """Stop this process's Spark context, if it has one."""
    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


def has_jvm() -> bool:
    """Whether PySpark has started a JVM in this process, or is connected to one. It survives `SparkSession.stop`."""
    return SparkContext._gateway is not None


def system_property(name: str, gateway: JavaObject | None) -> str | None:
    """A property of the JVM behind `gateway` (None: the one of this process); None where there is none."""
    known: JavaObject = gateway or SparkContext._gateway
    return None if known is None else known.jvm.java.lang.System.getProperty(name)


def connect_to_jvm() -> None:
    """Connect to the JVM that `spark-submit` has started this process from."""
    SparkContext._ensure_initialized()


def cache_java_names(context: SparkContext) -> None:
    """Cache the names that PySpark looks up for every column and query; Java searches all jars at each look-up."""
    for name in _LOOKED_UP_OFTEN:
        setattr(context._jvm, name, getattr(context._jvm, name))
