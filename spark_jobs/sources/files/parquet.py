"""Parquet files by their footers: whether they agree, and which of their columns Spark can read."""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.errors import SourceError
from spark_jobs.sources.records.attempts import FAILED
from spark_jobs.spark.failures import plain_path, short
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, hadoop_conf, jvm, session_state
from spark_jobs.spark.java import java_reason

_FOOTER_THREADS = 8
_NANOS = "TIMESTAMP(NANOS,"


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of a file with a schema of its own.

    Attributes:
        fields: Those that Spark can read. Timestamps of nanoseconds are BIGINT here, as Spark reads them.
        nanoseconds: The type that timestamps of nanoseconds become, by column, or by the path to a field of a struct.
        unreadable: Why Spark cannot read the others, by their names.
        instants: The columns with timestamps of a local time zone in an ORC file, which Spark does not open.
    """

    fields: tuple[StructField, ...]
    nanoseconds: Mapping[tuple[str, ...], str]
    unreadable: Mapping[str, str]
    instants: frozenset[str] = frozenset()

    @property
    def types(self) -> dict[str, str]:
        """The type of each column in words."""
        kinds = {field.name: field.dataType.simpleString() for field in self.fields}
        finer = {path[0]: f"{kind} of nanoseconds" for path, kind in self.nanoseconds.items() if len(path) == 1}
        local = {name: f"{kinds[name]} with local time zone" for name in self.instants}
        return kinds | finer | local | dict(self.unreadable)


def read_parquet(
    reader: DataFrameReader, paths: Sequence[str], columns: FileColumns, schema: StructType | None
) -> DataFrame:
    """The columns that Spark can read, timestamps of nanoseconds rounded down to microseconds.

    Columns of folders `k=v` are text, unless `schema` gives them another type.
    """
    if columns.unreadable:
        reader = reader.schema(StructType(list(columns.fields)))
    frame = reader.parquet(*paths)
    for (name, *fields), kind in columns.nanoseconds.items():
        whole = F.col(f"`{name}`")
        value = functools.reduce(lambda part, field: part[field], fields, whole)
        micros = F.call_function("div", value - F.pmod(value, F.lit(1000)), F.lit(1000))
        moment = F.timestamp_micros(micros).cast(kind)
        inner = ".".join(f"`{field}`" for field in fields)
        frame = frame.withColumn(name, whole.withField(inner, moment) if fields else moment)
    folders = {name.lower() for name in frame.columns} - {name.lower() for name in columns.types}
    return with_typed_folders(frame, schema or StructType(), folders)


def with_typed_folders(frame: DataFrame, schema: StructType, folders: Collection[str]) -> DataFrame:
    """Give columns of folders `k=v` (their names, in lower case) the types that `schema` says.

    FAILED says of a record in which folder the value has another type; it is there only if there is such a column.
    """
    of_folders = [f for f in schema if f.name.lower() in folders and not isinstance(f.dataType, StringType)]
    typed = {field.name: F.col(f"`{field.name}`").try_cast(field.dataType) for field in of_folders}
    wrong = [
        F.when(F.col(f"`{name}`").isNotNull() & value.isNull(), f"wrong type for field {name}")
        for name, value in typed.items()
    ]
    return frame.withColumns({FAILED: F.coalesce(*wrong), **typed}) if typed else frame


def columns_of(columns_of_file: Callable[[str], FileColumns], paths: Sequence[str]) -> FileColumns:
    """The columns of all these files together. Their types agree, see `check_same_columns`."""
    files = [columns_of_file(path) for path in paths]
    fields = {field.name: field for file in files for field in file.fields}
    nanoseconds = {name: kind for file in files for name, kind in file.nanoseconds.items()}
    unreadable = {name: why for file in files for name, why in file.unreadable.items()}
    instants = frozenset(name for file in files for name in file.instants)
    return FileColumns(tuple(fields.values()), nanoseconds, unreadable, instants)


def parquet_footers(spark: SparkSession) -> Callable[[str], FileColumns]:
    """The columns of a Parquet file by its path. Raises SourceError where the footer cannot be read."""
    return _Footers(spark).columns


def check_same_columns(
    paths: Sequence[str],
    columns_of_file: Callable[[str], FileColumns],
    *,
    may_miss: bool = False,
    hint: str = "Where a column was added later, write `options: {mergeSchema: true}`.",
) -> None:
    """Check that files have the same columns; nullability and order may differ.

    `may_miss`: a column may be missing in some files; its types must still agree. `hint`: what else may be done.

    Raises SourceError where a footer cannot be read, or where names or types of columns differ.
    """
    with ThreadPoolExecutor(_FOOTER_THREADS) as pool:
        files = list(pool.map(columns_of_file, paths))
    seen: dict[str, tuple[str, str]] = {}
    distinct = set()
    for path, columns in zip(paths, files, strict=True):
        if id(columns) in distinct:
            continue
        distinct.add(id(columns))
        types = columns.types
        for name, kind in types.items():
            other, where = seen.setdefault(name, (kind, path))
            if other != kind:
                what = f"column `{name}` is {other.upper()} in one and {kind.upper()} in the other"
                raise _mixed(what, where, path, hint)
        if may_miss:
            continue
        for name in seen.keys() - types.keys():
            raise _mixed(f"column `{name}` is only in the first", seen[name][1], path, hint)
        for name in (name for name, (_, where) in seen.items() if where == path and path != paths[0]):
            raise _mixed(f"column `{name}` is only in the second", paths[0], path, hint)


def _mixed(what: str, first: str, second: str, hint: str) -> SourceError:
    return SourceError(
        f"the files have different schemas: {what}",
        f"{plain_path(first)} and {plain_path(second)}",
        f"Rewrite one of them or leave it out. {hint}",
    )


def _nanoseconds(field: JavaObject) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths to the timestamps of nanoseconds in a column, but for those in lists and maps; and their types."""
    text, name = str(field.toString()), str(field.getName())
    if _NANOS not in text or text.startswith("repeated"):
        return
    if field.isPrimitive():
        yield (name,), "timestamp" if f"{_NANOS}true" in text else "timestamp_ntz"
    elif field.getLogicalTypeAnnotation() is None:
        for inner in field.asGroupType().getFields():
            for path, kind in _nanoseconds(inner):
                yield (name, *path), kind


class _Footers:
    """The columns of Parquet files from their footers alone; equal footers give the very same object."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm = jvm(spark)
        state = session_state(spark)
        self._conf = hadoop_conf(spark)
        package = self._jvm.org.apache.spark.sql.execution.datasources.parquet
        self._converter = package.ParquetToSparkSchemaConverter(state.conf())
        self._known: dict[str, FileColumns] = {}

    def columns(self, path: str) -> FileColumns:
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
            self._known[text] = self._converted(message)
        return self._known[text]

    def _converted(self, message: JavaObject) -> FileColumns:
        nanoseconds = {path: kind for field in message.getFields() for path, kind in _nanoseconds(field)}
        unreadable: dict[str, str] = {}
        written = {str(field.getName()) for field in message.getFields()}
        times = Counter(name.lower() for name in written)
        try:
            whole = None if max(times.values(), default=0) > 1 else self._fields_of(message)
        except JAVA_ERRORS:
            whole = None
        if whole is not None:
            return FileColumns(tuple(whole), nanoseconds, {})
        fields: list[StructField] = []
        for field in message.getFields():
            name = str(field.getName())
            if times[name.lower()] > 1:
                unreadable[name] = "one of several columns whose names differ in case only"
                continue
            alone = self._jvm.java.util.ArrayList()
            alone.add(field)
            try:
                fields += self._fields_of(self._jvm.org.apache.parquet.schema.MessageType("one", alone))
            except JAVA_ERRORS as error:
                found = re.search(r"type: (.+?)\. ?(?:SQLSTATE|$)", short(str(error)) + ". ")
                unreadable[name] = found[1] if found else "of a type that Spark does not know"
        return FileColumns(tuple(fields), nanoseconds, unreadable)

    def _fields_of(self, message: JavaObject) -> list[StructField]:
        return StructType.fromJson(json.loads(self._converter.convert(message).json())).fields
