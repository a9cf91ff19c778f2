"""What looks at a staged run before it is published: the gate, and the gathering of the report's facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.evidence import Evidence
from spark_jobs.stages import Checks


def gate_of(pipeline: Pipeline) -> Checks:
    """The gate of a pipeline. Its suites are read now: a broken one is refused before the replay starts."""
    from spark_jobs.quality.suites import load_suites

    suites = load_suites(pipeline)

    def check(evidence: Evidence) -> Mapping[str, Any]:
        from spark_jobs.quality.gate import check as check_evidence

        return check_evidence(evidence, suites).to_dict()

    return check


def watch(evidence: Evidence) -> Mapping[str, Any]:
    """The facts of the report's pictures."""
    from spark_jobs.report.facts import gather

    return gather(evidence)
