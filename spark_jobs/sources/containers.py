"""Avro container files and ORC files: their columns by their headers and footers, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.errors import SourceError
from spark_jobs.sources.parquet import FileColumns, with_typed_folders
from spark_jobs.spark.failures import plain_path, short
from spark_jobs.spark.gateway import JAVA_ERRORS, hadoop_conf, hadoop_path, jvm
from spark_jobs.spark.java import java_reason


class Containers:
    """The columns of Avro or ORC files; files of one schema give the very same object."""

    def __init__(self, spark: SparkSession, file_format: str) -> None:
        self._spark = spark
        self._format = file_format
        self._known: dict[str, FileColumns] = {}

    def columns(self, path: str) -> FileColumns:
        """Those of one file. Raises SourceError where it is no such file."""
        try:
            text = self._avro(path) if self._format == "avro" else self._orc(path)
        except JAVA_ERRORS as error:
            raise SourceError(
                f"truncated, or not {'an Avro container' if self._format == 'avro' else 'an ORC'} file: "
                f"{short(java_reason(error))}",
                plain_path(path),
                "Write it again, or leave it out.",
            ) from error
        if text not in self._known:
            self._known[text] = FileColumns(tuple(StructType.fromJson(json.loads(text)).fields), {}, {})
        return self._known[text]

    def _avro(self, path: str) -> str:
        packages = jvm(self._spark)
        avro = packages.org.apache.avro
        data = avro.mapred.FsInput(hadoop_path(self._spark, path), hadoop_conf(self._spark))
        reader = avro.file.DataFileReader.openReader(data, avro.generic.GenericDatumReader())
        try:
            schema = reader.getSchema()
        finally:
            reader.close()
        return str(packages.org.apache.spark.sql.avro.SchemaConverters.toSqlType(schema).dataType().json())

    def _orc(self, path: str) -> str:
        packages = jvm(self._spark)
        orc = packages.org.apache.orc.OrcFile
        reader = orc.createReader(hadoop_path(self._spark, path), orc.readerOptions(hadoop_conf(self._spark)))
        try:
            schema = reader.getSchema()
        finally:
            reader.close()
        for name, kind in zip(schema.getFieldNames() or (), schema.getChildren() or (), strict=True):
            if "local time zone" in kind.toString():
                what = f"column `{name}` is a timestamp with local time zone, which Spark does not read from ORC files"
                raise SourceError(what, plain_path(path), "Write it as a timestamp in UTC, or write Parquet files.")
        utils = packages.org.apache.spark.sql.execution.datasources.orc.OrcUtils
        return str(utils.toCatalystSchema(schema).json())


def read_containers(
    reader: DataFrameReader, paths: Sequence[str], file_format: str, folders: Sequence[str], schema: StructType | None
) -> DataFrame:
    """The columns of the files. Those of folders `k=v` are text, unless `schema` gives them another type."""
    frame = reader.format(file_format).load(list(paths))
    return with_typed_folders(frame, schema or StructType(), {name.lower() for name in folders})
