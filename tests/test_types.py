"""Types: `spark_jobs/eventtime` strictly, the rest of the product at the checker's basic level."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.long


def test_the_type_checker_finds_no_error() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("basedpyright")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    assert "0 errors" in done.stdout
