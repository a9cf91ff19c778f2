"""Records without a partition or an offset. No end offset says whether they were read, so all of them are looked at."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegralType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import BLOCK
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import canonical, has_positions
from spark_jobs.sources.union import inputs_of, joined


def can_be_unplaced(opened: OpenHistory, pipeline: Pipeline) -> bool:
    """Whether a record can lack its place in the log: a broker gives each one; without an offset none has one."""
    parts = inputs_of(pipeline, opened)
    return any(not part.has_unique_offsets and one.history.position.offset is not None for one, part in parts)


def unplaced(opened: OpenHistory, pipeline: Pipeline) -> DataFrame:
    """The canonical records that have no partition or no offset; all of them are unusable.

    Where the columns are whole numbers, Spark skips files and row groups without such rows by their statistics.
    """
    frames = [_of_one(part, one) for one, part in inputs_of(pipeline, opened)]
    records = joined(pipeline, frames) if opened.inputs else frames[0]
    return records.where(is_unplaced(PARTITION, OFFSET))


def _of_one(opened: OpenHistory, pipeline: Pipeline) -> DataFrame:
    """The records of one history that may be without a place, also because a union has none for their partition."""
    frame, position = opened.frame, pipeline.history.position
    if opened.has_unique_offsets:
        rows = frame.limit(0)
    elif has_positions(frame):
        rows = frame.where(is_unplaced(PARTITION, OFFSET) | (F.col(PARTITION) >= BLOCK))
    else:
        partition, offset = F.expr(position.partition or "0"), F.expr(position.offset or "0")
        are_numbers = all(isinstance(f.dataType, IntegralType) for f in frame.select(partition, offset).schema)
        is_within = (partition >= 0) & (partition < BLOCK)
        rows = frame.where(partition.isNull() | ~is_within | offset.isNull()) if are_numbers else frame
    return canonical(opened, pipeline, rows)


def is_unplaced(partition: str, offset: str) -> Column:
    """Whether a row lacks one of the two, given their columns."""
    return F.col(partition).isNull() | F.col(offset).isNull()
