"""Runs cases through one engine and reports the differences, by the format of each case file.

The field `format` of a file chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_jobs.errors import DefinitionError
from tests.conformance import case as flink
from tests.conformance import flink_sql_case as flink_sql
from tests.conformance import kstreams_case as kafka_streams
from tests.conformance import microbatch_case
from tests.conformance.case import load_cases
from tests.conformance.case_file import json_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_ROWS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Spark settings for queries over a few rows: nothing planned twice, nothing compiled, which takes longer than they."""
TINY = {**FEW_ROWS, "spark.sql.shuffle.partitions": "1"}
"""Spark settings for many tiny inputs: those for a few rows, and one task a stage."""


@dataclass(frozen=True)
class Engine:
    """The engine that cases run through: the sequential one, or the set-based one on Spark."""

    set_based: bool

    @cached_property
    def spark(self) -> SparkSession:
        """The session of all cases; it starts when the first one needs it."""
        from spark_jobs.spark.session import spark_session

        return spark_session("rewindow conformance", conf=TINY)


class Tried(NamedTuple):
    """One case that ran: the first difference from what is recorded (None: there is none), and how the engine worked.

    `difference` is None where the engine did everything that the case records.
    """

    difference: str | None
    note: str = ""


def _try_flink(path: Path, document: dict[str, Any], engine: Engine) -> Tried:
    from tests.conformance.compare import first_difference

    case, note = flink.Case(path, document), ""
    for version, strategy, expected in case.expectations:
        if engine.set_based:
            from tests.conformance.spark import run_spark

            outcome = run_spark(engine.spark, case, strategy)
        else:
            from tests.conformance.sequential import run_sequential

            outcome = run_sequential(case, strategy)
        note = outcome.note
        difference = first_difference(case, expected, outcome, set_based=engine.set_based)
        if difference is not None:
            return Tried(f"Flink {version}: {difference}", note)
    return Tried(None, note)


def _try_flink_sql(path: Path, document: dict[str, Any], engine: Engine) -> Tried:
    case = flink_sql.SqlCase(path, document)
    if case.why_not_replayed:
        return Tried(None, case.why_not_replayed)
    for version in case.versions:
        if version.expected["error"]:
            continue
        if engine.set_based:
            from tests.conformance.flink_sql_spark import run_spark

            if not case.is_decided_by_the_log:
                continue
            rows = run_spark(engine.spark, case, version)
        else:
            from tests.conformance.flink_sql_sequential import run_sequential

            rows = run_sequential(case, version)
        difference = flink_sql.first_difference(case, version, rows)
        if difference is not None:
            return Tried(f"Flink {version.name}: {difference}")
    return Tried(None)


def _try_structured_streaming(path: Path, document: dict[str, Any], engine: Engine) -> Tried:
    from tests.conformance.microbatch_compare import first_difference

    case = microbatch_case.MicroBatchCase(path, document)
    if engine.set_based:
        from tests.conformance.microbatch_spark import run_spark

        outcome = run_spark(engine.spark, case)
    else:
        from tests.conformance.microbatch_sequential import run_sequential

        outcome = run_sequential(case)
    return Tried(first_difference(case, outcome), outcome.note)


def _try_kafka_streams(path: Path, document: dict[str, Any], engine: Engine) -> Tried:
    case = kafka_streams.StreamsCase(path, document)
    if engine.set_based:
        from tests.conformance.kstreams_spark import run_spark

        outcome = run_spark(engine.spark, case)
    else:
        from tests.conformance.kstreams_sequential import run_sequential

        outcome = run_sequential(case)
    return Tried(kafka_streams.first_difference(case, outcome), outcome.note)


FORMATS: Mapping[str, Callable[[Path, dict[str, Any], Engine], Tried]] = {
    flink.FORMAT: _try_flink,
    flink_sql.FORMAT: _try_flink_sql,
    microbatch_case.FORMAT: _try_structured_streaming,
    kafka_streams.FORMAT: _try_kafka_streams,
}
"""What runs a case file of each format: its path, its content, the engine."""


def try_case(path: Path, engine: Engine) -> Tried:
    """Run one case file. Raises DefinitionError for a file that is no case, or one of an unknown format."""
    document = json_of(path)
    written = document.get("format") if isinstance(document, dict) else None
    if not isinstance(written, str) or written not in FORMATS:
        raise DefinitionError(
            f"not a case of the formats {', '.join(FORMATS)}" + (f", but of {written!r}" if written else ""),
            where=str(path),
            hint="the field `format` of a case file says which it is; see the README files in tests/golden",
        )
    return FORMATS[written](path, document, engine)


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
