"""What a run collects for its report before it is published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.runs.staged_run import StagedRun


def collect(evidence: StagedRun) -> Mapping[str, Any]:
    """The facts of the report's pictures; the chart code is imported only where it is used."""
    from spark_jobs.report.facts import gather

    return gather(evidence)
