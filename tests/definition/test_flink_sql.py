"""The section `flink_sql`: which operators of Flink SQL compute the windows."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from spark_jobs.eventtime.durations import HOUR
from spark_jobs.eventtime.flink.wall_clock import WallClockSessions, WallClockWindows
from spark_jobs.replay.defined_windows import holds_back, lost_by_flink, slices_of, windows_of

SUBTASKS = ("bound: 30 min", "bound: 30 min\n  subtasks: [[0], [1]]")


def with_section(text: str) -> tuple[str, str]:
    return ("aggregates:", f"flink_sql: {text}\naggregates:")


def test_a_definition_without_the_section_is_a_datastream_job(load, definition) -> None:
    pipeline = load(definition(SUBTASKS))
    assert pipeline.flink_sql is None
    assert not holds_back(pipeline)
    assert "flink_sql" not in pipeline.to_canonical_json()


@pytest.mark.parametrize(
    ("section", "holds"),
    [
        ("{}", True),
        ("{aggregation: two_phase}", True),
        ("{aggregation: one_phase}", False),
        ("{windows: group_by}", False),
    ],
)
def test_subtasks_hold_records_back_in_two_phases(load, definition, section: str, holds: bool) -> None:
    assert holds_back(load(definition(SUBTASKS, with_section(section)))) is holds


def test_one_subtask_holds_nothing_back_that_counts(load, definition) -> None:
    assert not holds_back(load(definition(with_section("{}"))))


def test_each_phase_and_zone_is_another_definition(load, definition) -> None:
    hashes = {
        load(definition(with_section(section))).definition_hash
        for section in ("{}", "{aggregation: one_phase}", "{time_zone: Europe/Berlin}", "{checkpoint_interval: 1 min}")
    }
    assert len(hashes) == 4


def test_windows_of_a_zone_lie_in_its_wall_clock(load, definition) -> None:
    section = with_section("{time_zone: Europe/Berlin}")
    assert isinstance(windows_of(load(definition(section))), WallClockWindows)
    session = ("type: tumbling", "type: session"), ("size: 1 h", "gap: 1 h")
    assert windows_of(load(definition(*session, section))) == WallClockSessions(HOUR, ZoneInfo("Europe/Berlin"))


@pytest.mark.parametrize(
    ("section", "zone", "loses"),
    [
        ("table_function", "Asia/Kolkata", True),
        ("group_by", "Asia/Kolkata", False),
        ("table_function", "Europe/Berlin", False),
        ("table_function", "Asia/Shanghai", False),
    ],
)
def test_hours_of_a_zone_that_is_half_an_hour_off_lose_records_in_flink(
    load, definition, section: str, zone: str, loses: bool
) -> None:
    pipeline = load(definition(with_section(f"{{windows: {section}, time_zone: {zone}}}")))
    assert bool(lost_by_flink(pipeline)) is loses


def test_days_of_a_zone_lose_records_where_it_never_changes_its_clocks(load, definition) -> None:
    days = ("size: 1 h", "size: 1 day\n  time_zone: Asia/Shanghai")
    assert "UTC" in lost_by_flink(load(definition(days, with_section("{}"))))
    assert slices_of(load(definition(days))) is None


def test_an_offset_loses_records_before_2_0(load, definition) -> None:
    shifted = ("size: 1 h", "size: 1 h\n  offset: 5 min")
    older = ("bound: 30 min", 'bound: 30 min\n  flink: "1.20.3"')
    assert "offset" in lost_by_flink(load(definition(shifted, older, with_section("{}"))))
    assert lost_by_flink(load(definition(shifted, with_section("{}")))) == ""


def test_what_is_not_replayed_is_refused_by_name(refusals, definition) -> None:
    session = ("type: tumbling", "type: session"), ("size: 1 h", "gap_expression: '1000'")
    (message,) = refusals(definition(*session, with_section("{time_zone: Europe/Berlin}")))
    assert "flink_sql.time_zone: does not belong to these windows" in message
    days = ("size: 1 h", "size: 1 day\n  time_zone: Europe/Berlin")
    (message,) = refusals(definition(days, with_section("{time_zone: Europe/Berlin}")))
    assert "there is `window.time_zone` too" in message


def test_window_table_functions_have_no_allowed_lateness(refusals, load, definition) -> None:
    late = ("aggregates:", "allowed_lateness: 10 min\naggregates:")
    for section in ("{}", "{aggregation: one_phase}"):
        (message,) = refusals(definition(late, with_section(section)))
        assert "allowed_lateness: does not go with window table functions" in message
    assert load(definition(late, with_section("{windows: group_by}"))).allowed_lateness == 600_000
    session = ("type: tumbling", "type: session"), ("size: 1 h", "gap: 1 h")
    (message,) = refusals(definition(*session, late, with_section("{windows: group_by}")))
    assert "allowed_lateness: does not go with sessions of Flink SQL" in message
    assert load(definition(late)).allowed_lateness == 600_000


def test_restarts_are_refused_where_several_subtasks_hold_records_back(load, refusals, definition) -> None:
    live = (
        "live: {source: {kind: table, table: live.windows}, window: {start: s}, restarts: ['2013-02-01T10:00:00Z']}\n"
    )
    (message,) = refusals(definition(SUBTASKS, ("aggregates:", f"flink_sql: {{}}\n{live}aggregates:")))
    assert "flink_sql.aggregation: two phases are not replayed over `live.restarts`" in message
    assert load(definition(SUBTASKS, ("aggregates:", f"flink_sql: {{windows: group_by}}\n{live}aggregates:")))
