"""Files as a history, also Avro containers and ORC.

Find them, check that their schemas agree, and read exactly the files of a plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.payload import Reader
from spark_jobs.errors import SourceError
from spark_jobs.pins import PinnedFile
from spark_jobs.sources.files.lines import OptionValue, is_on, option, read_lines
from spark_jobs.sources.files.orc import read_by_arrow
from spark_jobs.sources.files.parquet import (
    FileColumns,
    check_same_columns,
    columns_of,
    parquet_footers,
    read_parquet,
    with_typed_folders,
)
from spark_jobs.sources.lake.table_folders import MARKS, folders_above, refuse_table_folders
from spark_jobs.sources.records.avro_resolution import other_logical_type, other_named_unit
from spark_jobs.spark.failures import plain_path, reading, short
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, analyzed_plan, elements, hadoop_conf, hadoop_path, jvm
from spark_jobs.spark.java import java_reason

_LISTING_OPTIONS = ("basepath", "recursivefilelookup", "pathglobfilter", "modifiedbefore", "modifiedafter")
_LINE_OPTIONS = ("linesep",)
_LOCAL = " with local time zone"
_GLOB = "*?[{"
_GLOB_CHARACTER = re.compile(r"[\\*?\[\]{}]")


def find_files(spark: SparkSession, history: FilesHistory) -> tuple[PinnedFile, ...]:
    """The files that match the definition's paths, sorted by path.

    Raises SourceError where there is none, and where they are data files of a lake table.
    """
    where = ", ".join(plain_path(path) for path in history.path)
    try:
        with reading(where):
            if not history.has_lines:
                refuse_table_folders(_marks_of_tables(spark, history))
            found = _pinned(_relation(spark, history))
    except AnalysisException as error:
        raise SourceError(f"the files cannot be listed: {short(str(error))}", where, "Correct history.path.") from error
    except SourceError as error:
        if "is gone" not in error.what:
            raise
        found = ()
    if not found:
        hidden = [path for path in history.path if path.rstrip("/").rpartition("/")[2].startswith(("_", "."))]
        if hidden:
            hint = "Rename the files: names that begin with `_` or `.` are left out, as parts of unfinished writes are."
            raise SourceError("no file matches whose name is read", plain_path(hidden[0]), hint)
        raise SourceError("no file matches", where, "Correct history.path, or put the files there.")
    return found


def check_pinned(spark: SparkSession, pinned: Sequence[PinnedFile]) -> None:
    """Check the files of a plan. Raises SourceError where one is gone or was written again, or cannot be looked at."""
    refuse_changed(pinned, files_there(spark, pinned))


def refuse_changed(pinned: Iterable[PinnedFile], now: Iterable[PinnedFile], table: str = "") -> None:
    """Raises SourceError where a file of a plan is gone from those of `now`, or was written again: it names the file.

    `table`: the one that the files lie behind.
    """
    for file, found in changed_files(pinned, now):
        where = ", ".join(filter(None, (table, plain_path(file.path))))
        if found is None:
            raise SourceError("a file of the plan is gone", where, "Put it back, or plan again.")
        raise SourceError(f"a file of the plan has changed: {how_it_changed(file, found)}", where, "Plan again.")


def changed_files(
    pinned: Iterable[PinnedFile], now: Iterable[PinnedFile]
) -> Iterator[tuple[PinnedFile, PinnedFile | None]]:
    """The files that were written again, each with what it is `now`, and the files that are gone, with None."""
    there = {file.path: file for file in now}
    for file in pinned:
        found = there.get(file.path)
        if found != file:
            yield file, found


def files_there(spark: SparkSession, pinned: Iterable[PinnedFile]) -> list[PinnedFile]:
    """All files in the folders of these; none in one that is gone. Raises SourceError where one cannot be listed."""
    conf, found = hadoop_conf(spark), []
    for folder in dict.fromkeys(file.path.rpartition("/")[0] for file in pinned):
        path = hadoop_path(spark, folder)
        try:
            statuses = path.getFileSystem(conf).listStatus(path)
        except JAVA_ERRORS as error:
            if "FileNotFound" in java_reason(error):
                continue
            hint = "Check the folder's permissions and its file system."
            what = f"the files of the plan cannot be listed: {java_reason(error)}"
            raise SourceError(what, plain_path(folder), hint) from error
        found += [pinned_file(status) for status in statuses]
    return found


def pinned_file(status: JavaObject) -> PinnedFile:
    """A file by its status of Hadoop's FileSystem."""
    return PinnedFile(status.getPath().toString(), status.getLen(), status.getModificationTime())


def how_it_changed(before: PinnedFile, now: PinnedFile) -> str:
    """What differs between two looks at a file that was written again in between, for people."""
    if before.size != now.size:
        return f"it had {before.size} bytes and has {now.size} now"
    written, again = (format_instant(moment) for moment in (before.modified, now.modified))
    return f"it was written at {written}, and again at {again}"


def read_files(
    spark: SparkSession,
    history: FilesHistory,
    files: Sequence[PinnedFile],
    schema: StructType | None,
    *,
    infer_from: int | None = None,
    columns: FileColumns | None = None,
    reader: Reader = Reader.FLINK,
) -> DataFrame:
    """Open exactly these files, lazily.

    JSON and CSV files get two more columns: RAW (the line) and REASON (why it cannot be decoded; null: it can).

    Args:
        schema: The fields of JSON or CSV lines; None: they are inferred. Of other files only the types of columns
            that come from folders count.
        infer_from: Infer them from so many files only.
        columns: Those of Parquet and ORC files, where the caller has them already.
        reader: Whose rules decode JSON and CSV lines.

    Raises:
        SourceError: A file cannot be read, or the headers of CSV files differ.
    """
    paths = [_GLOB_CHARACTER.sub(r"\\\g<0>", file.path) for file in files]
    with reading(plain_path(paths[0]) if len(paths) == 1 else f"{len(paths)} files"):
        if history.format == "parquet":
            files_reader = _exactly(spark.read.options(**history.options), history, spark)
            known = columns or own_columns(spark, history, files)
            return read_parquet(files_reader, paths, known or FileColumns((), {}, {}), schema)
        if not history.has_lines:
            files_reader = _exactly(spark.read.options(**history.options), history, spark)
            folders = _relation(spark, history).partitionSchema().fieldNames()
            known = columns or own_columns(spark, history, files)
            return read_containers(files_reader, paths, history.format, list(folders), schema, known)
        files_reader = _exactly(_reader(spark, history, _LINE_OPTIONS), history, spark)
        sizes = [file.size for file in files]
        return read_lines(spark, history, files_reader, paths, sizes, schema, infer_from, reader)


def own_columns(spark: SparkSession, history: FilesHistory, files: Sequence[PinnedFile]) -> FileColumns | None:
    """The columns of Parquet and ORC files: those of one file, unless columns may be missing in some. Else None."""
    chosen = [file.path for file in (files if _merges(history) else files[:1])]
    with reading(plain_path(files[0].path)):
        if history.format == "parquet":
            return columns_of(parquet_footers(spark), chosen)
        return columns_of(Containers(spark, "orc").columns, chosen) if history.format == "orc" else None


def check_same_schema(spark: SparkSession, history: FilesHistory, files: Sequence[PinnedFile]) -> None:
    """Check that files with a schema of their own have the same columns, see `check_same_columns`.

    Avro files may differ where an option names the schema that all are read by, but not in the units of numbers.
    """
    paths = [file.path for file in files]
    if history.format == "parquet":
        check_same_columns(paths, parquet_footers(spark), may_miss=_merges(history))
    elif history.format == "orc":
        check_same_columns(paths, Containers(spark, "orc").columns, may_miss=_merges(history))
    elif history.format == "avro":
        containers, reader = Containers(spark, "avro"), _avro_reader(spark, history)
        if reader is None:
            hint = "Or name the schema that all are read by: `options: {avroSchemaUrl: /path/x.avsc}`."
            check_same_columns(paths, containers.columns, hint=hint)
        _check_same_units(paths, containers, reader)


def _avro_reader(spark: SparkSession, history: FilesHistory) -> str | None:
    """The schema that all Avro files are read by; None: each is read by its own."""
    if text := option(history, "avroschema"):
        return str(text)
    where = str(option(history, "avroschemaurl"))
    if not where:
        return None
    path = hadoop_path(spark, where)
    try:
        stream = path.getFileSystem(hadoop_conf(spark)).open(path)
        try:
            return str(jvm(spark).org.apache.avro.Schema.Parser().parse(stream).toString())
        finally:
            stream.close()
    except JAVA_ERRORS as error:
        what = f"the schema of `avroSchemaUrl` cannot be read: {short(java_reason(error))}"
        raise SourceError(what, plain_path(where), "Correct history.options.") from error


def _check_same_units(paths: Sequence[str], containers: Containers, reader: str | None) -> None:
    """Raise SourceError where a file's numbers would be taken for another time or decimal than its writer meant."""
    texts = {containers.avro_schema(path): path for path in reversed(paths)}
    first = next(reversed(texts))
    for text, path in reversed(texts.items()):
        wrong = other_named_unit(first, text) if reader is None else other_logical_type(reader, text)
        if wrong is not None:
            by = "of the first file" if reader is None else "of history.options"
            hint = f"Give these files a pipeline of their own, or write them again with the schema {by}."
            raise SourceError(f"the file's numbers have another unit: {wrong}", plain_path(path), hint)


def _merges(history: FilesHistory) -> bool:
    """Whether columns may be missing in some Parquet files."""
    return is_on(history, "mergeschema")


def _chosen(history: FilesHistory, names: Sequence[str]) -> dict[str, OptionValue]:
    return {key: value for key, value in history.options.items() if key.lower() in names}


def _reader(spark: SparkSession, history: FilesHistory, options: Sequence[str]) -> DataFrameReader:
    reader = spark.read.options(**_chosen(history, options))
    base = _base_path(spark, history)
    return reader.option("basePath", base) if base and "basepath" in options else reader


def _exactly(reader: DataFrameReader, history: FilesHistory, spark: SparkSession) -> DataFrameReader:
    """Files are named one by one; folders `k=v` above them still give columns."""
    base = option(history, "basepath") or _base_path(spark, history)
    return reader.option("basePath", str(base)) if base else reader


def _base_path(spark: SparkSession, history: FilesHistory) -> str | None:
    """The folder below which folders named `k=v` are partition columns: what comes before the first wildcard."""
    if option(history, "basepath"):
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


def _marks_of_tables(spark: SparkSession, history: FilesHistory) -> Iterator[str]:
    """What says that a folder of the history is that of a lake table."""
    folders = dict.fromkeys(above for path in history.path for above in folders_above(_literal_folder(spark, path)))
    for folder in folders:
        escaped = _GLOB_CHARACTER.sub(r"\\\g<0>", folder)
        pattern = hadoop_path(spark, f"{escaped}/{{{','.join(MARKS)}}}")
        for status in pattern.getFileSystem(hadoop_conf(spark)).globStatus(pattern) or ():
            yield plain_path(status.getPath().toString())


def file_partitions(spark: SparkSession, history: FilesHistory) -> tuple[str, ...]:
    """The columns that come from folders named `k=v`."""
    with reading(plain_path(history.path[0])):
        return tuple(_relation(spark, history).partitionSchema().fieldNames())


def _relation(spark: SparkSession, history: FilesHistory) -> JavaObject:
    """What Spark would read below the paths: it leaves out names that begin with `_` or `.`. No file is opened."""
    frame = _reader(spark, history, _LISTING_OPTIONS).text(list(history.path))
    return analyzed_plan(frame).relation()


def _pinned(relation: JavaObject) -> tuple[PinnedFile, ...]:
    files = {pinned_file(status) for status in elements(relation.location().allFiles())}
    return tuple(sorted(files, key=lambda file: file.path))


class Containers:
    """The columns of Avro or ORC files; files of one schema give the very same object."""

    def __init__(self, spark: SparkSession, file_format: str) -> None:
        self._spark = spark
        self._format = file_format
        self._known: dict[str, FileColumns] = {}
        self._schemas: dict[str, str] = {}

    def columns(self, path: str) -> FileColumns:
        """The columns of one file. Raises SourceError where the file has another format."""
        try:
            text = self._avro(path) if self._format == "avro" else self._orc(path)
        except JAVA_ERRORS as error:
            raise self._broken(path, error) from error
        if text not in self._known:
            found = json.loads(text)
            fields, unreadable, instants = (found, {}, ()) if self._format == "avro" else found
            columns = FileColumns(tuple(StructType.fromJson(fields).fields), {}, unreadable, frozenset(instants))
            self._known[text] = columns
        return self._known[text]

    def avro_schema(self, path: str) -> str:
        """The schema with which an Avro file was written, as JSON. Raises SourceError where it is no such file."""
        if path not in self._schemas:
            try:
                self._schemas[path] = str(self._avro_schema(path).toString())
            except JAVA_ERRORS as error:
                raise self._broken(path, error) from error
        return self._schemas[path]

    def _broken(self, path: str, error: Exception) -> SourceError:
        kind = "an Avro container" if self._format == "avro" else "an ORC"
        what = f"truncated, or not {kind} file: {short(java_reason(error))}"
        return SourceError(what, plain_path(path), "Write it again, or leave it out.")

    def _avro(self, path: str) -> str:
        schema = self._avro_schema(path)
        self._schemas[path] = str(schema.toString())
        return str(jvm(self._spark).org.apache.spark.sql.avro.SchemaConverters.toSqlType(schema).dataType().json())

    def _avro_schema(self, path: str) -> JavaObject:
        avro = jvm(self._spark).org.apache.avro
        data = avro.mapred.FsInput(hadoop_path(self._spark, path), hadoop_conf(self._spark))
        reader = avro.file.DataFileReader.openReader(data, avro.generic.GenericDatumReader())
        try:
            return reader.getSchema()
        finally:
            reader.close()

    def _orc(self, path: str) -> str:
        """Fields, columns that cannot be read, and those with timestamps of a local time zone, as JSON."""
        packages = jvm(self._spark)
        orc = packages.org.apache.orc
        reader = orc.OrcFile.createReader(
            hadoop_path(self._spark, path), orc.OrcFile.readerOptions(hadoop_conf(self._spark))
        )
        try:
            schema, zone = reader.getSchema(), _other_zone(reader, packages)
        finally:
            reader.close()
        plain, unreadable, instants = orc.TypeDescription.createStruct(), {}, []
        for name, kind in zip(schema.getFieldNames() or (), schema.getChildren() or (), strict=True):
            text = str(kind.toString())
            if zone is not None and re.search(rf"\btimestamp\b(?!{_LOCAL})", text):
                unreadable[str(name)] = f"a timestamp by the clock of {zone}, where the file was written"
                continue
            if _LOCAL in text:
                instants.append(str(name))
            plain = plain.addField(name, orc.TypeDescription.fromString(text.replace(_LOCAL, "")))
        utils = packages.org.apache.spark.sql.execution.datasources.orc.OrcUtils
        return json.dumps([json.loads(utils.toCatalystSchema(plain).json()), unreadable, instants])


def _other_zone(reader: JavaObject, packages: JavaObject) -> str | None:
    """The zone of the process that has written an ORC file, where its clock is not this process's; None: it is."""
    stripes = reader.getStripes()
    if stripes.isEmpty():
        return None
    rows = reader.rows()
    try:
        zone = str(rows.readStripeFooter(stripes.get(0)).getWriterTimezone())
    finally:
        rows.close()
    ids = packages.java.time.ZoneId
    same = not zone or ids.of(zone).getRules().equals(ids.systemDefault().getRules())
    return None if same else zone


def read_containers(
    reader: DataFrameReader,
    paths: Sequence[str],
    file_format: str,
    folders: Sequence[str],
    schema: StructType | None,
    columns: FileColumns | None = None,
) -> DataFrame:
    """The columns that can be read. Those of folders `k=v` are text, unless `schema` gives them another type."""
    if columns is not None and columns.instants:
        frame = read_by_arrow(reader, paths, columns.fields, folders)
    else:
        if columns is not None and columns.unreadable:
            reader = reader.schema(StructType(list(columns.fields)))
        frame = reader.format(file_format).load(list(paths))
    return with_typed_folders(frame, schema or StructType(), {name.lower() for name in folders})
