"""Records of a topic, read and decoded once: what a run asks of them several times comes from Spark's cache.

A topic is the slowest part of a run by far. What is kept is narrow: Rewindow's own columns, the keys, and the fields
that the definition's expressions use; the undecoded value only of records that cannot be used. It lies in the memory
of Spark's executors, or on their local disks where that is full; what is lost is read again from the topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.sources.decode import RAW, RAW_BYTES, REASON
from spark_jobs.sources.expressions import references


@contextmanager
def spooled(records: DataFrame, pipeline: Pipeline) -> Iterator[DataFrame]:
    """The canonical records, narrowed, read from their source at most once until the end of the context."""
    kept = narrowed(records, pipeline).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield kept
    finally:
        kept.unpersist()


def narrowed(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The columns that a replay uses, and the raw value of records for quarantine only."""
    texts = [*pipeline.aggregates.values(), pipeline.filter.after_watermark]
    texts.append(getattr(pipeline.window, "gap_expression", None))
    used = references(records, [text for text in texts if text is not None]) | set(pipeline.keys)
    columns = []
    for name in records.columns:
        if name in (RAW, RAW_BYTES):
            columns.append(F.when(F.col(REASON).isNotNull(), F.col(name)).alias(name))
        elif name.startswith("rw_") or name in used:
            columns.append(F.col(f"`{name}`"))
    return records.select(*columns)
