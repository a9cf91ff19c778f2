# ruff: noqa: E501 (a message stands on one line)
"""Instants as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.definition.instants import PATTERN, InstantError, format_instant, parse_instant


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2013-01-01T10:00:00Z", 1_357_034_400_000),
        ("2013-01-01 11:00+01:00", 1_357_034_400_000),
        ("1969-12-31T23:59:59.999Z", -1),
    ],
)
def test_an_instant_reads_as_epoch_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_instant(text) == milliseconds
    assert re.search(PATTERN, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2013-01-01T10:00", "`2013-01-01T10:00` has no zone; write `2013-01-01T10:00:00Z` if it is UTC, else its offset: `2013-01-01T10:00:00+01:00`"),
        ("yesterday", "`yesterday` is not a time; write one like `2013-01-01T10:00:00Z`"),
        ("2013-02-30T10:00:00Z", "`2013-02-30T10:00:00Z` is not a time; write one like `2013-01-01T10:00:00Z`"),
        ("2013-01-01T10:00:00.0001Z", "`2013-01-01T10:00:00.0001Z` is finer than a millisecond; event time counts whole milliseconds"),
        ("0001-01-01T00:00:00+23:59", "`0001-01-01T00:00:00+23:59` is not in the years 1 to 9999 of UTC; write one like `2013-01-01T10:00:00Z`"),
        ("9999-12-31T23:59:59-23:59", "`9999-12-31T23:59:59-23:59` is not in the years 1 to 9999 of UTC; write one like `2013-01-01T10:00:00Z`"),
    ],
)  # fmt: skip
def test_what_is_no_instant_is_refused_with_what_to_write_instead(text: str, message: str) -> None:
    with pytest.raises(InstantError) as refused:
        parse_instant(text)
    assert str(refused.value) == message


@given(st.integers(min_value=-62_135_596_800_000, max_value=253_402_300_799_999))
def test_what_is_shown_reads_back_as_the_same_instant(milliseconds: int) -> None:
    assert parse_instant(format_instant(milliseconds)) == milliseconds
