"""What became of a run whose process was ended before it could say so, found out from the run's documents. No Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from spark_jobs.runs.life.documents import Application, Approval, Outcome
from spark_jobs.runs.life.status import RunStatus, Stage
from spark_jobs.runs.life.store import RunFolder


def stage_at_work(applications: Sequence[Application]) -> Stage | None:
    """The last stage, by the run's order, whose application has begun and not ended; None where none has."""
    begun = {application.stage for application in applications if application.seconds is None}
    return next((stage for stage in reversed(Stage) if stage in begun), None)


BEGIN_AGAIN = "Clear the task, or start the run again: what it had staged is then dropped."
"""What to do about a run that was ended by force."""


def ended_by_force(stage: Stage | None) -> str:
    """The reason shown for a run that ended without saying why. `stage`: the one at work; None: there was none."""
    how = f"ended by hand, or killed in `{stage.value}`" if stage else "ended by hand, killed, or could not start"
    return f"the run was {how}"


def record_end(folder: RunFolder, now: datetime, why: str = "") -> None:
    """Write down that nothing works on the run any more, where its documents still say that something does.

    For the last step of a run, when all others have ended: a stage that was ended by hand or killed leaves no outcome.
    `why`: where that is known.
    """
    outcome = Outcome.read(folder)
    stage = stage_at_work(Application.all_of(folder))
    if outcome is None or outcome.status.has_work:
        said = {} if outcome is None else outcome.to_dict()
        ended = {
            "run_id": folder.run_id,
            "status": RunStatus.FAILED,
            "stage": stage,
            "message": why or ended_by_force(stage),
            "hint": "Start it again: what it had staged is then dropped." if why else BEGIN_AGAIN,
            "finished_at": now.isoformat(),
        }
        Outcome.model_validate({**said, **ended}).write(folder)
    elif outcome.status in _WAITS_FOR_NOBODY and not outcome.refusal:
        has_answer = Approval.read(folder) is not None  # then `publish` was ended, not `approve`
        status = RunStatus.STAGED if has_answer else outcome.status
        outcome.model_copy(update={"note": _WAITS_FOR_NOBODY[status]}).write(folder)


_WAITS_FOR_NOBODY = {
    RunStatus.STAGED: "the task `publish` was ended by hand, or killed: nothing publishes the run now",
    RunStatus.AWAITING_APPROVAL: "the task `approve` ended without an answer: nothing asks for the approval now",
}
