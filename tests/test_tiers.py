"""Which of the long tests run after a change."""

from __future__ import annotations

import pytest

from tests.tiers import Seconds, in_order, keep_durations, kept_durations, long_files_to_run

REPLAY, WEB, LIVES, AIRFLOW = (
    "tests/replay/test_properties.py",
    "tests/web/test_app.py",
    "tests/faults/test_run_lives.py",
    "tests/orchestration/test_airflow.py",
)
FILES = (REPLAY, WEB, LIVES, AIRFLOW)


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        ("spark_jobs/web/app.py", {WEB, AIRFLOW}),
        ("spark_jobs/submit/main.py", {AIRFLOW}),
        ("spark_jobs/runs/life/recovery.py", {LIVES, AIRFLOW}),
        ("spark_jobs/replay/engine.py", {REPLAY, LIVES, AIRFLOW}),
        ("spark_jobs/eventtime/flink/valve.py", {REPLAY, LIVES, AIRFLOW}),
        ("docs/airflow.md", set()),
        ("README.md", set()),
        ("requirements.txt", {*FILES}),
        ("tests/conftest.py", {*FILES}),
        ("tests/replay/test_properties.py", {REPLAY}),
        ("tests/runs/small_runs.py", {LIVES}),
    ],
)
def test_a_change_runs_the_long_tests_that_it_can_break(changed: str, runs: set[str]) -> None:
    choice = long_files_to_run(FILES, [changed], minutes=1000)
    assert set(choice.files) == runs
    assert set(choice.left_out) == set(FILES) - runs
    assert set(choice.left_out.values()) <= {"the change cannot break it"}


@pytest.mark.parametrize("changed", ["tests/bench/__init__.py", "tests/bench/scale.py", "spark_jobs/replay/engine.py"])
def test_a_change_of_the_benchmark_or_of_what_it_measures_runs_its_tests(changed: str) -> None:
    file = "tests/bench/test_bench.py"
    assert long_files_to_run([file], [changed], minutes=1000).files == {file}


def test_the_quickest_run_until_the_time_is_used_up_and_the_others_are_named() -> None:
    choice = long_files_to_run(FILES, ["requirements.txt"], minutes=0)
    assert not choice.files
    assert all(reason.endswith("the time is used up") for reason in choice.left_out.values())


def test_the_files_of_a_room_that_has_changed_come_before_quicker_ones_that_it_can_only_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = {file: Seconds(1, long) for file, long in ((REPLAY, 100), (WEB, 30), (LIVES, 60), (AIRFLOW, 90))}
    monkeypatch.setattr("tests.tiers.kept_durations", lambda: seconds)
    assert set(long_files_to_run(FILES, ["spark_jobs/replay/engine.py"], minutes=2).files) == {REPLAY, LIVES}
    assert set(long_files_to_run(FILES, ["spark_jobs/errors.py"], minutes=2).files) == {WEB, LIVES, AIRFLOW}


def test_a_tier_that_did_not_run_keeps_its_seconds_and_a_file_that_is_gone_goes(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, measured = tmp_path / "kept.json", tmp_path / "build" / "durations.json"
    monkeypatch.setattr("tests.tiers.MEASURED", measured)
    monkeypatch.setattr("tests.tiers.KEPT", kept)
    kept.write_text('{"tests/test_tiers.py": [1.0, 50.0], "tests/gone.py": [9.0, 0.0]}')
    keep_durations({"tests/test_tiers.py": Seconds(2.5, 0), "tests/test_wheel.py": Seconds(3, 0)})
    assert kept_durations(measured) == {"tests/test_tiers.py": (2.5, 50), "tests/test_wheel.py": (3, 0)}


def test_every_file_that_has_a_duration_is_there_and_the_longest_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWINDOW_TESTS", raising=False)
    durations = kept_durations()
    assert len(durations) > 100
    place = in_order(lambda file: False)
    ordered = sorted(durations, key=place)
    assert sum(durations[ordered[0]]) == max(sum(seconds) for seconds in durations.values())
