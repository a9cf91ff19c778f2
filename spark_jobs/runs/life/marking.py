"""Behind a publication: which days are complete now, see `spark_jobs.lakehouse.complete_days`."""

from __future__ import annotations

from datetime import date

from spark_jobs.lakehouse.complete_days import Mark, mark_days
from spark_jobs.runs.life.documents import Changes, TimelineDocument
from spark_jobs.runs.work.job import Job


def mark_published(job: Job) -> None:
    """Mark the days of a published run. Can be repeated: a run that has marked its days changes nothing more."""
    changes = Changes.read(job.folder)
    changed = frozenset(date.fromisoformat(period[:10]) for period in (changes.changed_periods if changes else ()))
    spec = job.spec
    reach = 0 if spec.has_sessions else max(0, spec.aligned_windows.longest - spec.windows.usual_step)
    mark = Mark(job.result.run_id, job.plan.as_of, job.now(), changed, closed_to(job), reach)
    with job.progress.stage("mark", job.result.tables.windows):
        mark_days(job.spark, job.result.tables, mark)


def closed_to(job: Job) -> int | None:
    """The watermark has passed every window's last millisecond up to this; None: the run has no watermark.

    Where each partition has its own, the least counts.
    """
    document = TimelineDocument.read(job.folder) if job.is_faithful else None
    if document is None:
        return None
    if document.state.get("kind") == "stream_time":
        return min((values["reached"] for values in document.state["partitions"].values()), default=None)
    return document.watermark_below
