"""What importing the plugin costs those that only read it: every worker, the scheduler, the DAG processor."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = ("altair", "great_expectations", "pandas", "pyspark", "vl_convert")


def loaded_by(code: str, names: tuple[str, ...], home: Path) -> list[str]:
    """Which of the modules `names` are there after `code` has run in a Python of its own."""
    ask = f"import sys\n{code}\nprint(*[name for name in {names!r} if name in sys.modules])"
    environ = {"PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(home)}
    done = subprocess.run([sys.executable, "-c", ask], env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1].split()


def test_the_plugin_imports_no_server(tmp_path: Path) -> None:
    assert loaded_by("import spark_jobs.web.plugin", (*HEAVY, "fastapi", "spark_jobs.web.app"), tmp_path) == []


def test_the_server_imports_no_engine_and_no_charts(tmp_path: Path) -> None:
    assert loaded_by("import spark_jobs.web.app", HEAVY, tmp_path) == []


def test_the_file_for_the_plugins_folder_adds_the_plugin_only_where_the_package_does_not(monkeypatch) -> None:
    file = str(ROOT / "plugins" / "rewindow_reports.py")
    assert "RewindowReports" not in runpy.run_path(file)  # the tests' environment has the entry point
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    assert runpy.run_path(file)["RewindowReports"].name == "rewindow_reports"
