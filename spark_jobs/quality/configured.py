"""The gate of a pipeline, from its folder of expectations. Great Expectations is imported only where it is used."""

from __future__ import annotations

from spark_jobs.definition import Pipeline
from spark_jobs.parts import Part, require
from spark_jobs.runs.documents import Gate
from spark_jobs.runs.staged_run import StagedRun
from spark_jobs.runs.verification import GateCheck
from spark_jobs.settings import settings

NO_FOLDER = "the project has no folder of expectations"
"""Why nothing is checked where `gate_of` gives no gate."""


def gate_of(pipeline: Pipeline, *, thorough: bool = False) -> GateCheck | None:
    """The gate of a pipeline; None where there is no folder of expectations and the environment names none.

    The suites are read now, so that a broken one is refused before the replay starts.

    Args:
        thorough: also have Great Expectations check the suites. That takes some seconds; once for each run is enough.

    Raises:
        DefinitionError: a suite is broken.
        EnvironmentSetupError: Great Expectations is not installed.
    """
    from spark_jobs.quality.suites import expectations_folder, load_suites

    if not expectations_folder(pipeline).is_dir() and settings().expectations is None:
        return None
    suites = load_suites(pipeline)
    require(Part.GATE, f"the check of the expectations in {suites.folder}", "run with --no-gate")
    if thorough:
        from spark_jobs.quality.gate import check_suites

        check_suites(suites, pipeline)

    def check(evidence: StagedRun) -> Gate:
        from spark_jobs.quality.gate import check as check_evidence

        return check_evidence(evidence, suites)

    return check
