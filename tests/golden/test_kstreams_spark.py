"""The Spark engine against what real Kafka Streams did: every row, what was dropped, what the suppression holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.case import load_cases
from tests.conformance.formats import Engine, try_case
from tests.sampling import drawn

CASES = drawn(load_cases(Path("tests/golden/kstreams")), 9)
"""A draw of the recorded applications. The sequential model runs all."""


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_spark_engine_does_everything_that_kafka_streams_did(path: Path, quick_spark) -> None:
    engine = Engine(set_based=True)
    vars(engine)["spark"] = quick_spark  # the session of the tests
    assert try_case(path, engine).difference is None
