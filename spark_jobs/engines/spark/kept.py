"""The batches of a live query that a pipeline's runs have kept of its checkpoint: read with it, and appended to.

Only those of the life that the query has now count, see `spark_jobs.eventtime.spark.lives`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engines.spark import Gaps, StreamingWatermark
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.spark.batches import batches_of
from spark_jobs.eventtime.spark.checkpoint import Checkpoint
from spark_jobs.eventtime.spark.lives import first_of_another_life, of_this_life, unproven_in
from spark_jobs.lakehouse.checkpoint_archive import (
    archive_files,
    archived_names,
    archived_queries,
    archived_texts,
    give_up_batches,
)
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.sources.checkpoint import CheckpointFiles, checkpoint_files, parsed_checkpoint, read_once, texts_of


class OfTwo(Enum):
    """Which of two queries counts where the checkpoint is of another one than what runs have kept."""

    NEITHER = auto()
    KEPT = auto()
    NOW = auto()


_OF_TWO = ContextVar("rewindow_query", default=OfTwo.NEITHER)


@contextmanager
def of_two_queries(which: OfTwo) -> Iterator[None]:
    """While it lasts, this one counts where the checkpoint is of another query than what runs have kept."""
    before = _OF_TWO.set(which)
    try:
        yield
    finally:
        _OF_TWO.reset(before)


def counted_query() -> OfTwo:
    """Which of two queries counts here."""
    return _OF_TWO.get()


def with_archive(
    spark: SparkSession, pipeline: Pipeline, watermark: StreamingWatermark, now: Checkpoint, path: str
) -> Checkpoint:
    """The checkpoint, and what earlier runs have kept of the life that it is of.

    Raises HistoryError where the runs have kept batches of another query, unless `of_two_queries` says which counts.
    """
    table = Tables.of(pipeline).checkpoint
    queries = archived_queries(spark, table)
    if now.query in queries:
        archived = parsed_checkpoint(archived_texts(spark, table, now.query), path)
        other = _other_life(archived, now, watermark, path)
        known = archived if other is None else archived.below(other)
        return of_this_life(known, now).then(now)
    if not queries or counted_query() is OfTwo.NOW:
        return now
    if counted_query() is OfTwo.KEPT:
        (kept,) = queries
        return parsed_checkpoint(archived_texts(spark, table, kept), path)
    raise HistoryError(
        f"the checkpoint is of another query (id {now.query}) than before (id {', '.join(sorted(queries))}): it "
        "was deleted and begun anew",
        path,
        "Its batches belong to another life of the query. Write to another table under `output`.",
    )


def keep_batches(spark: SparkSession, pipeline: Pipeline) -> int:
    """Append the committed batches that only the checkpoint has to the pipeline's archive of them, each once.

    Archived batches of a life that the query has given up are replaced. Returns how many files of the checkpoint were
    appended; 0 where the live job is of another engine. Raises HistoryError where nobody can prove which life archived
    batches are of.
    """
    watermark = pipeline.watermark
    if not isinstance(watermark, StreamingWatermark) or watermark.checkpoint is None:
        return 0
    files, table = checkpoint_files(spark, watermark.checkpoint), Tables.of(pipeline).checkpoint
    checkpoint = read_once(spark, files)
    known = archived_names(spark, table, checkpoint.query)
    near = archived_texts(spark, table, checkpoint.query, _last_before(checkpoint, known)) if known else ()
    archived = parsed_checkpoint(near, files.path)
    if (other := _other_life(archived, checkpoint, watermark, files.path)) is not None:
        give_up_batches(spark, table, checkpoint.query, other)
        known = archived_names(spark, table, checkpoint.query)
    new = _settled(files, checkpoint) - known
    return archive_files(spark, table, checkpoint.query, texts_of(spark, files, new) if new else ())


def _last_before(checkpoint: Checkpoint, names: Collection[str]) -> int:
    """The last batch before the checkpoint's first one that has a file of these names; 0: there is none."""
    first = min(checkpoint.offsets)
    batches = (int(name.partition("/")[2]) for name in names if name.startswith("offsets/"))
    return max((batch for batch in batches if batch < first), default=0)


def _settled(files: CheckpointFiles, checkpoint: Checkpoint) -> set[str]:
    """The names of the checkpoint's files that will not change any more."""
    pending = batches_of(checkpoint).pending
    unsettled = ("metadata", "" if pending is None else f"offsets/{pending.number}")
    # Spark keeps the log of a file source, and each compact entry repeats all before it: that is not kept again.
    logs = tuple(f"sources/{source}/" for source in checkpoint.files)
    return {name for name in files.stamps if name not in unsettled and not name.startswith(logs)}


def _other_life(archived: Checkpoint, now: Checkpoint, watermark: StreamingWatermark, path: str) -> int | None:
    """The first archived batch of another life than the checkpoint's; None: there is none.

    Where batches are of a life that nobody can prove, they are a gap: refused, or with `gaps: approximate` left out.
    """
    unproven = unproven_in(archived, now)
    if unproven is None:
        return first_of_another_life(archived, now)
    if watermark.gaps is Gaps.REFUSE:
        raise HistoryError(
            f"the checkpoint does not prove that the archived batches before batch {min(now.offsets)} are its own: "
            f"{unproven.why}",
            path,
            "A checkpoint that was put back from a copy begins another life of the query, and Spark has removed the "
            "batches that would tell where. With `watermark.gaps: approximate` their records are placed by their "
            "append time. Run `rewindow archive` more often than Spark removes batches.",
        )
    return unproven.number
