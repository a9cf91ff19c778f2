"""A Hive table or view as a history, through the session's metastore."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition.fields import nearest
from spark_jobs.errors import SourceError
from spark_jobs.spark.failures import reading, short
from spark_jobs.spark.gateway import JAVA_ERRORS
from spark_jobs.spark.session import check_metastore

_URIS = "spark.hadoop.hive.metastore.uris"


def read_table(spark: SparkSession, table: str, metastore: str | None) -> DataFrame:
    """Open a Hive table or view as it is now. Nothing is read yet; filters on its partition columns prune the read.

    Args:
        table: The name, with its database.
        metastore: The URI that the definition gives; None: the session's own.

    Raises:
        SourceError: The metastore does not answer or is not the session's, or there is no such table.
    """
    uri = _session_metastore(spark, table, metastore)
    if uri:
        check_metastore(uri)
    try:
        with reading(uri or table):
            # Another application may have added partitions or files since this session read the table's metadata.
            spark.catalog.refreshTable(table)
            return spark.table(table)
    except JAVA_ERRORS as error:
        raise _read_failure(spark, table, error, uri) from error


def table_partitions(spark: SparkSession, table: str) -> tuple[str, ...]:
    """The table's partition columns; none for a view."""
    with reading(table):
        return tuple(column.name for column in spark.catalog.listColumns(table) if column.isPartition)


def _session_metastore(spark: SparkSession, table: str, metastore: str | None) -> str | None:
    """The URI of the session's metastore. Raises SourceError where the definition names another one."""
    own = spark.sparkContext.getConf().get(_URIS)
    if metastore and own != metastore:
        uses = f"the metastore {own}" if own else "no Hive metastore"
        raise SourceError(
            f"this Spark session uses {uses}, not {metastore}",
            table,
            "Start it with the pipeline's own metastore: set REWINDOW_METASTORE to it, or leave `metastore` out.",
        )
    return own


def _read_failure(spark: SparkSession, table: str, error: Exception, uri: str | None) -> SourceError:
    condition = getattr(error, "getCondition", lambda: "")() or ""
    where = uri or "no metastore is set"
    hint = "" if uri else " Set `metastore` in the pipeline's history (`init`: --metastore), or REWINDOW_METASTORE."
    if "TABLE_OR_VIEW_NOT_FOUND" in condition:
        database, _, name = table.rpartition(".")
        return SourceError(f"there is no table `{table}`", where, _similar_tables(spark, database, name) + hint)
    if "SCHEMA_NOT_FOUND" in condition or "NoSuchNamespace" in str(error):
        return SourceError(f"there is no database of table `{table}`", where, "Correct history.table." + hint)
    return SourceError(f"the table cannot be read: {short(str(error))}", table, "Correct history.table." + hint)


def _similar_tables(spark: SparkSession, database: str, name: str) -> str:
    """A hint with the table that was probably meant, else the tables of the database."""
    # Names alone, not catalog.listTables: that looks up every table, and fails of one that Spark cannot read.
    query = "SHOW TABLES IN IDENTIFIER(:database)" if database else "SHOW TABLES"
    try:
        listed = spark.sql(query, {"database": database} if database else None).collect()
    except JAVA_ERRORS as error:
        if "SCHEMA_NOT_FOUND" in str(error):
            return f"Correct history.table; there is no database `{database}` either."
        return f"Correct history.table; its database's tables cannot be listed: {short(str(error))}."
    known = sorted(row.tableName for row in listed if not row.isTemporary)
    near = nearest(name, known)
    if near:
        return f"Did you mean `{database + '.' if database else ''}{near}`?"
    shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"Correct history.table; the database has {shown or 'no tables'}."
