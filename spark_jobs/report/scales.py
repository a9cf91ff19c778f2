"""What the report's charts and its tables share: names of charts and bins, rows to show, colours."""

from __future__ import annotations

from collections.abc import Sequence

from spark_jobs.formatting import length
from spark_jobs.report.counted import Advisor, Setting

CHARTS = ("strip", "verdicts", "live_lag", "lag", "zoom", "watermark", "missed", "hours", "advisor")
"""The charts that a page may have."""

VERDICT_COLOURS = {
    "mismatch": "var(--late)",
    "missing": "var(--ink)",
    "extra": "var(--behind)",
    "undecided": "var(--waiting)",
    "timing": "var(--watermark)",
    "late_arrivals": "var(--on-time)",
    "all_late": "var(--muted)",
}
"""By verdict, in the order in which they are stacked."""


def shown_tolerances(advisor: Advisor) -> list[Setting]:
    """The rows up to the first tolerance that no record misses, and the definition's own in any case."""
    rows = advisor.tolerances
    first = next((i for i, row in enumerate(rows) if not row.behind), len(rows) - 1)
    own = advisor.now.tolerance if advisor.now else advisor.configured
    return [row for i, row in enumerate(rows) if i <= first or row.tolerance <= own]


def bin_name(edges: Sequence[int], i: int) -> str:
    """1 min to 2 min; less than 1 s; 28 d and more."""
    if i == 0:
        return f"less than {length(edges[1])}"
    if i == len(edges) - 1:
        return f"{length(edges[i])} and more"
    return f"{length(edges[i])} to {length(edges[i + 1])}"
