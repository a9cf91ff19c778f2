"""A run in a few lines of Markdown, for the person who is asked."""

from __future__ import annotations

from typing import Any

from spark_jobs.orchestration.links import report_path
from spark_jobs.runs.store import CHANGES, GATE, OUTCOME, REQUEST, RunFolder


def approval_body(folder: RunFolder) -> str:
    """What changes, what the gate said, and where the report is."""
    request, changes = folder.read(REQUEST) or {}, folder.read(CHANGES) or {}
    gate, outcome = folder.read(GATE), folder.read(OUTCOME) or {}
    counts, causes = changes.get("counts", {}), changes.get("causes", {})
    lines = [
        f"**{_plain(outcome.get('message'))}**",
        "",
        "| change | windows |",
        "| --- | ---: |",
        *(f"| {name} | {counts.get(name, 0):,} |" for name in ("inserted", "updated", "retracted")),
        "",
        f"Causes: {', '.join(f'{name} {count:,}' for name, count in sorted(causes.items())) or 'none'}.",
        f"Late: {changes.get('pairs_late', 0):,} counted late, {changes.get('pairs_dropped', 0):,} dropped.",
    ]
    if gate is not None:
        failed = sum(not result["success"] for result in gate["results"])
        lines.append(f"Gate: {gate['verdict']}, {len(gate['results'])} expectations, {failed} not met.")
    if request.get("reason"):
        lines.append(f"Reason given: {_plain(request['reason'])}")
    lines += ["", f"[Read the report]({report_path(folder.run_id)}) before you answer.", "", f"Run `{folder.run_id}`"]
    return "\n".join(lines)


def _plain(text: Any) -> str:
    """Text of a person or of data as Markdown that is only text."""
    return "".join(f"\\{c}" if c in r"\`*_{}[]()<>#+!|~" else c for c in str(text or "")).replace("\n", " ")
