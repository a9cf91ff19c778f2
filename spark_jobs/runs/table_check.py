"""The look at the published table before a run builds on it: is it as the last publication left it, and whose is it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError, DefinitionError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.publication import TableAt
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, start_bounds
from spark_jobs.runs.documents import StagedRange

if TYPE_CHECKING:
    from spark_jobs.runs.job import Job

ANOTHER_PROGRAM = "another program has changed the published table"


def foreign_change(spark: SparkSession, tables: Tables, last: Row) -> str | None:
    """What another program has done to the published tables since the run `last` was published; None: nothing."""
    table = PublishedTable(spark, tables.windows)
    now = table.now()
    if now.table_id is None:
        return "it was dropped"
    if last["table_id"] not in (None, now.table_id) or (last["windows"] and table.is_empty() and table.state() is None):
        return "it was dropped and made anew"
    if (last["sequence"] or 0) > (now.sequence or 0):
        return f"it is an older copy: it lacks what run {last['run_id']} has published"
    return table.foreign_change()


def from_table(at: TableAt) -> dict[str, Any]:
    """The fields of `StagedRange` that say which state of the table a run started from."""
    return {"base": at.snapshot, "table_id": at.table_id, "sequence": at.sequence}


def with_scope(job: Job, staged: StagedRange) -> StagedRange:
    """What a run over a range stands for: a whole one for all that is published, wherever its windows lie.

    Raises DefinitionError where the table is another pipeline's, CatalogError where another program has changed it and
    the run is over a part of the range.
    """
    spark, tables = job.spark, job.result.tables
    last, _ = job.ledger.latest_published()
    if last is not None:
        check_owner(job.pipeline, tables, last)
    changed = None if last is None else foreign_change(spark, tables, last)
    if not job.plan.is_whole:
        if changed is not None:
            raise CatalogError(
                f"{ANOTHER_PROGRAM}: {changed}",
                tables.windows,
                "Start a run over the whole history first (`rewindow run` without a range): it compares with what is "
                "in the table, and corrects it.",
            )
        return staged
    reach = staged.reach
    if staged.base is not None:
        low, high = start_bounds(job.published_table.current())
        if low is not None and high is not None:
            reach = TimeRange(min(reach.start, low), max(reach.end, high + 1))
    if changed is not None:
        job.result.note = f"{ANOTHER_PROGRAM}: {changed}; this run has compared with what was there"
    return staged.model_copy(update={"everything": True, "reach": reach, "repairs": changed is not None})


def check_owner(pipeline: Pipeline, tables: Tables, last: Row | Mapping[str, Any]) -> None:
    """Raises DefinitionError where the run `last`, the one that was published last, is another pipeline's."""
    if last["pipeline"] in (None, pipeline.name):
        return
    raise DefinitionError(
        f"the table {tables.windows} holds the windows of the pipeline {last['pipeline']}, which has published run "
        f"{last['run_id']}",
        pipeline.source_of(("output", "table")) or pipeline.name,
        "Two pipelines cannot share a table: give this one another `output.table`.",
    )
