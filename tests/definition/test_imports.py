"""Definitions are read wherever DAGs are parsed, so reading them must be quick and must not bring in Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _after_import(expression: str) -> str:
    program = f"import sys, time; begin = time.process_time(); import spark_jobs.definition; print({expression})"
    return subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True).strip()


def test_reading_definitions_imports_no_framework() -> None:
    assert _after_import("*({'pyspark', 'airflow', 'great_expectations', 'pandas'} & set(sys.modules))") == ""


def test_the_import_takes_less_than_half_a_second_of_processor_time() -> None:
    # The best of a few: a busy machine slows single runs down.
    assert any(float(_after_import("time.process_time() - begin")) < 0.5 for _ in range(5))
