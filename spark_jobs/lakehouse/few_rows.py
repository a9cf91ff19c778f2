"""Few rows of an Iceberg table, written and read by the driver: no Spark job, whose planning takes ten times as long.

Arrow writes one Parquet file with the table's field ids, through the table's own file system; Iceberg commits it.
Reading takes the files that Iceberg's metadata does not exclude. Where a table or a file is not fit for that
(partitions, row-level deletes, large files), the functions say so, and the caller turns to Spark.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, all_bytes, elements, is_instance_of, java_throwable, jvm

Rows = Sequence[Mapping[str, Any]]
"""Rows by column, as plain Python values. A time without a zone is local time, as Spark gives it."""

_LARGEST = 1 << 20
"""Bytes. A larger file holds the rows of many runs: Spark reads it better."""
_MOST_FILES = 20
_NOT_COMMITTED = "org.apache.iceberg.exceptions.CleanableFailure"
_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def replaced(
    spark: SparkSession,
    table: JavaObject,
    run_id: str,
    rows: Rows,
    *,
    since: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> bool:
    """Write the rows of one run in the place of those that `table` has of it, in one commit.

    `table` is Iceberg's own, with a column `run_id`; columns that the rows lack are null. `since`: the commit fails
    where another process has changed rows of the run after that snapshot. False: the table is partitioned, and nothing
    is written. Raises what Iceberg raises: one of `JAVA_ERRORS`.
    """
    if not table.spec().isUnpartitioned():
        return False
    java = jvm(spark).org.apache.iceberg
    file = _written(spark, table, rows) if rows else None
    change = table.newOverwrite().overwriteByRowFilter(java.expressions.Expressions.equal("run_id", run_id))
    if file is not None:
        change = change.addFile(file)
    if since is not None:
        change = change.validateFromSnapshot(since).validateNoConflictingDeletes().validateNoConflictingData()
    for name, value in (properties or {}).items():
        change = change.set(name, value)
    try:
        change.commit()
    except JAVA_ERRORS as problem:
        cause = java_throwable(problem)
        if file is not None and cause is not None and is_instance_of(spark, cause, _NOT_COMMITTED):
            table.io().deleteFile(file.location())  # of any other failure the commit may have come through
        raise
    return True


def found(spark: SparkSession, table: JavaObject, run_id: str, snapshot: int) -> list[dict[str, Any]] | None:
    """The rows that `table` has of one run at a snapshot, as Spark's `Row.asDict` gives them; None: ask Spark."""
    is_run = jvm(spark).org.apache.iceberg.expressions.Expressions.equal("run_id", run_id)
    rows: list[dict[str, Any]] = []
    planned = table.newScan().useSnapshot(snapshot).filter(is_run).planFiles()
    try:
        for count, task in enumerate(elements(planned), 1):
            file = task.file()
            is_fit = file.fileSizeInBytes() <= _LARGEST and task.deletes().isEmpty() and count <= _MOST_FILES
            if not is_fit or file.format().name() != "PARQUET":
                return None
            content = io.BytesIO(_read(table, file.location()))
            of_run = pq.read_table(content, filters=[("run_id", "==", run_id)])
            kinds = {field.name: field.type for field in of_run.schema}
            rows += [{name: _as_spark_gives(v, kinds[name]) for name, v in row.items()} for row in of_run.to_pylist()]
    finally:
        planned.close()
    return rows


def may_have(table: JavaObject, condition: JavaObject) -> bool:
    """Whether `table` has a file in which rows can meet one of Iceberg's expressions, by what its metadata says."""
    planned = table.newScan().filter(condition).planFiles()
    try:
        return planned.iterator().hasNext()
    finally:
        planned.close()


def arrow_rows(spark: SparkSession, table: JavaObject, rows: Rows) -> pa.Table:
    """The rows in the columns of `table`, Iceberg's own; columns that they lack are null."""
    fields = json.loads(jvm(spark).org.apache.iceberg.SchemaParser.toJson(table.schema()))["fields"]
    schema = pa.schema([_field(f["id"], f["name"], f["type"], required=f["required"]) for f in fields])
    columns = [pa.array([_as_arrow_takes(row.get(f.name)) for row in rows], f.type) for f in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _written(spark: SparkSession, table: JavaObject, rows: Rows) -> JavaObject:
    """A data file with the rows, which no snapshot names yet."""
    content = io.BytesIO()
    pq.write_table(arrow_rows(spark, table, rows), content, compression="zstd")
    location = table.locationProvider().newDataLocation(f"{uuid4()}.parquet")
    stream = table.io().newOutputFile(location).createOrOverwrite()
    try:
        stream.write(content.getvalue())
    finally:
        stream.close()
    java = jvm(spark).org.apache.iceberg
    written = table.io().newInputFile(location)
    metrics = java.parquet.ParquetUtil.fileMetrics(written, java.MetricsConfig.forTable(table))
    files = java.DataFiles.builder(table.spec()).withInputFile(written).withFormat("parquet")
    return files.withMetrics(metrics).build()


def _read(table: JavaObject, location: str) -> bytes:
    return all_bytes(table.io().newInputFile(location).newStream())


def _field(number: int, name: str, kind: Any, *, required: bool) -> pa.Field:
    """An Arrow field for one of Iceberg's schema (as JSON); Parquet keeps its id."""
    return pa.field(name, _type(kind), nullable=not required, metadata={"PARQUET:field_id": str(number)})


def _type(kind: Any) -> pa.DataType:
    match kind:
        case {"type": "map"}:
            key = _field(kind["key-id"], "key", kind["key"], required=True)
            value = _field(kind["value-id"], "value", kind["value"], required=kind["value-required"])
            return pa.map_(key, value)
        case {"type": "list"}:
            return pa.list_(_field(kind["element-id"], "element", kind["element"], required=kind["element-required"]))
        case {"type": "struct"}:
            fields = kind["fields"]
            return pa.struct([_field(f["id"], f["name"], f["type"], required=f["required"]) for f in fields])
        case str() if (decimal := _DECIMAL.fullmatch(kind)) is not None:
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        case _:
            return _TYPES[kind]


def _as_arrow_takes(value: Any) -> Any:
    match value:
        case datetime():
            return value.astimezone(UTC)
        case Mapping():
            return list(value.items())
        case _:
            return value


def _as_spark_gives(value: Any, kind: pa.DataType) -> Any:
    if value is not None and pa.types.is_map(kind):
        return dict(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    return value
