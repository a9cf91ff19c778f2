"""The verdict of a report: how the run ended, in a sentence, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from spark_jobs.formatting import iso, plain, plural
from spark_jobs.lakehouse.change import VISIBLE, WindowChange
from spark_jobs.quality.suites import Severity
from spark_jobs.runs.status import RunStatus


class Level(StrEnum):
    """How good or bad the verdict is. The page gives each level a colour."""

    GOOD = "good"
    NOTE = "note"
    WAITING = "waiting"
    BAD = "bad"


UNKNOWN = "unknown"
"""The status in the report of a run that has written no outcome: it is running, or it was killed."""

_LONGEST_KEY = 80
_TITLES: dict[str, tuple[Level, str]] = {
    RunStatus.PUBLISHED: (Level.GOOD, "Published"),
    RunStatus.UNCHANGED: (Level.GOOD, "Nothing to publish"),
    RunStatus.AWAITING_APPROVAL: (Level.WAITING, "Waiting for approval"),
    RunStatus.STAGED: (Level.WAITING, "Verified, not yet published"),
    RunStatus.GATE_FAILED: (Level.BAD, "Stopped by the gate"),
    RunStatus.REJECTED: (Level.NOTE, "Rejected"),
    RunStatus.DRY_RUN: (Level.NOTE, "Dry run"),
    RunStatus.COMPARED_ONLY: (Level.NOTE, "Compared only"),
    RunStatus.DISCARDED: (Level.NOTE, "Discarded"),
    RunStatus.FAILED: (Level.BAD, "Failed"),
    RunStatus.ABANDONED: (Level.BAD, "Given up"),
}
ENDED_WELL = frozenset(status for status in RunStatus if status.is_success)
ENDED_BADLY = frozenset({RunStatus.FAILED, RunStatus.GATE_FAILED, RunStatus.REJECTED, RunStatus.ABANDONED})


@dataclass(frozen=True, slots=True)
class NextStep:
    """Something to do next; `command` is a command line to copy, where there is one."""

    text: str
    command: str | None = None


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """How a run ended.

    `status` is the status in `outcome.json`, or `unknown` where there is no outcome. It may be a word that this version
    of Rewindow does not know.
    """

    status: str
    level: Level
    title: str
    sentence: str
    next: tuple[NextStep, ...]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self) | {"level": self.level.value, "next": [asdict(step) for step in self.next]}


def verdict_of(
    outcome: Mapping[str, Any] | None,
    changes: Mapping[str, int],
    failing: Sequence[Mapping[str, Any]],
    approval: Mapping[str, Any] | None,
    table: str | None,
    pipeline: str,
    top: Sequence[Mapping[str, Any]] = (),
) -> RunVerdict:
    """The verdict on a run.

    Args:
        outcome: the document `outcome.json`; None where the run has written none.
        changes: the number of windows for each `WindowChange`.
        failing: the results of the expectations that failed, the worst first.
        approval: the document `approval.json`.
        table: the published table.
        pipeline: the name of the pipeline.
        top: the windows with the largest changes, as in the report.
    """
    status: str | None = outcome.get("status") if outcome else None
    unknown = Level.WAITING, "Not ended" if status is None else plain(status)
    level, title = unknown if status is None else _TITLES.get(status, unknown)
    critical = [r for r in failing if r.get("severity") == Severity.CRITICAL]
    warnings = [r for r in failing if r.get("severity") != Severity.CRITICAL]
    if status in ENDED_WELL and warnings:
        level, title = Level.NOTE, f"{title}, with {plural(len(warnings), 'warning')}"
    return RunVerdict(
        status or UNKNOWN,
        level,
        title,
        _sentence(status, outcome or {}, changes, critical, approval, table),
        (
            *(NextStep(text) for text in _next_steps(status, outcome or {}, changes, critical, warnings)),
            *_history_command(status, pipeline, top),
        ),
    )


def changes_in_words(changes: Mapping[str, int]) -> str:
    """2 windows inserted, 5 updated. What readers do not see is left out."""
    parts = [(changes.get(kind, 0), kind.value) for kind in VISIBLE]
    parts = [(n, kind) for n, kind in parts if n]
    if not parts:
        return "no window"
    first, *others = parts
    return ", ".join([f"{plural(first[0], 'window')} {first[1]}", *(f"{n:,} {kind}" for n, kind in others)])


def _sentence(
    status: str | None,
    outcome: Mapping[str, Any],
    changes: Mapping[str, int],
    critical: Sequence[Mapping[str, Any]],
    approval: Mapping[str, Any] | None,
    table: str | None,
) -> str:
    where = f" in {table}" if table else ""
    changed = changes_in_words(changes)
    match status:
        case RunStatus.PUBLISHED:
            return f"The run is published{where}: {changed}."
        case RunStatus.UNCHANGED:
            return f"The published windows{where} already have the values that the run computed: no window changes."
        case RunStatus.AWAITING_APPROVAL | RunStatus.STAGED:
            return f"Nothing is published yet. Publishing would change{where}: {changed}."
        case RunStatus.GATE_FAILED:
            return (
                f"{plural(len(critical), 'critical expectation')} failed, so nothing is published{where}. "
                f"The run would have changed: {changed}."
            )
        case RunStatus.REJECTED:
            by = f" by {plain(approval['by'])}" if approval and approval.get("by") else ""
            return f"The run was rejected{by}. Nothing is published{where}. The run would have changed: {changed}."
        case RunStatus.DRY_RUN:
            return f"This was a dry run: nothing is published{where}. A real run would change: {changed}."
        case RunStatus.COMPARED_ONLY:
            return (
                f"The run compared its windows with the published ones and published nothing{where}. "
                f"It would have changed: {changed}."
            )
        case RunStatus.ABANDONED:
            return "The run was killed, or it waited too long. Its staged windows were deleted. Nothing is published."
        case RunStatus.DISCARDED:
            return "The staged windows of the run were deleted. Nothing is published."
        case RunStatus.FAILED:
            stage = f" in the stage {plain(outcome['stage'])}" if outcome.get("stage") else ""
            where = f" ({plain(outcome['where'], 300)})" if outcome.get("where") else ""
            message = plain(outcome.get("message") or "there is no error message", 500)
            return f"The run failed{stage}: {message}{where}"
        case None:
            return "The run has not ended: it is still running, or it was killed. Nothing of it is published yet."
        case _:
            return f"The run ended with the status {plain(status)}."


def _next_steps(
    status: str | None,
    outcome: Mapping[str, Any],
    changes: Mapping[str, int],
    critical: Sequence[Mapping[str, Any]],
    warnings: Sequence[Mapping[str, Any]],
) -> list[str]:
    steps: list[str] = []
    restated = changes.get(WindowChange.UPDATED, 0) + changes.get(WindowChange.RETRACTED, 0)
    hint = outcome.get("hint") or outcome.get("mend")
    match status:
        case RunStatus.STAGED:
            steps.append("The run publishes next. You need not do anything while it is running.")
        case RunStatus.AWAITING_APPROVAL:
            steps.append("Read below what changed and why. Then approve or reject the run in Airflow.")
            if retracted := changes.get(WindowChange.RETRACTED):
                steps.append(f"{plural(retracted, 'window')} would be removed: find out why before you approve.")
        case RunStatus.GATE_FAILED:
            names = ", ".join(plain(r.get("description") or r.get("expectation"), 120) for r in critical[:3])
            steps.append(f"Start with what failed: {names}. The section Expectations shows sample rows.")
            steps.append(
                "Correct the source or the definition, or change the expectation if it is too strict. Then run again."
            )
        case RunStatus.FAILED:
            steps.append(plain(hint or "Read the log of the stage that failed. Then run again.", 500))
            steps.append("The published windows have not changed.")
        case RunStatus.REJECTED:
            steps.append("The published windows have not changed. Correct what led to the rejection, then run again.")
        case RunStatus.DRY_RUN:
            steps.append("To publish these changes, run the same without the dry run.")
        case RunStatus.COMPARED_ONLY:
            steps.append(
                "Either a newer run has already published, or this run was requested to compare only. "
                "There is nothing to do."
            )
        case RunStatus.PUBLISHED if restated:
            steps.append("Readers of the table now see the new values. The old values are kept as revisions.")
        case RunStatus.PUBLISHED | RunStatus.UNCHANGED if not warnings:
            steps.append("There is nothing to do.")
        case None:
            steps.append("If no stage is running any more, start the run again: it continues in the same tables.")
    if warnings:
        steps.append(f"Read {plural(len(warnings), 'warning')} in the section Expectations.")
    if hint and status not in (RunStatus.FAILED, RunStatus.PUBLISHED, RunStatus.UNCHANGED):
        steps.append(plain(hint, 500))
    messages = [outcome.get("message") if status != RunStatus.FAILED else None, outcome.get("note")]
    steps[:0] = [_as_sentence(plain(text, 500)) for text in messages if text]
    return steps


def _history_command(status: str | None, pipeline: str, top: Sequence[Mapping[str, Any]]) -> list[NextStep]:
    """The command that shows the revisions of the window with the largest change.

    Empty where no window had a value before, or where the window's key is too long or not printable.
    """
    window = next((w for w in top if w["before"] is not None), None)
    if status not in (RunStatus.PUBLISHED, RunStatus.AWAITING_APPROVAL) or not pipeline or window is None:
        return []
    values = {name: "null" if v is None else str(v) for name, v in window["key"].items()}
    if any(len(v) > _LONGEST_KEY or not v.isprintable() for v in values.values()):
        return []
    keys = " ".join(f"--key {shlex.quote(f'{name}={v}')}" for name, v in values.items())
    command = f"rewindow history {shlex.quote(pipeline)} --window {iso(window['start'])} {keys}"
    return [NextStep("To see all revisions of the window with the largest change:", command)]


def _as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
