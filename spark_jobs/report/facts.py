"""Collects the facts for the report (`facts.json`) with Spark, before anything is published.

Their size does not grow with the history: they are counts, quantiles and samples with limits. Collecting them takes at
most two scans of the records.

The part of the advisor that needs the history is here too: what other bounds and latenesses would have caught and cost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.report.changed import changed_windows
from spark_jobs.report.classified_records import ClassifiedRecords, classify_records
from spark_jobs.report.counted import Facts
from spark_jobs.report.lateness import late_facts, seen_late
from spark_jobs.report.lateness_probe import LatenessProbe, end_grid_or_none, find_probe
from spark_jobs.report.picture import find_zoom, watermark_facts
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.spark.cached import CachedFrames


def gather(evidence: StagedRun) -> Facts:
    """The facts of a staged run. Times are epoch ms, durations ms.

    `changes`: see `changed_windows`. `late`, `watermark` and `advisor` are None where the run has no timeline (mode
    `complete`). Reads `evidence.changes` twice and `evidence.late` several times: cache them if they are expensive.
    """
    with CachedFrames() as cache:
        facts: dict[str, Any] = {"changes": changed_windows(evidence)}
        if evidence.timeline is None or evidence.late is None:
            return Facts.model_validate(facts)
        late = cache.keep(seen_late(evidence.late))
        probe = find_probe(evidence, cache)
        zoom = find_zoom(evidence, probe, late)
        classified = classify_records(evidence, probe, zoom)
        facts["late"] = late_facts(late, probe, classified)
        facts["watermark"] = watermark_facts(evidence, probe, classified, late, zoom)
        facts["advisor"] = advisor_facts(evidence, probe, classified)
        return Facts.model_validate(facts)


def advisor_facts(evidence: StagedRun, probe: LatenessProbe, classified: ClassifiedRecords) -> dict[str, Any] | None:
    """For each tolerance how many records were `behind` it and how many found their window `closed`.

    `wait` is how long after a window's end (processing time, ms, median over windows) its result comes with that bound.
    None for watermarks that no bound moves.
    """
    if probe.parameter is None:
        return None
    waits = _waits(evidence, probe)
    return {
        "parameter": probe.parameter,
        "generator": evidence.spec.strategy.generator.kind.value,
        "configured": probe.configured,
        "lateness": None if evidence.spec.allowed_lateness == MAX_TIMESTAMP else evidence.spec.allowed_lateness,
        "resolution": probe.resolution,
        "exact": probe.exact,
        "sessions": evidence.spec.has_sessions,
        "records": classified.records,
        "event_times": {"from": probe.event_times.start, "to": probe.event_times.end},
        "tolerances": [
            {"tolerance": t, "behind": classified.behind[i], "closed": classified.closed[i], "wait": waits[i]}
            for i, t in enumerate(probe.tolerances)
        ],
    }


def _waits(evidence: StagedRun, probe: LatenessProbe) -> list[int | None]:
    grid = end_grid_or_none(evidence.spec.windows)
    if grid is None or not len(probe.steps.values):
        return [None] * len(probe.tolerances)
    first = grid.first_index_at_or_after(probe.event_times.start + 1)
    count = max(1, grid.first_index_at_or_after(probe.event_times.end) - first)
    ends = grid.ends(first, count)[:: max(1, count // 2000)]
    waits = []
    for tolerance in probe.tolerances:
        at = np.searchsorted(probe.steps.values, ends - 1 + tolerance - probe.configured, side="left")
        closed = at < len(probe.steps.values)
        waited = probe.steps.positions[at[closed], 0] - ends[closed]
        waits.append(int(np.median(waited)) if len(waited) else None)
    return waits
