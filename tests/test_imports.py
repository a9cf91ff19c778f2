"""What each folder may import (the contracts of pyproject.toml), and which kinds it may distinguish."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ROOT / "spark_jobs"
SWITCH_ON_HISTORY = re.compile(
    r"(isinstance\(.*|case )(Files|Hive|Table|Kafka|Stitched)History\b|history\.kind\b [=!i]"
)


def test_folders_import_only_what_their_contracts_allow() -> None:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_only_two_modules_distinguish_the_kinds_of_history() -> None:
    """The sources open a history, and lineage names it without opening it."""
    switching = {
        path.relative_to(PRODUCT).as_posix()
        for path in PRODUCT.rglob("*.py")
        if path.parent.name != "definition"
        and any(SWITCH_ON_HISTORY.search(line) for line in path.read_text().splitlines())
    }
    assert switching == {"sources/history.py", "orchestration/lineage.py"}
