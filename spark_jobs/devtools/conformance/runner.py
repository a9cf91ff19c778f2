"""Runs a folder of cases through one engine and reports the differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark_jobs.devtools.conformance.case import Case, load_case, load_cases
from spark_jobs.devtools.conformance.compare import Outcome, first_difference
from spark_jobs.devtools.conformance.sequential import run_sequential
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.strategy import WatermarkStrategy

FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark settings for queries over a few rows: nothing planned twice, nothing compiled, which takes longer than they."""
TINY = {**FEW_ROWS, "spark.sql.shuffle.partitions": "1"}
"""Spark settings for many tiny inputs: those for a few rows, and one task a stage."""


def run_cases(folder: Path, engine: str, *, verbose: bool, say: Callable[[str], None]) -> tuple[int, int]:
    """(passed, failed) over all case files of a folder; a case with several Flink versions counts once.

    Writes one line for each failing case with its first difference. Where the Spark engine simulated the watermark or
    handed sessions to the sequential operator, it writes a line about that.
    """
    run = run_sequential if engine == "sequential" else _spark_runner()
    passed = failed = 0
    for path in load_cases(folder):
        difference, note = _try(path, run, set_based=engine == "spark")
        if difference is not None:
            failed += 1
            say(f"FAIL {path.name}: {difference}")
            continue
        passed += 1
        if note or verbose:
            say(f"pass {path.name}" + (f" ({note})" if note else ""))
    return passed, failed


def _try(path: Path, run: Callable[[Case, WatermarkStrategy], Outcome], *, set_based: bool) -> tuple[str | None, str]:
    note = ""
    try:
        case = load_case(path)
        for version, strategy, expected in case.expectations:
            outcome = run(case, strategy)
            note = outcome.note
            difference = first_difference(case, expected, outcome, set_based=set_based)
            if difference is not None:
                return f"Flink {version}: {difference}", note
    except DefinitionError as problem:
        return str(problem), note
    except Exception as problem:
        line = next((line for line in str(problem).splitlines() if line.strip()), "")
        return f"{type(problem).__name__}: {line[:300]}", note
    return None, note


def _spark_runner() -> Callable[[Case, WatermarkStrategy], Outcome]:
    from functools import partial

    from spark_jobs.devtools.conformance.spark import run_spark
    from spark_jobs.spark.session import spark_session

    return partial(run_spark, spark_session("rewindow conformance", conf=TINY))
