"""Several inputs with a watermark each: the subtasks of all are the channels of one valve."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.signals import PartitionStatusChanged, StreamSignal
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness, Punctuated, SeveralGenerators
from spark_jobs.eventtime.flink.valve import StatusWatermarkValve
from tests.replay.histories import History, random_union
from tests.sampling import sample


def inputs_of(strategy: WatermarkStrategy) -> list[WatermarkStrategy]:
    """Each subtask as a job of its own."""
    return [
        replace(own, partitions=partitions, subtasks=(partitions,), inputs=())
        for partitions, own in zip(strategy.subtasks, strategy.of_subtasks, strict=True)
    ]


def signals_by_subtask(history: History) -> list[tuple[int, StreamSignal]]:
    """What reaches the window operator: each subtask is a job of its own, and one valve takes their signals."""
    strategies = inputs_of(history.strategy)
    sources = [Source(one) for one in strategies]
    subtask_of = {p: index for index, one in enumerate(strategies) for p in one.partitions}
    valve = StatusWatermarkValve(len(sources))
    found: list[tuple[int, StreamSignal]] = []

    def note(at: int, index: int, signals) -> None:
        for signal in signals:
            if not isinstance(signal, PartitionStatusChanged):
                found.extend((at, sent) for sent in valve.input_signal(index, signal))

    def tick(until: int) -> None:
        ticks = [(one.time, index, one.signals) for index, source in enumerate(sources) for one in source.ticks(until)]
        for at, index, signals in sorted(ticks, key=lambda one: one[:2]):
            note(at, index, signals)

    for arrival, partition, _, timestamp, marker in history.records:
        tick(arrival)
        index = subtask_of[partition]
        note(arrival, index, sources[index].on_event(partition, Event(timestamp, arrival, marker)))
    tick(history.until)
    found.extend((history.until, sent) for sent in valve.end_of_input())
    return found


def signals_of_union(history: History) -> list[tuple[int, StreamSignal]]:
    source, found = Source(history.strategy), []

    def note(at: int, signals) -> None:
        found.extend((at, signal) for signal in signals if not isinstance(signal, PartitionStatusChanged))

    for arrival, partition, _, timestamp, marker in history.records:
        for tick in source.ticks(arrival):
            note(tick.time, tick.signals)
        note(arrival, source.on_event(partition, Event(timestamp, arrival, marker)))
    for tick in source.ticks(history.until):
        note(tick.time, tick.signals)
    note(history.until, source.end_of_input())
    return found


@settings(max_examples=sample(60, 2_000))
@given(seed=st.integers(0, 2**40))
def test_a_union_sends_what_one_valve_makes_of_its_inputs_subtasks(seed: int) -> None:
    history = random_union(random.Random(seed))
    assert signals_of_union(history) == signals_by_subtask(history)


def test_inputs_that_differ_in_their_delay_alone_have_one_generator_over_shifted_times() -> None:
    one = WatermarkStrategy(BoundedOutOfOrderness(500), (0, 1), ((0, 1),))
    whole = WatermarkStrategy.of_union(
        [one, replace(one, generator=BoundedOutOfOrderness(0), partitions=(7,), subtasks=((7,),))]
    )
    assert isinstance(whole.generator, SeveralGenerators) and not whole.is_invertible
    shifted, delays = whole.over_one_maximum()
    assert delays == {0: 501, 1: 501, 7: 1} and shifted.is_invertible and not shifted.inputs
    assert shifted.subtasks == ((0, 1), (7,))


def test_inputs_of_one_kind_are_one_strategy_and_those_of_two_kinds_are_not() -> None:
    one = WatermarkStrategy(BoundedOutOfOrderness(500), (0,), ((0,),), interval=200, timer_start=5)
    other = replace(one, partitions=(1,), subtasks=((1,),))
    assert WatermarkStrategy.of_union([one, other]) == replace(one, partitions=(0, 1), subtasks=((0,), (1,)))
    marked = WatermarkStrategy.of_union([one, replace(other, generator=Punctuated(3), interval=0)])
    assert marked.over_one_maximum() == (marked, {}) and {own.interval for own in marked.of_subtasks} == {200}
