"""Laws of the Spark engine, on generated jobs: it equals the naive simulator, and chance changes nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.assign import START
from spark_jobs.replay.engine import FIRED_COLUMNS, History, Replay, needs_old_closes
from spark_jobs.replay.flink.simulation import can_continue
from spark_jobs.replay.spec import Mode, Panes
from tests.conformance.case import Case
from tests.conformance.compare import first_difference
from tests.conformance.spark import all_windows, case_history, case_records, case_spec, run_spark
from tests.golden import naive
from tests.golden.strategies import cases
from tests.sampling import sample

GENERATED = Path("generated.json")
FEW = settings(
    max_examples=sample(2, 200),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
NOT_SESSIONS = ("tumbling", "sliding", "cumulative")

A_RECORD_WITHOUT_TIME = {
    "format": "flink-oracle-case/1",
    "name": "generated",
    "covers": [],
    "note": "",
    "config": {
        "partitions": 1,
        "watermark": {"bound_ms": 1, "kind": "bounded_out_of_orderness"},
        "emission": {"mode": "per_event", "interval_ms": 200},
        "window": {"gap_ms": 40, "kind": "session"},
        "allowed_lateness_ms": 0,
        "end_of_input": "flush",
        "value_type": "double",
        "subtasks": [[0]],
        "clock": {"start_ms": 1_700_000_000_000, "end_ms": 1_700_000_009_000},
        "null_timestamp": "fail",
    },
    "record_columns": ["partition", "offset", "arrival_ms", "key", "ts_ms", "value", "marker(optional)"],
    "records": [
        [0, 1, 1_700_000_000_200, "a", 0, -2.75],
        [0, 2, 1_700_000_002_000, "a", None, 8.0],
        [0, 3, 1_700_000_002_100, "a", 400, 1.5],
    ],
}
"""A session of a record that has no time lies before all others."""


@FEW
@given(document=cases(nulls=("drop", "fail")))
@example(document=A_RECORD_WITHOUT_TIME)
def test_spark_fires_what_the_naive_simulator_fires(quick_spark, document) -> None:
    case = Case(GENERATED, document)
    expected = naive.simulate(document)["streaming"]
    assert first_difference(case, expected, run_spark(quick_spark, case, case.strategy()), set_based=True) is None


def tables(case: Case, replay: Replay, spans: list[TimeRange]) -> tuple[list, list]:
    """Windows and late records of a replay, chunk by chunk, as sorted rows."""
    windows, late = [], []
    chosen = TimeRange(spans[0].start, spans[-1].end)
    for span in spans:
        windows += replay.windows(span).collect()
        rows = replay.late(span, chosen)
        late += [] if rows is None else rows.collect()
    return sorted(map(repr, windows)), sorted(map(repr, late))


@FEW
@given(document=cases(window_kinds=NOT_SESSIONS), data=st.data())
def test_chunks_tasks_and_file_order_change_nothing(quick_spark, document, data) -> None:
    case = Case(GENERATED, document)
    records = case_records(quick_spark, case)
    spec = case_spec(case, case.strategy(), mode=Mode.BOTH, panes=data.draw(st.sampled_from(list(Panes))))
    span = all_windows(case, case_history(case, records))
    cuts = sorted(set(data.draw(st.lists(st.integers(span.start + 1, span.end - 1), max_size=3))))
    edges = [span.start, *cuts, span.end]
    with Replay(case_history(case, records), spec) as replay:
        whole = tables(case, replay, [span])
    shuffled = records.repartition(data.draw(st.integers(1, 4)), "value").sortWithinPartitions("rw_event_time")
    with Replay(case_history(case, shuffled), spec) as replay:
        assert tables(case, replay, [TimeRange(a, b) for a, b in itertools.pairwise(edges)]) == whole


@FEW
@given(document=cases(min_records=4, window_kinds=NOT_SESSIONS), data=st.data())
def test_a_run_that_goes_on_from_a_saved_timeline_gives_the_same_windows(quick_spark, document, data) -> None:
    case = Case(GENERATED, document)
    records = case_records(quick_spark, case)
    history = case_history(case, records)
    spec = case_spec(case, case.strategy(), mode=Mode.BOTH, panes=Panes.LAST)
    assume(not needs_old_closes(spec))
    cut = data.draw(st.integers(1, len(case.records) - 1))
    before, after = records.where(f"rw_sequence < {cut}"), records.where(f"rw_sequence >= {cut}")
    until = case.rows[cut - 1][2]
    with Replay(History(before, history.event_times, until), spec) as first:
        state, below = first.timeline.state, first.timeline.watermark_below
        earlier = first.timeline.steps
    span = all_windows(case, history)
    open_then = TimeRange(max(span.start, below + 1), span.end)
    assume(open_then.start < open_then.end)
    if state["kind"] == "simulation":
        assume(can_continue(state, spec.strategy, (case.rows[cut][2], cut, 0)))
    with Replay(history, spec) as whole:
        expected, of_all = tables(case, whole, [open_then]), tables(case, whole, [span])
    with Replay(history, spec, state=state, timeline_records=after) as second:
        assert tables(case, second, [open_then]) == expected
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans(), label="too many steps for memory"):
            for module in ("timeline", "flink.inversion"):
                patch.setattr(f"spark_jobs.replay.{module}.MAX_IN_MEMORY", 0)
        with Replay(history, spec, state=state, timeline_records=after, earlier=earlier) as third:
            assert tables(case, third, [span]) == of_all


@pytest.mark.long
@settings(FEW, max_examples=sample(2, 100))
@given(document=cases(min_records=8, window_kinds=("session",)), data=st.data())
def test_neither_the_grid_nor_a_range_changes_sessions(quick_spark, document, data) -> None:
    case = Case(GENERATED, document)
    records = case_records(quick_spark, case)
    history = case_history(case, records)
    spec = case_spec(case, case.strategy(), mode=Mode.BOTH, panes=data.draw(st.sampled_from(list(Panes))))
    span = all_windows(case, history)

    def results(spans: list[TimeRange], *, exact: bool) -> tuple[list[Row], list[Row]]:
        windows, late = [], []
        with Replay(history, spec, exact_positions=exact) as replay:
            for part in spans:
                fired = replay.windows(part)
                assert exact or fired.dropna("all", subset=FIRED_COLUMNS).isEmpty()
                windows += fired.drop(*FIRED_COLUMNS).collect()
                rows = replay.late(part)
                late += [] if rows is None else rows.collect()
        return sorted(windows, key=repr), sorted(late, key=repr)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.replay.sessions._CELLS", data.draw(st.sampled_from([1, 3, 20, 1_000])))
        patch.setattr("spark_jobs.replay.sessions._GAPS_AROUND", data.draw(st.sampled_from([0, 1])))
        whole = results([span], exact=True)
        starts = {row[START] for row in whole[0]} - {MIN_TIMESTAMP, span.start}
        # Best where a complete session begins before the range and a piece that the live job made of it inside.
        pieces = {row[START] for row in whole[0] if row["count"] is not None and row["count__complete"] is None}
        among = sorted(pieces & starts or starts)
        cuts = sorted(data.draw(st.sets(st.sampled_from(among), min_size=1, max_size=3))) if among else []
        spans = [TimeRange(a, b) for a, b in itertools.pairwise([span.start, *cuts, span.end])]
        assert results(spans, exact=False) == whole


@pytest.mark.parametrize("mode", [Mode.FAITHFUL, Mode.COMPLETE])
def test_each_mode_alone_gives_its_half_of_both(quick_spark, mode) -> None:
    from tests.conformance.case import Case

    case = Case.read(Path("tests/golden/flink/sem_published_sliding.json"))
    history = case_history(case, case_records(quick_spark, case))
    span = all_windows(case, history)

    def rows(chosen: Mode, columns: list[str]) -> list:
        with Replay(history, case_spec(case, case.strategy(), mode=chosen, panes=Panes.LAST)) as replay:
            return sorted(
                map(repr, replay.windows(span).select("key", "window_start", "window_end", *columns).collect())
            )

    suffix = "" if mode is Mode.FAITHFUL else "__complete"
    columns = [f"{name}{suffix}" for name in ("count", "sum", "min", "max", "checksum")]
    assert rows(mode, columns) == rows(Mode.BOTH, columns)
