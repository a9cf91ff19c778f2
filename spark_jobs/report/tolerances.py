"""What other bounds and latenesses would have caught and cost: the part of the advisor that needs the history."""

from __future__ import annotations

from typing import Any

import numpy as np

from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.report.classified_records import Judged
from spark_jobs.report.lateness_probe import LatenessProbe, end_grid_or_none
from spark_jobs.runs.staged_run import StagedRun


def advisor_facts(evidence: StagedRun, basis: LatenessProbe, judged: Judged) -> dict[str, Any] | None:
    """For each tolerance how many records were `behind` it and how many found their window `closed`.

    `wait` is how long after a window's end (processing time, ms, median over windows) its result comes with that bound.
    None for watermarks that no bound moves.
    """
    if basis.parameter is None:
        return None
    waits = _waits(evidence, basis)
    return {
        "parameter": basis.parameter,
        "generator": evidence.spec.strategy.kind.value,
        "configured": basis.configured,
        "lateness": None if evidence.spec.allowed_lateness == MAX_TIMESTAMP else evidence.spec.allowed_lateness,
        "resolution": basis.resolution,
        "exact": basis.exact,
        "sessions": isinstance(evidence.spec.windows, SessionWindows),
        "records": judged.records,
        "event_times": {"from": basis.event_times.start, "to": basis.event_times.end},
        "tolerances": [
            {"tolerance": t, "behind": judged.behind[i], "closed": judged.closed[i], "wait": waits[i]}
            for i, t in enumerate(basis.tolerances)
        ],
    }


def _waits(evidence: StagedRun, basis: LatenessProbe) -> list[int | None]:
    grid = end_grid_or_none(evidence.spec.windows)
    if grid is None or not len(basis.steps.values):
        return [None] * len(basis.tolerances)
    first = grid.first_index_at_or_after(basis.event_times.start + 1)
    count = max(1, grid.first_index_at_or_after(basis.event_times.end) - first)
    ends = grid.ends(first, count)[:: max(1, count // 2000)]
    waits = []
    for tolerance in basis.tolerances:
        at = np.searchsorted(basis.steps.values, ends - 1 + tolerance - basis.configured, side="left")
        closed = at < len(basis.steps.values)
        waited = basis.steps.positions[at[closed], 0] - ends[closed]
        waits.append(int(np.median(waited)) if len(waited) else None)
    return waits
