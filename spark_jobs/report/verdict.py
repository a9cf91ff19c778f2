"""The verdict: how a run ended, in a sentence, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from spark_jobs.formatting import iso, plain, plural


class Level(StrEnum):
    """How a reader should take it."""

    GOOD = "good"
    NOTE = "note"
    WAITING = "waiting"
    BAD = "bad"


_LONGEST_KEY = 80
_TITLES = {
    "published": (Level.GOOD, "Published"),
    "unchanged": (Level.GOOD, "Nothing to publish"),
    "awaiting_approval": (Level.WAITING, "Waiting for approval"),
    "staged": (Level.WAITING, "Verified, not yet published"),
    "gate_failed": (Level.BAD, "Stopped by the gate"),
    "rejected": (Level.NOTE, "Rejected"),
    "dry_run": (Level.NOTE, "Dry run"),
    "compared_only": (Level.NOTE, "Compared only"),
    "not_published": (Level.NOTE, "Not published"),
    "discarded": (Level.NOTE, "Discarded"),
    "failed": (Level.BAD, "Failed"),
}
ENDED_WELL = frozenset({"published", "unchanged", "dry_run", "compared_only"})
ENDED_BADLY = frozenset({"failed", "gate_failed", "rejected"})


def verdict_of(
    outcome: Mapping[str, Any] | None,
    changes: Mapping[str, int],
    failing: Sequence[Mapping[str, Any]],
    approval: Mapping[str, Any] | None,
    table: str | None,
    pipeline: str,
    top: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """`status`, `level`, `title`, `sentence`, `next`: what to do, each a `text` and perhaps a `command`.

    `failing`: expectations not met, worst first. `top`: the windows that change most.
    """
    status = outcome.get("status") if outcome else None
    level, title = _TITLES.get(status, (Level.WAITING, "Not ended" if status is None else plain(status)))
    critical = [r for r in failing if r.get("severity") == "critical"]
    rest = [r for r in failing if r.get("severity") != "critical"]
    if status in ENDED_WELL and rest:
        level, title = Level.NOTE, f"{title}, with {plural(len(rest), 'warning')}"
    return {
        "status": status or "unknown",
        "level": level.value,
        "title": title,
        "sentence": _sentence(status, outcome or {}, changes, critical, approval, table),
        "next": [
            *({"text": text, "command": None} for text in _next(status, outcome or {}, changes, critical, rest)),
            *_history_of(status, pipeline, top),
        ],
    }


def told_changes(changes: Mapping[str, int]) -> str:
    """2 windows inserted, 5 updated."""
    parts = [(changes.get(kind, 0), kind) for kind in ("inserted", "updated", "retracted")]
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
    told = told_changes(changes)
    match status:
        case "published":
            return f"The run is published{where}: {told}."
        case "unchanged":
            return f"What is published{where} is what the history gives: no window changes."
        case "awaiting_approval" | "staged":
            return f"Nothing is published yet. Publishing would change{where}: {told}."
        case "gate_failed":
            return (
                f"{plural(len(critical), 'critical expectation')} failed, so nothing is published{where}; "
                f"it would have changed: {told}."
            )
        case "rejected":
            by = f" by {plain(approval['by'])}" if approval and approval.get("by") else ""
            return f"The run was rejected{by}; nothing is published{where}. It would have changed: {told}."
        case "dry_run":
            return f"A dry run: nothing is published{where}. It would change: {told}."
        case "compared_only":
            return f"The run compared and published nothing{where}. It would have changed: {told}."
        case "not_published":
            return f"The run ended without publishing{where}. It would have changed: {told}."
        case "discarded":
            return "What the run had staged was thrown away; nothing is published."
        case "failed":
            stage = f" in the stage {plain(outcome['stage'])}" if outcome.get("stage") else ""
            where = f" ({plain(outcome['where'], 300)})" if outcome.get("where") else ""
            return f"The run failed{stage}: {plain(outcome.get('message') or 'no message was left', 500)}{where}"
        case None:
            return "The run has left no outcome: it is still at work, or it was killed. Nothing of it counts yet."
        case _:
            return f"The run ended as {plain(status)}."


def _next(
    status: str | None,
    outcome: Mapping[str, Any],
    changes: Mapping[str, int],
    critical: Sequence[Mapping[str, Any]],
    rest: Sequence[Mapping[str, Any]],
) -> list[str]:
    steps: list[str] = []
    restated = changes.get("updated", 0) + changes.get("retracted", 0)
    match status:
        case "staged":
            steps.append("Publishing comes next; nothing needs doing while the run is at work.")
        case "awaiting_approval":
            steps.append("Look at what changed and why, below; then approve or reject the run where it waits.")
            if changes.get("retracted"):
                steps.append(f"{plural(changes['retracted'], 'window')} would go: see why before you approve.")
        case "gate_failed":
            names = ", ".join(plain(r.get("description") or r.get("expectation"), 120) for r in critical[:3])
            steps.append(f"Begin with what failed: {names}. The rows are under Expectations.")
            steps.append("Mend the source or the definition, or change the suite if it asks too much; then run again.")
        case "failed":
            steps.append(
                plain(
                    outcome.get("hint")
                    or outcome.get("mend")
                    or "See the log of the stage that failed, then run again.",
                    500,
                )
            )
            steps.append("The published windows are as they were before.")
        case "rejected":
            steps.append("The published windows are as they were. Run again once the reason is dealt with.")
        case "dry_run":
            steps.append("If this is what you want, run the same without the dry run.")
        case "compared_only":
            steps.append("A newer run has been published, or the run was asked to compare. Nothing needs doing.")
        case "not_published":
            steps.append("Publishing needs a run whose policy lets it: see the message and the plan below.")
        case "published" if restated:
            steps.append("Readers of the table see the new values from now on; the old ones stay as revisions.")
        case "published" | "unchanged" if not rest:
            steps.append("Nothing needs doing.")
        case None:
            steps.append("If no stage is at work any more, run it again: it ends in the same tables.")
    if rest:
        steps.append(f"Look at {plural(len(rest), 'warning')} under Expectations.")
    hint = outcome.get("hint") or outcome.get("mend")
    if hint and status not in ("failed", "published", "unchanged"):
        steps.append(plain(hint, 500))
    told = [outcome.get("message") if status != "failed" else None, outcome.get("note")]
    steps[:0] = [_sentence_of(plain(text, 500)) for text in told if text]
    return steps


def _history_of(status: str | None, pipeline: str, top: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """The command that tells the life of the window that changed most, where it had one and can be named."""
    window = next((w for w in top if w["before"] is not None), None)
    if status not in ("published", "awaiting_approval") or not pipeline or window is None:
        return []
    values = {name: "null" if v is None else str(v) for name, v in window["key"].items()}
    if any(len(v) > _LONGEST_KEY or not v.isprintable() for v in values.values()):
        return []
    keys = " ".join(f"--key {shlex.quote(f'{name}={v}')}" for name, v in values.items())
    command = f"rewindow history {shlex.quote(pipeline)} --window {iso(window['start'])} {keys}"
    return [{"text": "The life of the window that changes most:", "command": command}]


def _sentence_of(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
