"""The files behind a table of a metastore: what is compared, because a name alone does not say what was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import SourceError
from spark_jobs.identities import TableShape
from spark_jobs.pins import PinnedFile
from spark_jobs.sources.files.log_files import pinned_file, refuse_changed
from spark_jobs.spark.expression_tree import nodes_of
from spark_jobs.spark.failures import plain_path, reading
from spark_jobs.spark.gateway import JavaObject, analyzed_plan, elements, hadoop_conf, jvm, session_state

_HIDDEN = ("_", ".")


def table_shape(spark: SparkSession, frame: DataFrame) -> tuple[TableShape, dict[str, str]]:
    """The shape of the tables that `frame` reads, and the place and type of each of their columns."""
    plan = analyzed_plan(frame)
    views, partitions, columns = list[str](), dict[str, str](), dict[str, str]()
    for node, _ in nodes_of(plan):
        kind = node.getClass().getSimpleName()
        if kind == "View":
            text = node.desc().viewText()
            views.append(_digest(text.get() if text.isDefined() else ""))
        elif (table := _table_of(node, kind)) is not None:
            name, schema = table.identifier().unquotedString(), table.dataSchema()
            columns |= {
                f"{name}.{schema.apply(i).name()}": f"{i} {schema.apply(i).dataType().catalogString()}"
                for i in range(schema.length())
            }
            partitions |= _partitions_of(spark, table)
    return TableShape(tuple(views), partitions), columns


def _table_of(node: JavaObject, kind: str) -> JavaObject | None:
    if kind == "HiveTableRelation":
        return node.tableMeta()
    if kind == "LogicalRelation" and node.catalogTable().isDefined():
        return node.catalogTable().get()
    return None


def _partitions_of(spark: SparkSession, table: JavaObject) -> dict[str, str]:
    if table.partitionColumnNames().isEmpty():
        return {}
    nothing = getattr(jvm(spark).scala, "None$").__getattr__("MODULE$")
    found = session_state(spark).catalog().listPartitions(table.identifier(), nothing)
    return {_digest(one.location().toString()): _digest(one.spec().toString()) for one in elements(found)}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def files_behind(spark: SparkSession, frame: DataFrame, table: str) -> tuple[PinnedFile, ...] | None:
    """All files of the tables that `frame` reads, by path; None where a table has no files that Spark knows of.

    Raises SourceError for a partition that the metastore has and whose folder is gone.
    """
    found: set[PinnedFile] = set()
    with reading(table):
        for leaf in elements(analyzed_plan(frame).collectLeaves()):
            kind = leaf.getClass().getSimpleName()
            if kind == "LogicalRelation" and leaf.relation().getClass().getSimpleName() == "HadoopFsRelation":
                listed = _listed(spark, leaf.relation().location())
                if leaf.catalogTable().isDefined():
                    _refuse_lost_folders(spark, leaf.catalogTable().get(), listed)
            elif kind == "HiveTableRelation":
                listed = _in_folders(spark, leaf.tableMeta())
            else:
                return None
            found.update(listed)
    return tuple(sorted(found, key=lambda file: file.path))


def confirm_behind(table: str, pinned: Sequence[PinnedFile], now: Sequence[PinnedFile]) -> tuple[PinnedFile, ...]:
    """The files that came to a table since a plan pinned its files.

    Raises SourceError where a file of the plan is gone or was written again: half a run would read other records.
    """
    refuse_changed(pinned, now, table)
    known = {file.path for file in pinned}
    return tuple(file for file in now if file.path not in known)


def records_in(frame: DataFrame, files: Iterable[PinnedFile]) -> DataFrame | None:
    """The rows of `frame` that are in these files; None where Spark does not know the file of a row."""
    name = _file_of(frame)
    return None if name is None else frame.where(name.isin([file.named_by_spark for file in files]))


def records_outside(frame: DataFrame, files: Sequence[PinnedFile]) -> DataFrame:
    """The rows of `frame` that are in none of these files; all rows where Spark does not know the file of a row."""
    name = _file_of(frame) if files else None
    return frame if name is None else frame.where(~name.isin([file.named_by_spark for file in files]))


def _file_of(frame: DataFrame) -> Column | None:
    """Spark skips files by a condition on this column."""
    name = F.col("_metadata.file_path")
    try:
        frame.select(name)
    except AnalysisException:  # a table that Hive's own classes read, or a view that joins tables
        return None
    return name


def _listed(spark: SparkSession, location: JavaObject) -> list[PinnedFile]:
    nothing = getattr(jvm(spark).scala.collection.immutable, "Nil$").__getattr__("MODULE$")
    folders = elements(location.listFiles(nothing, nothing))
    return [pinned_file(file) for folder in folders for file in elements(folder.files())]


def _folders_of(spark: SparkSession, table: JavaObject) -> list[JavaObject]:
    """The folders (Hadoop's Path) of a table's partitions; of one without partitions its own."""
    path = jvm(spark).org.apache.hadoop.fs.Path
    if table.partitionColumnNames().isEmpty():
        return [path(table.location())]
    nothing = getattr(jvm(spark).scala, "None$").__getattr__("MODULE$")
    partitions = session_state(spark).catalog().listPartitions(table.identifier(), nothing)
    return [path(one.location()) for one in elements(partitions)]


def _refuse_lost_folders(spark: SparkSession, table: JavaObject, listed: Iterable[PinnedFile]) -> None:
    """A partition without a file is right where its folder is there; else its records are lost."""
    if table.partitionColumnNames().isEmpty():
        return
    filled = {file.path.rpartition("/")[0] for file in listed}
    conf = hadoop_conf(spark)
    for path in _folders_of(spark, table):
        system = path.getFileSystem(conf)
        if system.makeQualified(path).toString() not in filled and not system.exists(path):
            raise _lost(table, path)


def _in_folders(spark: SparkSession, table: JavaObject) -> list[PinnedFile]:
    """The files of a table that Hive's own classes read: Spark keeps no list of them."""
    conf, found = hadoop_conf(spark), []
    for path in _folders_of(spark, table):
        system = path.getFileSystem(conf)
        if not system.exists(path):
            raise _lost(table, path)
        statuses = (s for s in system.listStatus(path) if s.isFile())
        found += [pinned_file(s) for s in statuses if not s.getPath().getName().startswith(_HIDDEN)]
    return found


def _lost(table: JavaObject, folder: JavaObject) -> SourceError:
    return SourceError(
        "the metastore has a partition whose folder is gone: its records cannot be read",
        f"{table.identifier().unquotedString()}, {plain_path(folder.toString())}",
        "Put the folder back, or drop the partition from the table.",
    )
