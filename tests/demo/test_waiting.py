"""Waiting for a service: at least one look, no error hidden, an end in time."""

from __future__ import annotations

import pytest

from spark_jobs.demo.supervised import becomes_true


def test_a_condition_that_becomes_true_ends_the_wait() -> None:
    answers = iter([False, False, True])
    assert becomes_true(lambda: next(answers), within=60, every=0.001)
    assert next(answers, None) is None


def test_a_condition_that_stays_false_ends_with_the_time() -> None:
    calls: list[int] = []
    assert not becomes_true(lambda: bool(calls.append(0)), within=0, every=0.001)
    assert len(calls) == 1


def test_an_error_of_the_condition_is_raised() -> None:
    def fail() -> bool:
        raise OSError("the service has ended")

    with pytest.raises(OSError, match="the service has ended"):
        becomes_true(fail, within=60, every=0.001)
