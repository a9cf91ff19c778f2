"""Which of the tests that take long run after a change, and at which turn."""

from __future__ import annotations

import pytest

from tests.tiers import (
    SHORT_MINUTES,
    Item,
    Seconds,
    in_short,
    keep_durations,
    kept_durations,
    longest_first,
    touches,
    whose_turn,
)

FILES = ("tests/replay/test_properties.py", "tests/web/test_app.py", "tests/runs/test_nightly.py")
LONG = [Item(file, f"test_{number}", is_long=True) for file in FILES for number in range(20)]


@pytest.fixture(autouse=True)
def a_minute_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.tiers.kept_durations", lambda: {file: Seconds(1, 60) for file in FILES})


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("spark_jobs/web/app.py", {"tests/web/test_app.py"}),
        ("spark_jobs/runs/life/recovery.py", {"tests/runs/test_nightly.py"}),
        ("tests/replay/test_properties.py", {"tests/replay/test_properties.py"}),
        ("spark_jobs/errors.py", set()),
        ("README.md", set()),
    ],
)
def test_a_change_touches_the_tests_of_its_room(changed: str, touched: set[str]) -> None:
    assert {file for file in FILES if touches(changed, file)} == touched


def test_what_a_change_touches_runs_first() -> None:
    for turn in range(50):
        assert {test.file for test in whose_turn(LONG, ["spark_jobs/web/app.py"], 5, turn)} == {"tests/web/test_app.py"}
        more = whose_turn(LONG, ["spark_jobs/web/app.py"], 15, turn)
        assert len(more) == 30 and {test for test in LONG if test.file == "tests/web/test_app.py"} < more


def test_every_test_has_its_turn() -> None:
    """Ten of sixty run at a time, at each commit or at each seventh."""
    for step, turns in ((1, 12), (7, 40)):
        seen = set[Item]().union(*(whose_turn(LONG, [], 5, turn) for turn in range(0, turns * step, step)))
        assert seen == set(LONG)


def test_no_more_run_than_there_is_time_for() -> None:
    assert len(whose_turn(LONG, [], 4, 3)) == 8
    assert not whose_turn(LONG, ["spark_jobs/web/app.py"], 0, 3)


def test_every_quick_test_runs_each_time_and_of_the_others_those_that_a_change_touches_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """300 tests of ten seconds fill 25 minutes of two processes: 240 of them run at a time, none of the long ones."""
    quick, slow, other = FILES
    kept = {quick: Seconds(0.1, 60), slow: Seconds(10, 60), other: Seconds(10, 60)}
    monkeypatch.setattr("tests.tiers.kept_durations", lambda: kept)
    tests = [
        Item(file, f"test_{n}", is_long=False)
        for file, count in zip(FILES, (100, 100, 200), strict=True)
        for n in range(count)
    ]
    seen = set[Item]()
    for turn in range(5):
        now = in_short([*tests, *LONG], ["spark_jobs/web/app.py"], turn)
        assert {test for test in tests if test.file != other} < now and len(now) == 100 + 239
        assert sum(kept[test.file].short for test in now) <= SHORT_MINUTES * 60 * 2
        seen |= now
    assert seen == set(tests)


def test_a_tier_that_did_not_run_keeps_its_seconds_and_a_file_that_is_gone_goes(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = tmp_path / "build" / "durations.json"
    monkeypatch.setattr("tests.tiers.MEASURED", measured)
    kept = {"tests/test_tiers.py": Seconds(1.0, 50.0), "tests/gone.py": Seconds(9.0, 0.0)}
    monkeypatch.setattr("tests.tiers.kept_durations", lambda: kept)
    keep_durations({"tests/test_tiers.py": Seconds(2.5, 0), "tests/test_wheel.py": Seconds(3, 0)})
    assert kept_durations(measured) == {"tests/test_tiers.py": (2.5, 50), "tests/test_wheel.py": (3, 0)}


def test_the_longest_file_comes_first_and_the_last_ones_last(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [*LONG[:3], *LONG[20:21], *(Item("tests/golden/test_a.py", f"{n}", is_long=True) for n in range(9))]
    place = longest_first(few, lambda file: file.startswith("tests/golden/"))
    assert sorted({test.file for test in few}, key=place) == [FILES[0], FILES[1], "tests/golden/test_a.py"]
