"""The gate of a pipeline, from its folder of expectations. Great Expectations is imported only where it is used."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_jobs.definition import Pipeline
from spark_jobs.parts import Part, require
from spark_jobs.runs.life.documents import Gate
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.settings import settings
from spark_jobs.spark.parallel import in_background

if TYPE_CHECKING:
    from spark_jobs.quality.suites import Suites

NO_FOLDER = "the project has no folder of expectations"
"""Why nothing is checked where `gate_of` gives no gate."""


@dataclass(frozen=True, slots=True)
class SuitesGate:
    """The gate of a pipeline's suites. `checked`: whether Great Expectations (seconds to load) takes them."""

    suites: Suites
    checked: Future[None] | None

    def __call__(self, evidence: StagedRun) -> Gate:
        """Check a staged run."""
        from spark_jobs.quality.gate import check

        return check(evidence, self.suites)

    def confirm(self) -> None:
        """Raises DefinitionError where Great Expectations cannot check a suite."""
        if self.checked is not None:
            self.checked.result()


def gate_of(pipeline: Pipeline, *, thorough: bool = False) -> SuitesGate | None:
    """The gate of a pipeline; None where there is no folder of expectations and the environment names none.

    The suites are read now.

    Args:
        thorough: also have Great Expectations check the suites, beside what the process does next: `confirm` says
            whether it can. Once for each run is enough.

    Raises:
        DefinitionError: a suite is broken.
        EnvironmentSetupError: Great Expectations is not installed.
    """
    from spark_jobs.quality.suites import expectations_folder, load_suites

    if not expectations_folder(pipeline).is_dir() and settings().expectations is None:
        return None
    suites = load_suites(pipeline)
    require(Part.GATE, f"the check of the expectations in {suites.folder}", "run with --no-gate")

    def check() -> None:
        from spark_jobs.quality.gate import check_suites

        check_suites(suites, pipeline)

    return SuitesGate(suites, in_background(check) if thorough else None)
