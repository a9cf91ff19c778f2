"""Facts about what a run has not staged, for the gate: records, files, windows and commits that it did not look at.

What is staged can be right in itself and wrong beside what is published. These facts do not come from the code that
decides what a run recomputes: they are counted from the table, the history and the run before.
"""

from __future__ import annotations

from spark_jobs.errors import RewindowError
from spark_jobs.runs.documents import NotStaged, PlanDocument, StagedRange
from spark_jobs.runs.job import Job
from spark_jobs.sources import changed_files, files_there


def not_staged(job: Job, staged: StagedRange, kept: int | None) -> NotStaged:
    """The facts about a run whose windows are staged and compared with the published ones.

    `kept`: the windows that keep their values, because records that they were made of are gone; None: the run has not
    looked for such windows. No Spark job, unless another program has written delete files to the table.
    """
    before, below = _records(job, staged) if kept is None else (None, None)
    return NotStaged(
        records_before=before,
        records_below=below,
        windows_left=_windows_left(job, staged, kept or 0),
        foreign_commits=_foreign_commits(job, staged),
        goes_on=staged.since is not None,
        files_changed=_files_changed(job),
    )


def _files_changed(job: Job) -> int | None:
    """The files of the plan that are gone or were written again since; None where nobody knows its files."""
    files = job.plan.files
    return None if files is None else len(list(changed_files(files, files_there(job.spark, files))))


def _records(job: Job, staged: StagedRange) -> tuple[int | None, int | None]:
    """The records that the run before had read, and at most how many of them are there now.

    None where a run of the same definition with the same or smaller end offsets is not known, or where this run has not
    counted the history.
    """
    plan, latest = job.plan, job.published.latest
    if latest is None:
        return None, None
    try:
        before = PlanDocument.read(job.folder.of_run(latest))
    except RewindowError:  # damaged: it says nothing
        return None, None
    if before is None or before.definition_hash != plan.definition_hash:
        return None, None
    ends = {p["partition"]: p["end_offset"] for p in before.partitions}
    if staged.since is not None:
        if staged.below is None or before.history_counts is None or ends != staged.since:
            return None, None
        return sum(before.history_counts.values()), sum(staged.below.values())
    if before.history_records is None or plan.history_records is None or plan.history_records != plan.records:
        return None, None
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
    rows = 0 if staged.base is None else job.published_table.rows_at(staged.base)
    return rows - job.result.windows_recomputed - kept


def _foreign_commits(job: Job, staged: StagedRange) -> int | None:
    """The commits of others since the last run that was published, of those that change rows; None: no table then.

    A run that has found them, and is compared with what readers see, has looked at them.
    """
    if staged.base is None:
        return None
    return 0 if staged.repairs else job.published_table.foreign_commits_before(staged.base)
