"""The Spark engine against recorded cases: every firing with pane, contents and position, late records, failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.eventtime.flink.suppliers import GeneratorKind
from tests.conformance.case import Case, load_cases
from tests.conformance.compare import first_difference
from tests.conformance.spark import run_spark
from tests.sampling import drawn

GOLDEN = Path("tests/golden")
CASES = [*drawn(load_cases(GOLDEN / "flink"), 3), *drawn(load_cases(GOLDEN / "generators"), 15)]
"""A draw of the runs of real Flink and of the generators' cases. The sequential engine runs all."""

SET_BASED = {
    GeneratorKind.ASCENDING,
    GeneratorKind.BOUNDED,
    GeneratorKind.PUNCTUATED,
    GeneratorKind.NONE,
    GeneratorKind.LAG,
}


def must_be_set_based(case: Case) -> bool:
    strategy = case.strategy()
    return (
        strategy.generator.kind in SET_BASED
        and strategy.idleness is None
        and case.config["window"]["kind"] != "session"
    )


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_spark_engine_fires_what_the_case_records(path: Path, quick_spark) -> None:
    case = Case.read(path)
    for version, strategy, expected in case.expectations:
        outcome = run_spark(quick_spark, case, strategy)
        difference = first_difference(case, expected, outcome, set_based=True)
        assert difference is None, f"Flink {version}: {difference}"
        if must_be_set_based(case):
            assert outcome.note == ""
