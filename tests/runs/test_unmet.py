"""Results of expectations as people read them: units, bounds, what was not counted, and the ways out."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.runs.life.documents import ExpectationResult
from spark_jobs.runs.work.unmet import allowed_in_words, is_counted, null_key_ways, observed_in_words, unmet_in_words


def result(column: str, observed: Any = None, **more: Any) -> ExpectationResult:
    return ExpectationResult(column=column, observed=observed, description="So it is", success=False, **more)


@pytest.mark.parametrize(
    ("found", "observed", "allowed"),
    [
        (result("run_ahead_ms", 31_500_000, threshold={"max_value": 31_536_000_000}), "8 h 45 min", "at most 365 d"),
        (
            result("rw_start_ms", 1_359_676_800_000,
                   threshold={"min_value": 1_359_676_800_000, "max_value": 1_360_281_600_000, "strict_max": True}),
            "2013-02-01 00:00", "2013-02-01 00:00 to before 2013-02-08 00:00",
        ),
        (result("run_first_event_ms", 0, threshold={"min_value": 31_536_000_000}), "1970-01-01 00:00",
         "from 1971-01-01 00:00"),
        (result("run_dropped_share", 0.031, threshold={"max_value": 0.02}), "3.1 %", "at most 2.0 %"),
        (result("latency_ms", 5, threshold={"max_value": 7, "strict_max": True}), "5", "less than 7"),
        (result("rw_off_grid_ms", 0, threshold={"min_value": 0, "max_value": 0}), "0 s", "0 s"),
        (result("longest", None, unexpected_count=1, checked=9,
                threshold={"or_equal": True, "ignore_row_if": "neither"}), "1 of 9 rows is unexpected",
         "equal values too"),
        (result("carrier", None, unexpected_count=0, checked=9, threshold={"regex": "^[A-Z]+$", "mostly": 0.95}),
         "0 of 9 rows are unexpected", "text like ^[A-Z]+$; in at least 95.0 % of the rows"),
        (result("volume_ratio", None, threshold={"min_value": 0.25}), "not counted", "at least 0.25"),
    ],
)  # fmt: skip
def test_values_and_bounds_have_units_that_people_read(found, observed, allowed) -> None:
    assert (observed_in_words(found), allowed_in_words(found)) == (observed, allowed)


def test_what_there_was_nothing_of_is_not_counted() -> None:
    assert not is_counted(result("run_retracted_share", None))
    assert not is_counted(result("flights", 0, unexpected_count=0, checked=0))
    assert not is_counted(result("", 0, unexpected_count=0, checked=5, threshold={"known_distinct": True}))
    assert is_counted(result("flights", 0, unexpected_count=0, checked=5))
    assert is_counted(result("flights", None, error="no such column"))


def test_a_null_key_is_named_with_the_three_ways_out() -> None:
    refused = result("user_id", 12, name="keys-not-null", unexpected_count=12, checked=1861)
    assert "column user_id" in unmet_in_words(refused)
    ways = null_key_ways(refused, "clicks")
    for way in ("coalesce(user_id, 'none')", "user_id IS NOT NULL", "expectations/clicks.json", "leave_out"):
        assert way in ways
    assert not null_key_ways(result("user_id", 12, name="users"), "clicks")
