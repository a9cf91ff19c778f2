"""Recorded queries of Structured Streaming through the Spark engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.case import load_cases
from tests.conformance.microbatch_case import MicroBatchCase
from tests.conformance.microbatch_compare import first_difference
from tests.conformance.microbatch_spark import run_spark
from tests.sampling import drawn

CASES = drawn(load_cases(Path("tests/golden/spark")), 7)
"""A draw of the recorded queries. The sequential model runs all."""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name.split(".")[0])
def test_the_spark_engine_gives_what_the_query_gave(path: Path, quick_spark) -> None:
    case = MicroBatchCase.read(path)
    outcome = run_spark(quick_spark, case)
    assert first_difference(case, outcome) is None
