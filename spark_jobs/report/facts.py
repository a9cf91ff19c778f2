"""Collects the facts for the report (`facts.json`) with Spark, before anything is published.

Their size does not grow with the history: they are counts, quantiles and samples with limits. Collecting them takes at
most two scans of the records.
"""

from __future__ import annotations

from typing import Any

from spark_jobs.report.changed import changed_windows
from spark_jobs.report.classified_records import classify_records
from spark_jobs.report.lateness import late_facts, seen_late
from spark_jobs.report.lateness_probe import find_probe
from spark_jobs.report.picture import find_zoom, watermark_facts
from spark_jobs.report.tolerances import advisor_facts
from spark_jobs.runs.staged_run import StagedRun
from spark_jobs.spark.cached import CachedFrames

FORMAT = "rewindow-facts/1"


def gather(evidence: StagedRun) -> dict[str, Any]:
    """The facts of a staged run as JSON values. Times are epoch ms, durations ms.

    `changes`: see `changed_windows`. `late`, `watermark` and `advisor` are None where the run has no timeline (mode
    `complete`). Reads `evidence.changes` twice and `evidence.late` several times: cache them if they are expensive.
    """
    with CachedFrames() as cache:
        facts: dict[str, Any] = {
            "format": FORMAT,
            "changes": changed_windows(evidence),
            "late": None,
            "watermark": None,
            "advisor": None,
        }
        if evidence.timeline is None or evidence.late is None:
            return facts
        late = cache.keep(seen_late(evidence.late))
        probe = find_probe(evidence, cache)
        zoom = find_zoom(evidence, probe, late)
        classified = classify_records(evidence, probe, zoom)
        facts["late"] = late_facts(late, probe, classified)
        facts["watermark"] = watermark_facts(evidence, probe, classified, late, zoom)
        facts["advisor"] = advisor_facts(evidence, probe, classified)
        return facts
