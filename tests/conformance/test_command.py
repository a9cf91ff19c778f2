"""The command that runs recorded cases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.conformance", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_it_closes_with_the_counts_and_fails_when_a_case_fails(tmp_path: Path) -> None:
    passed = _conformance("tests/golden/flink/sem_keys.json")
    assert (passed.returncode, passed.stdout) == (0, "1 passed, 0 failed\n")
    (tmp_path / "x.json").write_text("{}")
    failed = _conformance(str(tmp_path))
    first, last = failed.stdout.splitlines()
    assert first.startswith("FAIL x.json: not a case of the formats ")
    assert (failed.returncode, last) == (1, "0 passed, 1 failed")


def test_a_folder_that_does_not_exist_is_a_mistake_in_the_command_line(tmp_path: Path) -> None:
    refused = _conformance(str(tmp_path / "nothing"))
    assert refused.returncode == 2
    assert refused.stderr.endswith("nothing does not exist\n")
