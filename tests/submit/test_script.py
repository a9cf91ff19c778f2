"""The application as `spark-submit` starts it, as a script: all that it calls is defined before it begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from spark_jobs.submit import application

EXAMPLE = Path("dags/pipelines/departures_hourly.yaml")


QUESTION = "look-20200913122700-0123456789abcdef.json"


def test_a_question_reaches_the_script(tmp_path: Path) -> None:
    command = [sys.executable, str(application.__file__), "--look", str(EXAMPLE.resolve()), "--question", QUESTION]
    own = {**os.environ, "REWINDOW_HOME": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, env=own)
    said = ended.stdout + ended.stderr
    assert (ended.returncode, f"there is no question {QUESTION}" in said) == (2, True), said
