"""A Hive table or view as a history, through the session's metastore."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition.history import HiveHistory
from spark_jobs.errors import SourceError
from spark_jobs.spark.failures import reading, short
from spark_jobs.spark.session import check_metastore

_URIS = "spark.hadoop.hive.metastore.uris"


def read_table(spark: SparkSession, history: HiveHistory) -> DataFrame:
    """The table as it is now, lazily: filters on its partition columns prune what is read.

    Raises SourceError for an unreachable metastore, another one than the session's, and a missing table.
    """
    uri = _metastore(spark, history)
    if uri:
        check_metastore(uri)
    try:
        with reading(uri or history.table):
            # Another application may have added partitions or files since this session last looked.
            spark.catalog.refreshTable(history.table)
            return spark.table(history.table)
    except (AnalysisException, Py4JJavaError, PySparkException) as error:
        raise _missing(spark, history, error, uri) from error


def table_partitions(spark: SparkSession, history: HiveHistory) -> tuple[str, ...]:
    """The table's partition columns; none for a view."""
    with reading(history.table):
        return tuple(column.name for column in spark.catalog.listColumns(history.table) if column.isPartition)


def _metastore(spark: SparkSession, history: HiveHistory) -> str | None:
    own = spark.sparkContext.getConf().get(_URIS)
    if history.metastore and own != history.metastore:
        uses = f"the metastore {own}" if own else "no Hive metastore"
        raise SourceError(
            f"this Spark session uses {uses}, not {history.metastore}",
            history.table,
            "Start it with the pipeline's own metastore: set REWINDOW_METASTORE to it, or leave `metastore` out.",
        )
    return own


def _missing(spark: SparkSession, history: HiveHistory, error: Exception, uri: str | None) -> SourceError:
    condition = getattr(error, "getCondition", lambda: "")() or ""
    where = uri or "no metastore is set"
    hint = "" if uri else " Set `metastore` in the pipeline's history, or REWINDOW_METASTORE."
    if "TABLE_OR_VIEW_NOT_FOUND" in condition:
        database, _, name = history.table.rpartition(".")
        return SourceError(f"there is no table `{history.table}`", where, _tables(spark, database, name) + hint)
    if "SCHEMA_NOT_FOUND" in condition or "NoSuchNamespace" in str(error):
        return SourceError(f"there is no database of table `{history.table}`", where, "Correct history.table." + hint)
    return SourceError(f"the table cannot be read: {short(str(error))}", history.table, "Correct history.table." + hint)


def _tables(spark: SparkSession, database: str, name: str) -> str:
    from spark_jobs.definition.fields import nearest

    # Names alone, not catalog.listTables: that looks up every table, and fails of one that Spark cannot read.
    query = "SHOW TABLES IN IDENTIFIER(:database)" if database else "SHOW TABLES"
    try:
        listed = spark.sql(query, {"database": database} if database else None).collect()
    except (PySparkException, Py4JJavaError) as error:
        if "SCHEMA_NOT_FOUND" in str(error):
            return f"Correct history.table; there is no database `{database}` either."
        return f"Correct history.table; its database's tables cannot be listed: {short(str(error))}."
    known = sorted(row.tableName for row in listed if not row.isTemporary)
    near = nearest(name, known)
    if near:
        return f"Did you mean `{database + '.' if database else ''}{near}`?"
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"Correct history.table; the database has {shown or 'no tables'}."
