"""The form of a decision about a run: it starts a run of the DAG `decide__<pipeline>`."""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.orchestration.form import DISCARD, MAX_REASON, PUBLISH, REPEAT, REVERT
from spark_jobs.runs.corrected import DeliveredCorrections
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.store import RunFolder

_OF_WAITING = {
    PUBLISH: "Publish what the run has staged, in spite of a closed gate too",
    DISCARD: "Discard it: the published windows stay as they are",
}
_OF_CORRECTED = {
    REPEAT: "Repeat its corrections: deliver them once more, to a destination that has lost them",
    REVERT: "Revert its corrections: bring back what readers of the live job's output had before them",
}


def actions_of(folder: RunFolder, status: RunStatus | None) -> dict[str, str]:
    """The actions that a run can have, with their meanings: none is chosen at first. Empty: nothing can be decided."""
    if status is not None and status.waits:
        return _OF_WAITING
    corrections = DeliveredCorrections.read(folder) if status is not None and status.is_published else None
    return _OF_CORRECTED if corrections is not None and corrections.delivered else {}


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has chosen."""

    action: str
    reason: str

    def problem(self, actions: dict[str, str]) -> str:
        """Which field is wrong; empty: none."""
        if self.action not in actions:
            return "Choose what is to be done."
        if not self.reason:
            return "Write why: it is kept with the run, together with your name."
        if len(self.reason) > MAX_REASON:
            return f"The reason has {len(self.reason):,} characters: {MAX_REASON:,} are the most."
        return ""
