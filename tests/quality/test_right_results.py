"""The shipped suites let every right result pass: what the engine gives for any kind of window is no fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.quality.gate import check
from spark_jobs.quality.suites import load_suites
from tests.quality.conftest import EXPECTATIONS, staged_flights
from tests.sampling import sample

WINDOWS = {
    "tumbling": "size: 1 h",
    "sliding": "size: 1 h\n  slide: 20 min",
    "cumulative": "size: 4 h\n  step: 1 h",
    "session": "gap: 20 min",
}
NO_LATENESS, LATENESS = "allowed_lateness: 0 ", "allowed_lateness: 40 min "
LAST, ALL = "panes: last", "panes: all"
FLUSH, FREEZE = "end_of_input: flush", "end_of_input: freeze"
# Each pair of values of two of the three choices is there for each kind of window.
CHOICES = (
    (NO_LATENESS, LAST, FLUSH),
    (NO_LATENESS, ALL, FREEZE),
    (LATENESS, LAST, FREEZE),
    (LATENESS, ALL, FLUSH),
)
SAMPLE = {"tumbling": (), "sliding": (), "cumulative": (), "session": (3,)}
"""The choices of each kind in `make test`; the other kinds, and last panes, pass in many other tests."""
CHOSEN = sample(SAMPLE, dict.fromkeys(WINDOWS, tuple(range(len(CHOICES)))))
RUNS = [(kind, *CHOICES[number]) for kind in WINDOWS for number in CHOSEN[kind]]


@pytest.mark.long
@pytest.mark.parametrize(("kind", "lateness", "panes", "end"), RUNS)
def test_a_right_result_passes_the_shipped_suites(
    spark: SparkSession, tmp_path: Path, kind: str, lateness: str, panes: str, end: str
) -> None:
    run = staged_flights(
        spark, tmp_path, "right_results",
        ("type: tumbling", f"type: {kind}"),
        ("size: 1 h", WINDOWS[kind]),
        ("bound: 30 min", "bound: 5 min"),  # many late and dropped records, and sessions that fire in pieces
        (NO_LATENESS, lateness),
        (FLUSH, f"{end}\n{panes}"),
    )  # fmt: skip
    states = {row["state"] for row in run.staged.select("state").distinct().collect()}
    assert "closed" in states
    assert ("open" in states) == (end == FREEZE)
    assert ("not_emitted" in states) == (kind == "session")

    found = check(run, load_suites(run.pipeline, EXPECTATIONS))

    broken = {one.name: one.samples for one in found.results if not one.success}
    critical = {one.name for one in found.results if not one.success and one.severity == "critical"}
    assert not critical, broken
    assert not found.blocks
