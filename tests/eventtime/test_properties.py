"""Laws of the sequential core, on generated jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.signals import WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source, Tick
from tests.conformance.case import Case
from tests.conformance.compare import first_difference
from tests.conformance.sequential import run_sequential
from tests.golden import naive
from tests.golden.strategies import cases
from tests.sampling import sample

GENERATED = Path("generated.json")


@settings(max_examples=sample(150, 1_000))
@given(cases(nulls=("drop", "fail")))
def test_the_operator_agrees_with_the_naive_simulator(document) -> None:
    case = Case(GENERATED, document)
    for old in (False, True):
        version = "1.20.3" if old else "2.3.0"
        strategy = case.strategy(all_idle_emits_maximum=not old)
        expected = naive.simulate(document, flink_version=version)["streaming"]
        assert first_difference(case, expected, run_sequential(case, strategy), set_based=False) is None


def stepwise(source: Source, until: int) -> Iterator[Tick]:
    """Every tick, each with every partition probed: a source that was restored does not know which are due."""
    while source.strategy.interval and source.next_tick <= until:
        source.restore(source.snapshot())
        yield from source.ticks(source.next_tick)


@settings(max_examples=sample(60, 1_000), deadline=None)
@given(cases())
def test_what_ticks_leave_out_would_change_nothing(document) -> None:
    case = Case(GENERATED, document)
    quick, slow = Source(case.strategy()), Source(case.strategy())
    for record in case.records:
        assert list(quick.ticks(record.arrival)) == list(stepwise(slow, record.arrival))
        event = Event(record.timestamp, record.arrival, record.marker, record.stream)
        assert quick.on_event(record.partition, event) == slow.on_event(record.partition, event)
    if case.clock_end is not None:
        assert list(quick.ticks(case.clock_end)) == list(stepwise(slow, case.clock_end))
    assert quick.snapshot() == slow.snapshot()


def signals_of(source: Source, case: Case, records, until: int | None) -> list:
    out = []
    for record in records:
        out += list(source.ticks(record.arrival))
        event = Event(record.timestamp, record.arrival, record.marker, record.stream)
        out.append((record.offset, source.on_event(record.partition, event)))
    if until is not None:
        out += list(source.ticks(until))
    return out


@settings(max_examples=sample(100, 1_000))
@given(cases(), st.data())
def test_the_watermark_never_goes_back(document, data) -> None:
    case = Case(GENERATED, document)
    source = Source(case.strategy())
    emitted = [
        signal.watermark
        for _, signals in signals_of(source, case, case.records, case.clock_end)
        for signal in signals
        if isinstance(signal, WatermarkEmitted)
    ]
    assert emitted == sorted(set(emitted))


@settings(max_examples=sample(100, 1_000))
@given(cases(), st.data())
def test_a_source_goes_on_from_its_snapshot_as_if_nothing_had_happened(document, data) -> None:
    case = Case(GENERATED, document)
    cut = data.draw(st.integers(0, len(case.records)))
    whole = signals_of(Source(case.strategy()), case, case.records, case.clock_end)

    first, second = Source(case.strategy()), Source(case.strategy())
    split = signals_of(first, case, case.records[:cut], None)
    second.restore(json.loads(json.dumps(first.snapshot())))
    split += signals_of(second, case, case.records[cut:], case.clock_end)

    assert split == whole
