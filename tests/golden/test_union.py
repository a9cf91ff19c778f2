"""Several sources in one stream against what Flink's own classes made of the same records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.signals import PartitionStatusChanged, StreamStatusChanged, WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, supplier_of

CASES, DISCOVERED = (
    json.loads((Path(__file__).parent / "union" / f"{name}.json").read_text())["cases"]
    for name in ("cases", "discovered")
)


def strategy_of(case: dict[str, Any]) -> WatermarkStrategy:
    return WatermarkStrategy.of_union(
        [
            WatermarkStrategy(
                supplier_of(GeneratorKind(kind), bound=bound, lag=bound),
                tuple(partitions),
                (tuple(partitions),),
                per_event=emission == "per_event",
                interval=case["interval"],
                timer_start=case["start"],
                idleness=idleness,
                discovered=tuple((p, at) for p, at in case.get("discovered", ()) if p in partitions),
            )
            for kind, bound, emission, idleness, partitions in case["subtasks"]
        ]
    )


def signals_of(case: dict[str, Any]) -> list[list[Any]]:
    source, found = Source(strategy_of(case)), []

    def note(consumed: int, at: int, signals) -> None:
        for signal in signals:
            match signal:
                case WatermarkEmitted(watermark):
                    found.append([consumed, at, "W", watermark])
                case StreamStatusChanged(idle):
                    found.append([consumed, at, "I" if idle else "A", 0])
                case PartitionStatusChanged():
                    pass

    for number, (partition, arrival, timestamp, marker) in enumerate(case["records"]):
        for tick in source.ticks(arrival):
            note(number, tick.time, tick.signals)
        note(number + 1, arrival, source.on_event(partition, Event(timestamp, arrival, bool(marker))))
    for tick in source.ticks(case["end"]):
        note(len(case["records"]), tick.time, tick.signals)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["seed"]))
def test_the_operator_behind_a_union_gets_what_flink_sends_it(case: dict[str, Any]) -> None:
    assert signals_of(case) == case["expected"]


@pytest.mark.parametrize("case", DISCOVERED, ids=lambda case: str(case["seed"]))
def test_a_partition_holds_the_watermark_back_from_its_discovery_on_as_in_flink(case: dict[str, Any]) -> None:
    assert signals_of(case) == case["expected"]


def test_the_cases_have_differing_generators_and_idle_sources() -> None:
    assert sum(len({tuple(subtask[:4]) for subtask in case["subtasks"]}) > 1 for case in CASES) > 15
    assert sum(any(kind == "I" for _, _, kind, _ in case["expected"]) for case in CASES) > 5
    assert sum(any(kind == "A" for _, _, kind, _ in case["expected"]) for case in CASES) > 3
