"""Gather, with Spark and before anything is published, what the report's pictures show: `facts.json`.

Nothing here grows with the history: counts, quantiles, and samples with limits. At most two scans of the records.
"""

from __future__ import annotations

from typing import Any

from spark_jobs.report.changed import changed_windows
from spark_jobs.report.classified_records import classify_records
from spark_jobs.report.lateness import late_facts, seen_late
from spark_jobs.report.lateness_probe import find_basis
from spark_jobs.report.picture import find_zoom, watermark_facts
from spark_jobs.report.tolerances import advisor_facts
from spark_jobs.runs.staged_run import StagedRun
from spark_jobs.spark.cached import CachedFrames

FORMAT = "rewindow-facts/1"


def gather(evidence: StagedRun) -> dict[str, Any]:
    """The facts of a staged run, JSON-able. Times are epoch ms, durations ms.

    `changes`: see `changed_windows`. `late`, `watermark` and `advisor` are None where the run has no timeline (mode
    `complete`). Looks twice at `evidence.changes` and a few times at `evidence.late`: cache them where they are dear.
    """
    with CachedFrames() as held:
        facts: dict[str, Any] = {
            "format": FORMAT,
            "changes": changed_windows(evidence),
            "late": None,
            "watermark": None,
            "advisor": None,
        }
        if evidence.timeline is None or evidence.late is None:
            return facts
        late = held.keep(seen_late(evidence.late))
        basis = find_basis(evidence, held)
        zoom = find_zoom(evidence, basis, late)
        judged = classify_records(evidence, basis, zoom)
        facts["late"] = late_facts(late, basis, judged)
        facts["watermark"] = watermark_facts(evidence, basis, judged, late, zoom)
        facts["advisor"] = advisor_facts(evidence, basis, judged)
        return facts
