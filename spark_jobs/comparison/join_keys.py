"""Null-safe join columns for keys and window: the keys with nulls replaced, and one bit mask of the keys that are null.

A join by `a <=> b` gives the same rows, but Spark then shuffles data again that is already partitioned by the columns.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.replay.assign import END, START
from spark_jobs.spark.texts import as_text

WINDOW_HASH = "rw_hash"
"""A hash of the join columns. As the first column to sort by it decides nearly every comparison of two rows, and Spark
has it at hand in the sorter: many windows are sorted twice as fast as by the columns alone."""
_NULLS = "rw_nulls"


def with_join_keys(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """`frame` with the join columns of `join_columns`."""
    kinds = {field.name: field.dataType for field in frame.schema}
    columns = {f"rw_key_{i}": _never_null(key, kinds[key]) for i, key in enumerate(keys)}
    nulls = F.lit(0).cast("bigint")
    for i, key in enumerate(keys):
        nulls = nulls + F.when(F.col(f"`{key}`").isNull(), F.lit(1 << i)).otherwise(F.lit(0))
    return frame.withColumns({**columns, _NULLS: nulls})


def with_window_hash(frame: DataFrame, keys: Sequence[str]) -> DataFrame:
    """`frame` with the columns of `hashed_columns`."""
    placed = with_join_keys(frame, keys)
    kinds = {field.name: field.dataType for field in placed.schema}
    # 0.0 and -0.0 are one key.
    floats = (t.FloatType, t.DoubleType)
    same = [F.col(c) + F.lit(0.0) if isinstance(kinds[c], floats) else F.col(c) for c in join_columns(keys)]
    return placed.withColumn(WINDOW_HASH, F.xxhash64(*same))


def hashed_columns(keys: Sequence[str]) -> list[str]:
    """The names of the columns to join many windows by: `WINDOW_HASH`, and the join columns."""
    return [WINDOW_HASH, *join_columns(keys)]


def join_columns(keys: Sequence[str]) -> list[str]:
    """The names of the columns to join or partition by: keys and window."""
    return [*(f"rw_key_{i}" for i in range(len(keys))), _NULLS, START, END]


def key_types(schema: t.StructType, keys: Sequence[str]) -> dict[str, t.DataType]:
    """The types of the key columns."""
    return {key: schema[key].dataType for key in keys}


def _never_null(key: str, kind: t.DataType) -> Column:
    column = F.col(f"`{key}`")
    match kind:
        case t.StringType():
            return F.coalesce(column, F.lit(""))
        case t.NumericType():
            return F.coalesce(column, F.lit(0).cast(kind))
        case t.BooleanType():
            return F.coalesce(column, F.lit(False))
        case t.TimestampType():
            return F.coalesce(column, F.timestamp_millis(F.lit(0).cast("bigint")))
        case t.DateType():
            return F.coalesce(column, F.lit("1970-01-01").cast("date"))
        case _:
            return as_text(column)
