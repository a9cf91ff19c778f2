"""Definitions are read wherever DAGs are parsed, so reading them must be quick and must not bring in Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _after_import(expression: str) -> str:
    program = f"import sys; import spark_jobs.definition; print({expression})"
    return subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True).strip()


def test_reading_definitions_imports_no_framework() -> None:
    assert _after_import("*({'pyspark', 'airflow', 'great_expectations', 'pandas'} & set(sys.modules))") == ""
