"""The sequential model of Kafka Streams against what the real library did, and the command that runs the cases."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.case import load_cases
from tests.conformance.formats import Engine, run_cases, try_case

FOLDER = Path("tests/golden/kstreams")
CASES = load_cases(FOLDER)


def test_the_cases_are_the_ones_of_the_index() -> None:
    entries = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))["cases"]
    assert {path.name for path in CASES} == {entry["file"] for entry in entries}
    for entry in entries:
        assert hashlib.sha256((FOLDER / entry["file"]).read_bytes()).hexdigest() == entry["sha256"], entry["file"]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_model_does_everything_that_kafka_streams_did(path: Path) -> None:
    assert try_case(path, Engine(set_based=False)).difference is None


def changed_copy(folder: Path, change) -> Path:
    document: dict[str, Any] = json.loads((FOLDER / "sem_session_suppress_twice.json").read_text())
    change(document)
    (folder / "case.json").write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d["expected"]["rows"].pop(), "row 3: expected none"),
        (lambda d: d["expected"]["rows"][0].__setitem__(6, 2), "row 0: expected record=1"),
        (lambda d: d["expected"]["skipped"].append([0, 0, 1, 1, 1]), "skipped 0: expected record=0"),
        (lambda d: d["expected"]["ignored"].append([0, "null key"]), "ignored 0: expected record=0"),
        (lambda d: d["expected"]["open"].pop(), "open 0: expected none"),
        (lambda d: d["expected"].__setitem__("error", "boom"), "error: expected boom"),
        (lambda d: d["config"].__setitem__("retention_ms", 4_999), "the retention must be at least 5000 ms"),
        (lambda d: d["config"].__setitem__("emission", "sometimes"), "unknown emission 'sometimes'"),
        (lambda d: d["config"]["window"].__setitem__("kind", "global"), "unknown window kind 'global'"),
        (lambda d: d.__setitem__("restarts", [{"before": 1, "state": "x"}]), "unknown state of a restart 'x'"),
    ],
)
def test_a_case_that_says_something_else_fails_with_one_line(tmp_path: Path, change, says: str) -> None:
    lines: list[str] = []
    assert run_cases(changed_copy(tmp_path, change), "sequential", verbose=False, say=lines.append) == (0, 1)
    assert len(lines) == 1
    assert lines[0].startswith(f"FAIL case.json: {says}")
