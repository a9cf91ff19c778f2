"""What a run calls at its end that it does not know itself: comparison, gate, the report's facts, corrections."""

from __future__ import annotations

from spark_jobs.comparison.news import has_live_news
from spark_jobs.comparison.stage import compare_run
from spark_jobs.corrections.stage import bring_corrections
from spark_jobs.definition import Pipeline
from spark_jobs.quality.configured import NO_FOLDER, gate_of
from spark_jobs.report.facts import gather
from spark_jobs.runs.life.documents import DryRun, Requested
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.work.evaluation import EndPolicy

NO_GATE = "the run was started with --no-gate"


def end_policy_of(pipeline: Pipeline, requested: Requested, *, gate: bool = True) -> EndPolicy:
    """How a run ends: as requested, or as the definition says.

    Raises DefinitionError where a suite cannot be read.
    """
    checks = gate_of(pipeline) if gate else None
    is_live = pipeline.live is not None
    return EndPolicy(
        policy=requested.publish,
        ends_as=RunStatus.DRY_RUN if requested.dry_run is DryRun.DIFF else None,
        compare=compare_run if is_live else None,
        live_news=has_live_news if is_live else None,
        gate=checks,
        prepare=checks.prepare if checks else None,
        confirm_gate=checks.confirm if checks else None,
        unchecked="" if checks else NO_FOLDER if gate else NO_GATE,
        collector=gather,
        deliver=bring_corrections,
    )
