"""The batches of the live Structured Streaming query that are kept, since Spark removes all but the last of them."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.structured_streaming import StreamingWatermark
from spark_jobs.eventtime.microbatch.batches import batches_of
from spark_jobs.lakehouse.checkpoint_archive import archive_files, not_archived
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.sources.checkpoint import checkpoint_files, read_once, texts_of


def keep_batches(spark: SparkSession, pipeline: Pipeline) -> int:
    """Append the committed batches that only the checkpoint has to the pipeline's archive of them, each once.

    Returns how many files of the checkpoint those were; 0 where the live job is of another engine.
    """
    watermark = pipeline.watermark
    if not isinstance(watermark, StreamingWatermark) or watermark.checkpoint is None:
        return 0
    files, table = checkpoint_files(spark, watermark.checkpoint), Tables.of(pipeline).checkpoint
    checkpoint = read_once(spark, files)
    pending = batches_of(checkpoint).pending
    unsettled = "" if pending is None else f"offsets/{pending.number}"
    # Spark keeps the log of a file source, and each compact entry repeats all before it: that is not kept again.
    logs = tuple(f"sources/{source}/" for source in checkpoint.files)
    settled = [name for name in files.stamps if name not in (unsettled, "metadata") and not name.startswith(logs)]
    new = not_archived(spark, table, checkpoint.query, settled)
    return archive_files(spark, table, checkpoint.query, texts_of(spark, files, new) if new else ())
