"""The gate of a pipeline, from its folder of expectations. Great Expectations is imported only where it is used."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class SuitesGate:
    """The gate of a pipeline's suites."""

    suites: Suites
    pipeline: Pipeline

    def __call__(self, evidence: StagedRun) -> Gate:
        """Check a staged run."""
        from spark_jobs.quality.gate import check

        return check(evidence, self.suites)

    @cached_property
    def _checked(self) -> Future[None]:
        def check() -> None:
            from spark_jobs.quality.gate import check_suites

            check_suites(self.suites, self.pipeline)

        return in_background(check)

    def prepare(self) -> None:
        """Load Great Expectations (seconds) and have it look at the suites, beside what the process does next."""
        _ = self._checked

    def confirm(self) -> None:
        """Raises DefinitionError where Great Expectations cannot check a suite."""
        self._checked.result()


def gate_of(pipeline: Pipeline) -> SuitesGate | None:
    """The gate of a pipeline; None where there is no folder of expectations and the environment names none.

    The suites are read now. Great Expectations is loaded by the gate's first method that is called.

    Raises:
        DefinitionError: a suite is broken.
        EnvironmentSetupError: Great Expectations is not installed.
    """
    from spark_jobs.quality.suites import expectations_folder, load_suites

    if not expectations_folder(pipeline).is_dir() and settings().expectations is None:
        return None
    suites = load_suites(pipeline)
    require(Part.GATE, f"the check of the expectations in {suites.folder}", "run with --no-gate")
    return SuitesGate(suites, pipeline)
