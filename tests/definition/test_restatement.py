"""The tolerance of `within_tolerance`: a share alone, or limits that all hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError

YAML = """
name: rides
history: {kind: files, path: "data/*.json", format: json}
value: {schema: "city STRING, at STRING, fare DECIMAL(10,2)"}
keys: {city: city}
event_time: {expression: at, unit: iso}
window: {type: tumbling, size: 1 h}
aggregates: {rides: count(*), revenue: sum(fare)}
mode: complete
publish: {policy: within_tolerance, tolerance: TOLERANCE}
"""


def loaded(tmp_path: Path, tolerance: str):
    return load_pipeline(tmp_path / "rides.yaml", text=YAML.replace("TOLERANCE", tolerance)).publish.tolerance


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("1 %", "at most 1 % of the windows that readers had on those days"),
        ("0.5", "at most 50 % of the windows that readers had on those days"),
        (
            "{share: 1 %, windows: 50, reach: 7 d, change: {revenue: 0.5 %, rides: 100}}",
            "at most 1 % of the windows that readers had on those days, 50 windows, `revenue` by 0.5 %, "
            "`rides` by 100, none more than 7 days back",
        ),
        ("{windows: 0}", "at most 0 windows"),
    ],
)
def test_a_tolerance_says_what_it_allows(tmp_path: Path, written: str, words: str) -> None:
    assert loaded(tmp_path, written).in_words() == words


@pytest.mark.parametrize(
    ("written", "refused"),
    [
        ("50", "it is a share of the windows that readers had; write it like `1 %`; a number is `windows`"),
        ("{change: {reveneu: 1 %}}", "`reveneu` is no aggregate of this definition; did you mean `revenue`?"),
        ("{change: {revenue: lots}}", "`lots` is not how far a value may move; write a share like `0.5 %`"),
        ("{change: {revenue: -1}}", "`-1` is not how far a value may move"),
        ("{windows: -1}", "greater than or equal to 0"),
        ("{last: 7 d}", "last"),
    ],
)
def test_what_is_no_tolerance_is_refused_with_what_to_write(tmp_path: Path, written: str, refused: str) -> None:
    with pytest.raises(DefinitionError) as problem:
        loaded(tmp_path, written)
    assert refused in str(problem.value)
