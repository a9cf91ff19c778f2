"""Walks that once ended in wrong numbers end in right ones.

One alone: `pytest tests/walk/test_known.py -k "iceberg and with_an_end_each"`; blanks of a name are underlines.
"""

from __future__ import annotations

import re

import pytest
from pyspark.sql import SparkSession

from tests.walk.known import KNOWN
from tests.walk.plan import Kind, Walk
from tests.walk.walker import Walker

WRONG: dict[str, str] = {}
"""By name: what still goes wrong in a walk."""
SLOW = (Kind.DELTA,)


def _parameters() -> list:
    found = []
    for name, walk in KNOWN.items():
        if walk.kind not in (Kind.FILES, Kind.ICEBERG):
            continue
        marks = [pytest.mark.xfail(strict=True, reason=WRONG[name])] if name in WRONG else []
        found.append(pytest.param(walk, id=re.sub(r"[^a-z]+", "_", name), marks=marks))
    return found


@pytest.fixture(scope="module")
def walker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Walker:
    return Walker(spark, tmp_path_factory.mktemp("walks"))


@pytest.mark.parametrize("walk", _parameters())
def test_a_walk_that_once_went_wrong_ends_right(walker: Walker, walk: Walk) -> None:
    fault = walker.first_fault(walk)
    assert fault is None, fault.shown()
