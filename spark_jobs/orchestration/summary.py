"""A run in a few lines of Markdown, for the person who approves it."""

from __future__ import annotations

from typing import Any

from spark_jobs.lakehouse.change import VISIBLE
from spark_jobs.orchestration.links import report_path
from spark_jobs.runs.corrected import DeliveredCorrections
from spark_jobs.runs.documents import Changes, Gate, Outcome, Request
from spark_jobs.runs.figures import RunFigures, changes_in_words, failed_in_words
from spark_jobs.runs.store import RunFolder


def approval_body(folder: RunFolder) -> str:
    """What changes, what the gate said, and where the report is."""
    request, changes = Request.read(folder), Changes.read(folder) or Changes()
    gate, outcome = Gate.read(folder), Outcome.read(folder)
    counts, causes = changes.counts, changes.causes
    lines = [
        f"**{escaped(outcome and outcome.message)}**",
        "",
        f"Publishing would change: {changes_in_words(counts)}.",
        "",
        "| change | windows |",
        "| --- | ---: |",
        *(f"| {name.value} | {counts.get(name, 0):,} |" for name in VISIBLE),
        "",
        f"Causes: {', '.join(f'{name} {count:,}' for name, count in sorted(causes.items())) or 'none'}.",
        *(f"{name}: {text}." for name, text in RunFigures.of(changes).in_words().items()),
    ]
    corrections = DeliveredCorrections.read(folder)
    if corrections is not None:
        lines.append(f"Readers of the live job's output: {escaped(corrections.sentence())}.")
    if gate is not None:
        lines.append(f"Gate: {gate.verdict}, {len(gate.results)} expectations; failed: {failed_in_words(gate.failed)}.")
    if request is not None and request.reason:
        lines.append(f"Reason given: {escaped(request.reason)}")
    lines += ["", f"[Read the report]({report_path(folder.run_id)}) before you answer.", "", f"Run `{folder.run_id}`"]
    return "\n".join(lines)


def escaped(text: Any) -> str:
    """Text of a person or of data as Markdown that is only text."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]()<>#+!|~" else c for c in str(text or "")).replace("\n", " ")
