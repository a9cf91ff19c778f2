# ruff: noqa: E501 (a message stands on one line)
"""Durations as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_jobs.eventtime.durations import FOREVER, PATTERN, DurationError, format_duration, parse_duration

UNITS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "days": 86_400_000, "weeks": 604_800_000}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("30 min", 1_800_000),
        ("30min", 1_800_000),
        ("1h", 3_600_000),
        ("1h 30m", 5_400_000),
        ("1 h 30 min", 5_400_000),
        ("1h30m", 5_400_000),
        ("1.5 h", 5_400_000),
        ("200 ms", 200),
        ("2 days", 172_800_000),
        ("1 week", 604_800_000),
        ("0", 0),
        ("0 s", 0),
        ("-15 min", -900_000),
        ("PT30M", 1_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H", 93_600_000),
        ("P2W", 1_209_600_000),
        ("PT0.2S", 200),
        ("-PT5M", -300_000),
        ("  30 min ", 1_800_000),
        ("forever", FOREVER),
    ],
)
def test_a_duration_reads_as_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("30", "`30` has no unit; write `30 ms`, `30 s` or `30 min`"),
        ("30 minuts", "`30 minuts` is not a duration: `minuts` is no unit; write `minutes`"),
        ("30 M", "`30 M` is not a duration: `M` is no unit; write `min`"),
        ("5 us", "`5 us` is not a duration: `us` is no unit; the finest unit is `1 ms`"),
        ("1h30", "`1h30` is not a duration; write one like `30 min`, `1 h 30 min`, `200 ms`, `2 days` or `PT30M`"),
        ("", "`` is not a duration; write one like `30 min`, `1 h 30 min`, `200 ms`, `2 days` or `PT30M`"),
        ("1h 1h", "`1h 1h` gives the same unit twice; write one like `30 min`, `1 h 30 min`, `200 ms`, `2 days` or `PT30M`"),
        ("0.1 ms", "`0.1 ms` is not a whole number of milliseconds; the finest unit is `1 ms`"),
        ("1 month", "`1 month` is not a duration: `month` is no unit; months and years have no fixed length; write it in days"),
        ("P1M", "`P1M` has months or years, which have no fixed length; write it in days"),
        ("PT30", "`PT30` is not an ISO-8601 duration; write one like `PT30M`, `PT1H30M` or `P2D`"),
        ("P", "`P` is not an ISO-8601 duration; write one like `PT30M`, `PT1H30M` or `P2D`"),
        ("1000000000000 days", "`1000000000000 days` does not fit 64 bits of milliseconds; write `forever` if it has no end"),
    ],
)  # fmt: skip
def test_what_is_no_duration_is_refused_with_what_to_write_instead(text: str, message: str) -> None:
    with pytest.raises(DurationError) as refused:
        parse_duration(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0"), (200, "200 ms"), (5_400_000, "1 h 30 min"), (86_400_000, "1 day"), (-900_000, "-15 min"), (FOREVER, "forever")],
)  # fmt: skip
def test_a_duration_is_shown_as_people_write_it(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text


@given(st.integers(min_value=-FOREVER + 1, max_value=FOREVER))
def test_what_is_shown_reads_back_as_the_same_duration(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(
    st.dictionaries(st.sampled_from(sorted(UNITS)), st.integers(0, 100_000), min_size=1),
    st.sampled_from(["", " "]),
    st.sampled_from(["", " "]),
)
def test_units_add_up_in_any_order_and_spacing(parts: dict[str, int], inner: str, outer: str) -> None:
    text = outer.join(f"{count}{inner}{unit}" for unit, count in parts.items())
    assert parse_duration(text) == sum(count * UNITS[unit] for unit, count in parts.items())


@given(st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 10_000), st.integers(0, 999_999))
def test_iso_8601_means_the_same_as_words(days: int, hours: int, minutes: int, milliseconds: int) -> None:
    iso = f"P{days}DT{hours}H{minutes}M{milliseconds // 1000}.{milliseconds % 1000:03}S"
    assert parse_duration(iso) == parse_duration(f"{days} d {hours} h {minutes} min {milliseconds} ms")


@example("-0")
@given(st.text(alphabet="0123456789 .-PTWDHMSmshinday", max_size=12))
def test_the_pattern_for_editors_matches_every_finite_duration(text: str) -> None:
    try:
        parse_duration(text)
    except DurationError:
        return
    assert re.search(PATTERN, text)
