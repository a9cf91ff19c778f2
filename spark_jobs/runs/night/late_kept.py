"""Late and quarantined records that are published, and gone from the history since: they are staged once more."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import starts_within
from spark_jobs.replay.columns import (
    OFFSET,
    PARTITION,
    end_offset,
)
from spark_jobs.runs.life.documents import StagedRange
from spark_jobs.runs.night.final import Final
from spark_jobs.runs.work.job import Job


def keep_late(job: Job, staged: StagedRange, records: DataFrame, final: Final, read_to: Mapping[int, int]) -> None:
    """Stage once more the late records of the range that are published, where they are gone or their window was final.

    Of a final window, those below the ends that were read (`read_to`) are those that are published, and no others.
    """
    if not job.is_faithful or not job.spark.catalog.tableExists(job.result.tables.late):
        return
    late = job.spark.table(job.result.tables.late)
    if not staged.everything:
        late = late.where(starts_within(job.plan.span, "range_start"))
    if final.is_there:
        _drop_late(job, staged, final, read_to)
    of_final = _is_of_final(final)
    kept = late.where(of_final).unionByName(_gone(late.where(~of_final), records))
    fields = job.staging.rows(StagedPart.LATE).schema
    columns = [
        F.col(f"`{f.name}`") if f.name in late.columns else F.lit(None).cast(f.dataType).alias(f.name) for f in fields
    ]
    job.staging.write(0, kept.select(*columns), StagedPart.LATE)


def _is_of_final(final: Final) -> Column:
    """Whether a late record's window was final; of a record in no window its event time counts."""
    end = F.coalesce(F.unix_millis("window_end"), F.unix_millis("event_time") + F.lit(1))
    return F.coalesce(final.is_final(end, F.lit(None).cast("bigint")), F.lit(False))


def _drop_late(job: Job, staged: StagedRange, final: Final, read_to: Mapping[int, int]) -> None:
    """Take away the staged late records of final windows that a run before has judged."""
    was_read = F.coalesce(F.col("offset") < end_offset(read_to, "partition"), F.lit(False))
    for chunk in (staged.expected or {}).get(StagedPart.LATE.value, ()):
        rows = job.staging.chunk(chunk, StagedPart.LATE)
        job.staging.write(chunk, rows.where(~(_is_of_final(final) & was_read)), StagedPart.LATE)


def keep_quarantined(job: Job, read: DataFrame) -> None:
    """Stage once more the quarantined records that are published, and are gone since."""
    table = job.result.tables.quarantine
    if not job.spark.catalog.tableExists(table):
        return
    placed = job.spark.table(table).where(F.col("offset").isNotNull()).drop("run_id")
    gone = _gone(placed, read)
    if not gone.isEmpty():
        job.staging.write(1, gone, StagedPart.QUARANTINE)


def _gone(published: DataFrame, records: DataFrame) -> DataFrame:
    """The published records, with their `partition` and `offset`, that are not among `records`."""
    there = records.select(F.col(PARTITION).alias("rw_there_partition"), F.col(OFFSET).alias("rw_there_offset"))
    is_there = (F.col("partition") == F.col("rw_there_partition")) & (F.col("offset") == F.col("rw_there_offset"))
    return published.join(there, is_there, "left_anti")
