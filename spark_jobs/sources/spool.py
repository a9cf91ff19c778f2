"""Cache the records of a topic or of small files, so that a run reads and decodes them once.

Reading a topic is by far the slowest part of a run. Small files cost more to open, plan and decode again in each of a
run's queries than to keep; large ones do not fit. The cache has few columns: Rewindow's own, the keys, and the fields
that the definition's expressions use; it has the undecoded value of quarantined records only. It is in the memory of
Spark's executors, or on their local disks where that is full. What an executor loses is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.functions.prepared import aggregates_of
from spark_jobs.sources.expressions import references
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.decode import RAW, RAW_BYTES, REASON

SMALL_BYTES = 8 << 20
"""Files of at most so many bytes together are small: a few million records at most, however they are packed."""


def is_small(opened: OpenHistory) -> bool:
    """Whether a history is of files that are small together."""
    if opened.inputs and not all(one.pinned for one in opened.inputs):
        return False
    return 0 < sum(file.size for one in opened.inputs or (opened,) for file in one.pinned) <= SMALL_BYTES


FEW_RECORDS = 250_000
"""So many records of a topic are read and decoded in about a second."""


def is_short(opened: OpenHistory) -> bool:
    """Whether a history is a topic alone of which few offsets are read."""
    if opened.topic is None or not opened.has_unique_offsets:  # a stitched history has a table before its topic
        return False
    return 0 < sum(r.end - r.start for r in opened.topic.ranges) <= FEW_RECORDS


@contextmanager
def spooled(records: DataFrame, pipeline: Pipeline) -> Iterator[DataFrame]:
    """The canonical records with the columns of `narrowed`, cached until the end of the context."""
    cached = narrowed(records, pipeline).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield cached
    finally:
        cached.unpersist()


def narrowed(records: DataFrame, pipeline: Pipeline) -> DataFrame:
    """The columns that a replay uses; the undecoded value only of records that go to quarantine.

    All columns where an expression is wrong: the run then refuses it, with its place in the definition.
    """
    texts = [*aggregates_of(pipeline).values(), pipeline.filter.after_watermark]
    texts.append(getattr(pipeline.window, "gap_expression", None))
    try:
        used = references(records, [text for text in texts if text is not None]) | set(pipeline.keys)
    except AnalysisException:
        return records
    columns = []
    for name in records.columns:
        if name in (RAW, RAW_BYTES):
            columns.append(F.when(F.col(REASON).isNotNull(), F.col(name)).alias(name))
        elif name.startswith("rw_") or name in used:
            columns.append(F.col(f"`{name}`"))
    return records.select(*columns)
