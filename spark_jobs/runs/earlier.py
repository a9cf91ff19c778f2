"""The published runs before a run, in short: what the report compares it with. No Spark.

Each run copies the list of the run before it and adds that run. So one document has to be read, however many runs
there are, and the list stays when old runs are deleted.
"""

from __future__ import annotations

from contextlib import suppress

from spark_jobs.errors import RewindowError
from spark_jobs.runs.documents import Changes, EarlierRun, PlanDocument, Request
from spark_jobs.runs.store import RunFolder

MAX_EARLIER = 60
"""Runs of both kinds; the report shows the last thirty of the run's own kind."""


def earlier_runs(folder: RunFolder, run_before: str | None) -> tuple[EarlierRun, ...]:
    """The runs before that of `folder`, the oldest first; none where the run before has left no documents."""
    with suppress(RewindowError):
        before = folder.of_run(run_before) if run_before else None
        changes = before and Changes.read(before)
        request = before and Request.read(before)
        plan = before and PlanDocument.read(before)
        if before and changes and request:
            last = EarlierRun(
                run_id=before.run_id,
                kind=request.kind,
                requested_at=request.requested_at,
                counts=changes.counts,
                windows_recomputed=changes.windows_recomputed,
                span=plan.span if plan else None,
                **changes.counted(),
            )
            return (*changes.earlier, last)[-MAX_EARLIER:]
    return ()
