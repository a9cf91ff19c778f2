"""ORC files with timestamps of a local time zone, which Spark's reader refuses as a whole: Arrow reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyarrow.orc import ORCFile
from pyspark.sql import DataFrame, DataFrameReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType


def read_by_arrow(
    reader: DataFrameReader, paths: Sequence[str], fields: Sequence[StructField], folders: Sequence[str]
) -> DataFrame:
    """The columns `fields` of ORC files, and those of folders `k=v` as text. A file is whole in a worker's memory."""
    files = reader.format("binaryFile").load(list(paths)).select("content", *(f"`{name}`" for name in folders))
    schema = StructType([*fields, *(StructField(name, StringType()) for name in folders)])
    return files.mapInArrow(partial(_rows, to_arrow_schema(schema)), schema)


def _rows(schema: pa.Schema, files: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in files:
        for content, *folders in zip(*batch.columns, strict=True):
            of_folders = dict(zip(batch.schema.names[1:], folders, strict=True))
            file = ORCFile(pa.BufferReader(content.as_buffer()))
            chosen = [name for name in file.schema.names if name in schema.names]
            for stripe in range(file.nstripes):
                yield from _filled(file.read_stripe(stripe, columns=chosen), schema, of_folders)


def _filled(stripe: pa.RecordBatch, schema: pa.Schema, folders: dict[str, pa.Scalar]) -> Iterator[pa.RecordBatch]:
    """A stripe in the columns of the schema: what it lacks is null, or the folder's."""
    columns = []
    for field in schema:
        if field.name in stripe.schema.names:
            columns.append(stripe.column(field.name).cast(field.type, safe=False))
        else:
            value = folders.get(field.name, pa.scalar(None, field.type))
            columns.append(pa.repeat(value, stripe.num_rows).cast(field.type))
    yield pa.RecordBatch.from_arrays(columns, schema=schema)
