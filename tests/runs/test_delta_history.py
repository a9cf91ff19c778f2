"""A Delta table as a history: windows as from files, pinned versions, and nights over what was appended."""

from __future__ import annotations

import subprocess
import sys
from os import environ
from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.sources import open_history
from spark_jobs.spark.jvm import DELTA
from tests.processes import ROOT
from tests.runs.small_runs import definition_text


@pytest.mark.long
def test_a_delta_table_is_a_history_as_an_iceberg_table_is_one(tmp_path: Path) -> None:
    """It needs a Spark that was started with Delta, so it runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.runs.delta_lake", str(tmp_path)],
        env={**environ, "REWINDOW_PACKAGES": DELTA},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count(": as expected") == 6


def test_without_delta_the_setting_is_named_that_adds_it(spark, tmp_path: Path) -> None:
    text = definition_text("no_delta", tmp_path / "data")
    path = tmp_path / "no_delta.yaml"
    files = f"  kind: files\n  path: {tmp_path}/data/*.json\n  format: json\n"
    path.write_text(text.replace(files, "  kind: table\n  format: delta\n  table: /lake/flights\n"))
    with pytest.raises(EnvironmentSetupError, match="Spark was started without Delta") as refused:
        open_history(spark, load_pipeline(path))
    assert f"REWINDOW_PACKAGES={DELTA}" in (refused.value.hint or "")
