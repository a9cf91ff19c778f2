"""Both engines against what real Flink SQL did, of every recorded version."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs.replay.assign import END, START, assign_windows
from spark_jobs.replay.band import UNDECIDED, Band
from spark_jobs.replay.columns import HANDED, PositionColumns, record_position
from spark_jobs.replay.windows import close_lookup
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
    return [(case, version) for version in case.versions if not version.expected["error"]]


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


LOSING = [path for path in CASES for case in [SqlCase.read(path)] if any(map(case.losing, case.versions))]
"""Those in which the buffers' grid misses slice ends."""


def test_flink_itself_loses_records_where_the_buffers_grid_misses_the_slices_ends() -> None:
    cases = [(case, version) for path in LOSING for case, version in replayed(path) if case.losing(version)]
    wanted = [
        case for case, version in cases if first_difference(case, version, run_sequential(case, version, loses=False))
    ]
    assert len(wanted) > 20


@pytest.mark.parametrize("path", drawn(LOSING, 4), ids=lambda path: path.stem)
def test_the_spark_engine_loses_the_records_that_flink_lost(path: Path, quick_spark) -> None:
    for case, version in replayed(path)[-1:]:
        difference = first_difference(case, version, run_spark(quick_spark, case, version))
        assert difference is None, f"Flink {version.name}: {difference}"


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


def holds_back(path: Path) -> bool:
    case = SqlCase.read(path)
    return case.is_in_two_phases and len(case.config["subtasks"]) > 1


TWO_PHASES = [path for path in CASES if path.stem.startswith(("phases_", "idle_")) and holds_back(path)]
LOST = [path for path in CASES if path.stem == "zone_kolkata_late_auto_table_function"]


@pytest.mark.parametrize("path", [*drawn(TWO_PHASES, 4), *LOST], ids=lambda path: path.stem)
def test_the_position_at_which_a_record_is_handed_on_decides_as_the_look_up_by_window_does(
    path: Path, quick_spark
) -> None:
    case, version = replayed(path)[0]
    with replay_of(quick_spark, case, version) as replay:
        spec, span = replay.spec, span_of(replay)
        handed = replay.handed_on(replay.entering, span)
        closes = close_lookup(replay.timeline, spec, span).at_end
        placed = assign_windows(handed, spec.aligned_windows)
        index = (closes.grid.index(F.col(END)) - F.lit(closes.first)).cast("int")
        own = zip(PositionColumns.named(HANDED).parts, record_position(placed).parts, strict=True)
        comes = PositionColumns(*(F.coalesce(later, at_once) for later, at_once in own))
        by_position = comes.not_after(closes.at_index(index, placed))
        found = placed.select(
            by_position.alias("a"), spec.rules.comes_before(closes, index, placed).alias("b")
        ).collect()
    assert found
    assert [row["a"] for row in found] == [row["b"] for row in found]
