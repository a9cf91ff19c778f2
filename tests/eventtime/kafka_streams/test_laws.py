"""Laws of the sequential model over random histories, and what windows and stores refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spark_jobs.eventtime.kafka_streams.contents import Aggregate, Contents
from spark_jobs.eventtime.kafka_streams.store import Retention, SegmentedStore, Stored
from spark_jobs.eventtime.kafka_streams.task import Topology
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents, HoppingWindows, Sessions
from tests.conformance.kstreams_case import StreamsCase, StreamsOutcome
from tests.conformance.kstreams_sequential import run_sequential
from tests.eventtime.kafka_streams.histories import random_case

SEEDS = st.integers(0, 10_000)


def changed(case: StreamsCase, **config: Any) -> StreamsCase:
    """The case with another configuration; None takes a setting away."""
    merged = {name: value for name, value in {**case.config, **config}.items() if value is not None}
    return StreamsCase(case.path, {**case.document, "config": merged})


def last_rows(outcome: StreamsOutcome) -> dict[tuple[Any, ...], Any]:
    """By partition, key and bounds: the elements of the last row, where it was not withdrawn."""
    last: dict[tuple[Any, ...], Any] = {}
    for row in outcome.rows:
        last[tuple(row[1:5])] = row[11]
    return {window: held for window, held in last.items() if held is not None}


@given(SEEDS)
def test_no_partition_depends_on_another(seed: int) -> None:
    case = random_case(seed)
    whole = run_sequential(case)
    for partition in case.partitions:
        numbers = [n for n, row in enumerate(case.document["records"]) if row[0] == partition]
        own_records = [row for row in case.document["records"] if row[0] == partition]
        alone = replace(case, document={**case.document, "records": own_records})
        restarts = [{**r, "before": sum(n < r["before"] for n in numbers)} for r in case.document.get("restarts", [])]
        alone.document["restarts"] = restarts
        own = run_sequential(alone)
        assert [row[1:] for row in own.rows if row[1] == partition] == [r[1:] for r in whole.rows if r[1] == partition]


@given(SEEDS)
def test_a_suppressed_row_is_one_of_the_updates(seed: int) -> None:
    case = random_case(seed)
    updates = run_sequential(changed(case, emission="each_update"))
    suppressed = run_sequential(changed(case, emission="suppress_until_window_closes"))
    rows = {str(row[1:]) for row in updates.rows}
    assert all(str(row[1:]) in rows for row in [*suppressed.rows, *suppressed.waiting])
    assert suppressed.skipped == updates.skipped


@given(SEEDS)
def test_without_restarts_each_window_was_out_or_still_waits(seed: int) -> None:
    case = random_case(seed, restarts=False)
    updates = last_rows(run_sequential(changed(case, emission="each_update")))
    outcome = run_sequential(changed(case, emission="suppress_until_window_closes"))
    found = last_rows(outcome) | {tuple(row[1:5]): row[11] for row in outcome.waiting}
    # A session that was out before it was merged stays out: suppression lets no withdrawal through.
    assert {window: found.get(window) for window in updates} == updates


@given(SEEDS)
def test_with_a_long_retention_both_ways_to_emit_on_close_give_the_same_windows(seed: int) -> None:
    case = random_case(seed, restarts=False)
    assume(case.config["window"]["kind"] in ("tumbling", "hopping"))
    far = 2**45
    suppressed = run_sequential(changed(case, emission="suppress_until_window_closes", retention_ms=far))
    emitted = run_sequential(changed(case, emission="emit_on_window_close", retention_ms=far, emit_interval_ms=0))
    assert last_rows(emitted) == last_rows(suppressed)


@given(SEEDS)
def test_nothing_is_late_in_the_order_of_time(seed: int) -> None:
    case = random_case(seed, restarts=False)
    records = sorted(case.document["records"], key=lambda row: row[4])
    outcome = run_sequential(replace(case, document={**case.document, "records": records}))
    assert outcome.skipped == []


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: HoppingWindows(10, 11), "the advance must be above 0 and at most the size 10"),
        (lambda: HoppingWindows(10, 0), "the advance must be above 0"),
        (lambda: BetweenEvents(0), "the time difference must be above 0"),
        (lambda: Sessions(0), "the gap must be above 0"),
        (lambda: Topology(Sessions(5), -1), "the grace must not be below 0"),
        (lambda: Topology(BetweenEvents(5), 3, retention=12), "the retention must be at least 13 ms"),
    ],
)
def test_what_the_library_refuses_is_refused(make, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make()


def test_a_store_deletes_whole_segments_and_finds_what_is_left_after_it_is_opened_again() -> None:
    store: SegmentedStore[int] = SegmentedStore(Retention(60_000), restorable=True)
    old, newer = Stored(b"k", 100_000, -1), Stored(b"k", 170_000, -1)
    value: Aggregate[int] = Aggregate(Contents(), 0)
    store.put(old, value)
    store.put(newer, value)
    assert store.get(old) is None, "older than R - retention"
    store.reopen()
    assert store.get(old) is value, "its segment is still there"
    store.put(Stored(b"k", 190_000, -1), value)
    store.reopen()
    assert store.get(old) is None, "its segment was deleted"
    store.restore()
    assert store.get(newer) is value and store.get(Stored(b"k", 190_000, -1)) is value
    store.lose()
    assert store.get(newer) is None
