"""Both engines against what real Flink SQL did, of every recorded version."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.replay.assign import START
from spark_jobs.replay.band import UNDECIDED, Band
from tests.conformance.case import load_cases
from tests.conformance.flink_sql_case import SqlCase, Version, first_difference
from tests.conformance.flink_sql_sequential import run_sequential
from tests.conformance.flink_sql_spark import replay_of, run_spark, span_of
from tests.sampling import drawn

CASES = load_cases(Path("tests/golden/flink_sql"))


def replayed(path: Path) -> list[tuple[SqlCase, Version]]:
    """The case with each version of Flink whose result is to be replayed."""
    case = SqlCase.read(path)
    if case.why_not_replayed:
        return []
    return [
        (case, version) for version in case.versions if not case.why_lost(version) and not version.expected["error"]
    ]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_sequential_engine_gives_the_rows_that_flink_gave(path: Path) -> None:
    for case, version in replayed(path):
        difference = first_difference(case, version, run_sequential(case, version))
        assert difference is None, f"Flink {version.name}: {difference}"


@pytest.mark.parametrize("path", drawn(CASES, 9), ids=lambda path: path.stem)
def test_the_spark_engine_gives_the_rows_that_flink_gave(path: Path, quick_spark) -> None:
    seen: set[str] = set()
    for case, version in replayed(path):
        if case.is_decided_by_the_log and (same := repr(version.expected)) not in seen:
            seen.add(same)
            difference = first_difference(case, version, run_spark(quick_spark, case, version))
            assert difference is None, f"Flink {version.name}: {difference}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_the_plan_has_as_many_phases_as_a_definition_says(path: Path) -> None:
    for case, version in replayed(path):
        assert (version.expected["phases"] == 2) == case.is_in_two_phases


def test_flink_itself_loses_records_where_the_buffers_grid_misses_the_slices_ends() -> None:
    lost = [
        (case, version)
        for case in map(SqlCase.read, CASES)
        for version in case.versions
        if case.why_lost(version) and not version.expected["error"]
    ]
    differing = [case.name for case, version in lost if first_difference(case, version, run_sequential(case, version))]
    assert len(differing) > len(lost) // 2


def test_early_firing_changes_no_last_value() -> None:
    def last_values(name: str) -> dict[tuple[str, int, int], list[int]]:
        rows = SqlCase.read(Path(f"tests/golden/flink_sql/{name}.json")).versions[0].expected["rows"]
        return {tuple(row[2:5]): row[5:] for row in rows if row[0] in ("+I", "+U")}

    for kind in ("tumble", "hop"):
        assert last_values(f"emit_early_fire_group_by_{kind}") == last_values(f"emit_none_group_by_{kind}")


def test_flink_refuses_what_import_says_it_refuses() -> None:
    def error(name: str) -> str:
        return SqlCase.read(Path(f"tests/golden/flink_sql/{name}.json")).versions[0].expected["error"] or ""

    assert "Session window doesn't support EMIT" in error("emit_late_fire_group_by_session")
    assert "doesn't support early-fire and late-fire" in error("emit_late_fire_table_function")
    assert "requires set 'allow-lateness'" in error("emit_late_fire_alone_group_by_tumble")
    assert error("emit_allow_lateness_group_by_session") == ""


def counted(spark, name: str, interval: int | None = None) -> dict[int, tuple[int, int]]:
    """By window start (minutes of the day) how many records a window counts, and how many are undecided."""
    case = SqlCase.read(Path(f"tests/golden/flink_sql/{name}.json"))
    with replay_of(spark, case, case.versions[0], interval) as replay:
        rows = replay.with_last_panes().windows(span_of(replay), Band(margin=0, slack=0)).collect()
    return {row[START] // 60_000 % 1440: (row["count"], row[UNDECIDED]) for row in rows}


def test_a_record_that_only_a_checkpoint_decides_is_undecided(quick_spark) -> None:
    assert counted(quick_spark, "checkpoint_3") == {600: (1, 1), 660: (2, 0)}


def test_a_checkpoint_interval_shorter_than_the_wait_counts_the_record(quick_spark) -> None:
    assert counted(quick_spark, "checkpoint_3", 999) == {600: (2, 0), 660: (2, 0)}
    assert counted(quick_spark, "checkpoint_3", 1000) == {600: (1, 1), 660: (2, 0)}


def test_nothing_is_undecided_in_one_phase(quick_spark) -> None:
    assert counted(quick_spark, "phases_one_phase_tumble") == {600: (2, 0), 660: (2, 0)}
