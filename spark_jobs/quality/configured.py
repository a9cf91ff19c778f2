"""The gate of a pipeline, from its folder of expectations. Great Expectations is imported only where it is used."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.runs.staged_run import StagedRun
from spark_jobs.runs.stages import GateCheck


def gate_of(pipeline: Pipeline, *, thorough: bool = False) -> GateCheck | None:
    """The gate of a pipeline; None where there is no folder of expectations, and none is named.

    Its suites are read now: a broken one is refused before the replay starts. `thorough` also lets Great Expectations
    look at them, which takes some seconds: once a run is enough. Raises DefinitionError.
    """
    from spark_jobs.quality.suites import FOLDER_VARIABLE, expectations_folder, load_suites

    if not expectations_folder(pipeline).is_dir() and not os.environ.get(FOLDER_VARIABLE):
        return None
    suites = load_suites(pipeline)
    if thorough:
        from spark_jobs.quality.gate import check_suites

        check_suites(suites, pipeline)

    def check(evidence: StagedRun) -> Mapping[str, Any]:
        from spark_jobs.quality.gate import check as check_evidence

        return check_evidence(evidence, suites).to_dict()

    return check
