"""Runs a folder of cases through one engine and reports the differences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from spark_jobs.conformance.case import load_cases
from spark_jobs.conformance.formats import Engine, Tried, try_case
from spark_jobs.errors import DefinitionError


def run_cases(folder: Path, engine: str, *, verbose: bool, say: Callable[[str], None]) -> tuple[int, int]:
    """(passed, failed) over all case files of a folder; a case with several Flink versions counts once.

    `engine` is `sequential` or `spark`. Writes one line for each failing case with its first difference. Where the
    Spark engine simulated the watermark or handed sessions to the sequential operator, it writes a line about that.
    """
    chosen = Engine(set_based=engine == "spark")
    passed = failed = 0
    for path in load_cases(folder):
        difference, note = _try(path, chosen)
        if difference is not None:
            failed += 1
            say(f"FAIL {path.name}: {difference}")
            continue
        passed += 1
        if note or verbose:
            say(f"pass {path.name}" + (f" ({note})" if note else ""))
    return passed, failed


def _try(path: Path, engine: Engine) -> Tried:
    try:
        return try_case(path, engine)
    except DefinitionError as problem:
        return Tried(str(problem))
    except Exception as problem:
        line = next((line for line in str(problem).splitlines() if line.strip()), "")
        return Tried(f"{type(problem).__name__}: {line[:300]}")
