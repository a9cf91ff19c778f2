"""Files as a history: find them, check that their schemas agree, and read exactly the files of a plan."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.definition.history import FilesHistory
from spark_jobs.errors import SourceError
from spark_jobs.sources.decode import RAW, decode
from spark_jobs.spark.failures import plain_path, reading, short
from spark_jobs.spark.gateway import (
    JAVA_ERRORS,
    JavaObject,
    analyzed_plan,
    hadoop_conf,
    hadoop_path,
    jvm,
    session_state,
)
from spark_jobs.spark.java import java_reason

_LISTING_OPTIONS = ("basepath", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter")
_LINE_OPTIONS = ("linesep", "encoding", "charset")
_GLOB = "*?[{"
_GLOB_CHARACTER = re.compile(r"[\\*?\[\]{}]")
_FOOTER_THREADS = 8

OptionValue = str | int | float | bool


@dataclass(frozen=True, slots=True, order=True)
class PinnedFile:
    """One file as a plan pins it: its URI and its size in bytes."""

    path: str
    size: int


def find_files(spark: SparkSession, history: FilesHistory) -> tuple[PinnedFile, ...]:
    """The files that match the definition's paths, sorted by path. Raises SourceError where there is none."""
    where = ", ".join(plain_path(path) for path in history.path)
    try:
        with reading(where):
            found = _pinned(_relation(spark, history))
    except AnalysisException as error:
        raise SourceError(f"the files cannot be listed: {short(str(error))}", where, "Correct history.path.") from error
    except SourceError as error:
        if "is gone" not in error.what:
            raise
        found = ()
    if not found:
        raise SourceError("no file matches", where, "Correct history.path, or put the files there.")
    return found


def check_pinned(spark: SparkSession, pinned: Sequence[PinnedFile]) -> None:
    """Check the files of a plan. Raises SourceError where one is gone, has another size or cannot be read."""
    conf = hadoop_conf(spark)
    for file in pinned:
        path = hadoop_path(spark, file.path)
        try:
            size = path.getFileSystem(conf).getFileStatus(path).getLen()
        except JAVA_ERRORS as error:
            if "FileNotFound" in java_reason(error):
                hint = "Put it back, or plan again."
                raise SourceError("a file of the plan is gone", plain_path(file.path), hint) from error
            hint = "Check the file's permissions and its file system."
            what = f"a file of the plan cannot be read: {java_reason(error)}"
            raise SourceError(what, plain_path(file.path), hint) from error
        if size != file.size:
            raise SourceError(
                f"a file of the plan has changed: it had {file.size} bytes and has {size} now",
                plain_path(file.path),
                "Plan again.",
            )


def read_files(
    spark: SparkSession,
    history: FilesHistory,
    files: Sequence[PinnedFile],
    schema: StructType | None,
    *,
    infer_from: int | None = None,
) -> DataFrame:
    """Open exactly these files, lazily.

    JSON and CSV files get two more columns: RAW (the line) and REASON (why it cannot be decoded; null: it can).

    Args:
        schema: The fields of JSON or CSV lines; None: they are inferred.
        infer_from: Infer them from so many files only.

    Raises:
        SourceError: A file cannot be read, or the headers of CSV files differ.
    """
    paths = [_GLOB_CHARACTER.sub(r"\\\g<0>", file.path) for file in files]
    with reading(plain_path(paths[0]) if len(paths) == 1 else f"{len(paths)} files"):
        if history.format == "parquet":
            return _exactly(spark.read.options(**history.options), history, spark).parquet(*paths)
        _refuse_multiline(history)
        lines = _exactly(_reader(spark, history, _LINE_OPTIONS), history, spark).text(paths)
        lines = lines.withColumnRenamed("value", RAW).where(F.trim(RAW) != "")
        if history.format == "json":
            schema = schema or _inferred(spark.read.options(**history.options).json(paths[:infer_from]).schema)
            return decode(lines, F.col(RAW), "json", schema, history.options)
        return _csv(spark, history, lines, paths, schema, infer_from)


def check_same_schema(spark: SparkSession, history: FilesHistory, files: Sequence[PinnedFile]) -> None:
    """Check that Parquet files have the same columns.

    With the option `mergeSchema` a column may be missing in some files; its types must still agree. Nullability and the
    order of columns may differ.

    Raises SourceError where a footer cannot be read, or where names or types of columns differ.
    """
    if history.format != "parquet":
        return
    footers = _Footers(spark)
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        schemas = list(pool.map(footers.schema, (file.path for file in files)))
    may_miss = str(_option(history, "mergeschema", "false")).lower() == "true"
    seen: dict[str, tuple[str, str]] = {}
    first, distinct = files[0].path, set()
    for file, schema in zip(files, schemas, strict=True):
        if id(schema) in distinct:
            continue
        distinct.add(id(schema))
        types = {field.name: field.dataType.simpleString() for field in schema}
        for name, kind in types.items():
            other, where = seen.setdefault(name, (kind, file.path))
            if other != kind:
                raise _mixed(f"column `{name}` is {other.upper()} in one and {kind.upper()} in the other", where, file)
        if may_miss:
            continue
        for name in seen.keys() - types.keys():
            raise _mixed(f"column `{name}` is only in the first", seen[name][1], file)
        for name in (name for name, (_, where) in seen.items() if where == file.path and file.path != first):
            raise _mixed(f"column `{name}` is only in the second", first, file)


def _mixed(what: str, first: str, second: PinnedFile) -> SourceError:
    return SourceError(
        f"the files have different schemas: {what}",
        f"{plain_path(first)} and {plain_path(second.path)}",
        "Rewrite one of them or leave it out. Where a column was added later, write `options: {mergeSchema: true}`.",
    )


class _Footers:
    """Schemas of Parquet files from their footers alone; equal footers give the very same object."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm(spark)
        state = session_state(spark)
        self._conf = hadoop_conf(spark)
        package = self._jvm.org.apache.spark.sql.execution.datasources.parquet
        self._converter = package.ParquetToSparkSchemaConverter(state.conf())
        self._known: dict[str, StructType] = {}

    def schema(self, path: str) -> StructType:
        hadoop = self._jvm.org.apache.parquet.hadoop
        try:
            file = hadoop.util.HadoopInputFile.fromPath(self._jvm.org.apache.hadoop.fs.Path(path), self._conf)
            reader = hadoop.ParquetFileReader.open(file)
            try:
                message = reader.getFileMetaData().getSchema()
            finally:
                reader.close()
        except JAVA_ERRORS as error:
            raise SourceError(
                f"truncated, or not a Parquet file: {short(java_reason(error))}",
                plain_path(path),
                "Write it again, or leave it out.",
            ) from error
        text = message.toString()
        if text not in self._known:
            self._known[text] = StructType.fromJson(json.loads(self._converter.convert(message).json()))
        return self._known[text]


def _csv(
    spark: SparkSession,
    history: FilesHistory,
    lines: DataFrame,
    paths: list[str],
    schema: StructType | None,
    infer_from: int | None,
) -> DataFrame:
    """CSV lines, their columns named by the header if there is one, else by the schema in its order."""
    comment = str(_option(history, "comment", ""))
    if comment:
        lines = lines.where(~F.col(RAW).startswith(comment))
    has_header = str(_option(history, "header", "false")).lower() == "true"
    fields = schema or _inferred(spark.read.options(**history.options).csv(paths[:infer_from]).schema)
    if not has_header:
        return decode(lines, F.col(RAW), "csv", fields, history.options)
    header, names = _header(spark, history, paths)
    known = {field.name.lower(): field for field in fields}
    missing = [field.name for field in known.values() if field.name.lower() not in {name.lower() for name in names}]
    if missing:
        raise SourceError(
            f"the header has no column `{missing[0]}`",
            plain_path(paths[0]),
            f"Correct value.schema; the header has {', '.join(names)}.",
        )
    whole = StructType([known.get(name.lower()) or StructField(name, StringType()) for name in names])
    records = lines.where(F.regexp_replace(F.col(RAW), "^\ufeff", "") != F.lit(header))
    return decode(records, F.col(RAW), "csv", whole, history.options, only=schema)


def _header(spark: SparkSession, history: FilesHistory, paths: Iterable[str]) -> tuple[str, list[str]]:
    """The header line that all files share, and its column names."""
    found: tuple[str, str] | None = None
    for path in paths:
        head = spark.read.options(**_chosen(history, _LINE_OPTIONS)).text(path).where("trim(value) <> ''").head(1)
        if not head:
            continue
        line = str(head[0][0]).removeprefix("\ufeff")
        if found is not None and line != found[1]:
            raise SourceError(
                f"the files have different headers: `{found[1]}` and `{line}`",
                f"{plain_path(found[0])} and {plain_path(path)}",
                "Give the files of each header a pipeline of their own, or rewrite them.",
            )
        found = found or (path, line)
    if found is None:
        where = ", ".join(map(plain_path, history.path))
        raise SourceError("all files are empty, so there is no CSV header", where, "Put files with records there.")
    separator = str(_option(history, "sep", _option(history, "delimiter", ",")))
    quote = str(_option(history, "quote", '"')) or None
    names = next(csv.reader([found[1]], delimiter=separator, quotechar=quote))
    return found[1], [name.strip() for name in names]


def _inferred(schema: StructType) -> StructType:
    return StructType([field for field in schema if field.name != "_corrupt_record"])


def _refuse_multiline(history: FilesHistory) -> None:
    if str(_option(history, "multiline", "false")).lower() == "true":
        hint = "Leave the option `multiLine` out and write one record on each line."
        raise SourceError("records over several lines cannot be read", plain_path(history.path[0]), hint)


def _option(history: FilesHistory, name: str, default: OptionValue = "") -> OptionValue:
    """One of Spark's reader options, by its name in lower case."""
    return next((value for key, value in history.options.items() if key.lower() == name), default)


def _chosen(history: FilesHistory, names: Sequence[str]) -> dict[str, OptionValue]:
    return {key: value for key, value in history.options.items() if key.lower() in names}


def _reader(spark: SparkSession, history: FilesHistory, options: Sequence[str]) -> DataFrameReader:
    reader = spark.read.options(**_chosen(history, options))
    base = _base_path(spark, history)
    return reader.option("basePath", base) if base and "basepath" in options else reader


def _exactly(reader: DataFrameReader, history: FilesHistory, spark: SparkSession) -> DataFrameReader:
    """Files are named one by one; folders `k=v` above them still give columns."""
    base = _option(history, "basepath") or _base_path(spark, history)
    return reader.option("basePath", str(base)) if base else reader


def _base_path(spark: SparkSession, history: FilesHistory) -> str | None:
    """The folder below which folders named `k=v` are partition columns: what comes before the first wildcard."""
    if _option(history, "basepath"):
        return None
    folders = [_literal_folder(spark, path) for path in history.path]
    common = folders[0].split("/")
    for folder in folders[1:]:
        parts = folder.split("/")
        same = [a == b for a, b in zip(common, parts, strict=False)]
        common = common[: same.index(False) if False in same else len(same)]
    base = "/".join(common)
    return base if len(folders) == 1 or base.strip("/").count("/") else None


def _literal_folder(spark: SparkSession, path: str) -> str:
    wild = next((index for index, character in enumerate(path) if character in _GLOB), None)
    if wild is not None:
        return path[:wild].rpartition("/")[0] or "/"
    location = hadoop_path(spark, path)
    try:
        system = location.getFileSystem(hadoop_conf(spark))
        if system.getFileStatus(location).isDirectory():
            return path.rstrip("/") or "/"
    except JAVA_ERRORS:
        pass  # listing it says what is wrong
    return path.rpartition("/")[0] or "/"


def file_partitions(spark: SparkSession, history: FilesHistory) -> tuple[str, ...]:
    """The columns that come from folders named `k=v`."""
    with reading(plain_path(history.path[0])):
        return tuple(_relation(spark, history).partitionSchema().fieldNames())


def _relation(spark: SparkSession, history: FilesHistory) -> JavaObject:
    """What Spark would read below the paths: it leaves out names that begin with `_` or `.`. No file is opened."""
    frame = _reader(spark, history, _LISTING_OPTIONS).text(list(history.path))
    return analyzed_plan(frame).relation()


def _pinned(relation: JavaObject) -> tuple[PinnedFile, ...]:
    statuses = relation.location().allFiles()
    found = (statuses.apply(index) for index in range(statuses.size()))
    return tuple(sorted({PinnedFile(status.getPath().toString(), status.getLen()) for status in found}))
