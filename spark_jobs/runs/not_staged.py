"""Facts about what a run has not staged, for the gate: records, windows and commits that it did not look at.

What is staged can be right in itself and wrong beside what is published. These facts do not come from the code that
decides what a run recomputes: they are counted from the table and from the run before.
"""

from __future__ import annotations

from spark_jobs.errors import RewindowError
from spark_jobs.runs.documents import NotStaged, PlanDocument, StagedRange
from spark_jobs.runs.job import Job
from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table

_RUN_ID = "rewindow.run-id"
_REWRITE = "replace"


def not_staged(job: Job, staged: StagedRange, kept: int | None) -> NotStaged:
    """The facts about a run whose windows are staged and compared with the published ones.

    `kept`: the windows that keep their values, because records that they were made of are gone; None: the run has not
    looked for such windows. No Spark job, unless another program has written delete files to the table.
    """
    before, below = _records(job) if kept is None else (None, None)
    return NotStaged(
        records_before=before,
        records_below=below,
        windows_left=_windows_left(job, staged, kept or 0),
        foreign_commits=_foreign_commits(job, staged),
        goes_on=staged.since is not None,
    )


def _records(job: Job) -> tuple[int | None, int | None]:
    """The records that the run before had read, and at most how many of them are there now.

    None where a run of the same definition with the same or smaller end offsets is not known, or where this run has not
    counted the history.
    """
    plan, latest = job.plan, job.published.latest
    if latest is None or plan.history_records is None or plan.history_records != plan.records:
        return None, None
    try:
        before = PlanDocument.read(job.folder.of_run(latest))
    except RewindowError:  # damaged: it says nothing
        return None, None
    if before is None or before.history_records is None or before.definition_hash != plan.definition_hash:
        return None, None
    ends = {p["partition"]: p["end_offset"] for p in before.partitions}
    if any(plan.as_of.get(partition, -1) < end for partition, end in ends.items()):
        return None, None
    # More records than before: they are read, all of them. What came below the end offsets is among them.
    return before.history_records, min(plan.records, before.history_records)


def _windows_left(job: Job, staged: StagedRange, kept: int) -> int | None:
    """How many published rows a run over the whole history neither computes again nor retracts nor keeps on purpose.

    Below 0: readers see fewer windows than the table's revisions say. None: the run is over a part of the history.
    """
    if not job.plan.is_whole or staged.since is not None or job.result.windows_recomputed is None:
        return None
    if staged.repairs:  # compared row by row with what readers see
        return None
    if staged.base is None:
        return -job.result.windows_recomputed - kept
    table = loaded_iceberg_table(job.spark, job.result.tables.windows)
    snapshot = table.snapshot(staged.base)
    rows = None if snapshot is None else _rows(snapshot)
    if rows is None:
        rows = job.published_table.current().count()
    return rows - job.result.windows_recomputed - kept


def _rows(snapshot: JavaObject) -> int | None:
    """The rows of a snapshot by its own summary; None where that does not say it."""
    summary = snapshot.summary()
    if any(summary.get(f"total-{kind}-deletes") not in (None, "0") for kind in ("position", "equality")):
        return None
    total = summary.get("total-records")
    return None if total is None else int(total)


def _foreign_commits(job: Job, staged: StagedRange) -> int | None:
    """The commits of others since the last run that was published, of those that change rows; None: no table then.

    A run that has found them, and is compared with what readers see, has looked at them.
    """
    if staged.base is None:
        return None
    if staged.repairs:
        return 0
    table = loaded_iceberg_table(job.spark, job.result.tables.windows)
    snapshot, found = table.snapshot(staged.base), 0
    while snapshot is not None and snapshot.summary().get(_RUN_ID) is None:
        parent = snapshot.parentId()
        is_first = parent is None and _rows(snapshot) in (None, 0)  # the empty one that the table begins with
        found += snapshot.operation() != _REWRITE and not is_first
        snapshot = None if parent is None else table.snapshot(parent)
    return found
