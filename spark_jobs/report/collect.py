"""The hook by which a run collects the facts for its report before it is published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.runs.staged_run import StagedRun


def collect(evidence: StagedRun) -> Mapping[str, Any]:
    """The facts for the report (`facts.gather`), imported only when they are needed."""
    from spark_jobs.report.facts import gather

    return gather(evidence)
