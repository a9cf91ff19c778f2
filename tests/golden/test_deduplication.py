"""Flink's deduplication, one record at a time, against what real operators did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.deduplication_cases import CASES, DeduplicationCase, run_sequential
from tests.sequential.flink import FirstByRowTime


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_same_records_go_on_at_the_same_time(path: Path) -> None:
    case = DeduplicationCase.load(path)
    given, _ = run_sequential(case)
    # Timers of one watermark and one time have no order.
    assert sorted(given, key=lambda one: (one[1], one[0])) == sorted(case.given, key=lambda one: (one[1], one[0]))


def test_a_record_at_the_watermark_is_not_late_and_waits_for_the_next_one() -> None:
    first: FirstByRowTime[str] = FirstByRowTime(None)
    assert first.advance(50, now=0) == []
    assert first.is_late(49, 50) and not first.is_late(50, 50)
    first.add("k", 50, "one", now=0)
    first.add("k", 50, "two", now=1)
    assert first.advance(51, now=2) == ["one"]
    first.add("k", 60, "three", now=3)
    assert first.advance(70, now=4) == []
