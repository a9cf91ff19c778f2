"""When stream time passed the ends of windows is kept in memory that grows with windows, not with records."""

from __future__ import annotations

import random

import pytest

from spark_jobs.eventtime.kafka_streams.task import Topology
from spark_jobs.eventtime.kafka_streams.windows import HoppingWindows
from spark_jobs.replay.kafka_streams.tasks import Closes


@pytest.mark.parametrize(("size", "advance", "grace"), [(1000, 1000, 0), (1000, 300, 77), (5, 1, 3)])
def test_the_first_step_that_passes_an_end_is_kept_and_few_others_are(size: int, advance: int, grace: int) -> None:
    topology = Topology(HoppingWindows(size, advance), grace)
    closes, draw, time, steps = Closes(topology), random.Random(size), 0, list[tuple[int, int]]()
    for arrival in range(20_000):
        time += draw.choice((0, 1, 1, 2, 40))
        closes.add(time, arrival)
        steps.append((time, arrival))
    last = 20_000
    for start in range(0, time + 2 * advance, advance * (1 + time // advance // 500)):
        end = start + size
        passed = next((arrival for at, arrival in steps if at >= end + topology.wait), None)
        assert closes.since(end, last) == (None if passed is None else last - passed)
    assert len(closes) <= time // advance + 2
