"""Whatever happens to a history, each run's tables are what a fresh full run would give, or it says why not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sampling import IN_FULL, sample
from tests.tiers import turn
from tests.walk.drawn import drawn, fits, is_sound
from tests.walk.known import KNOWN
from tests.walk.known_runs import Runs
from tests.walk.log import Log
from tests.walk.plan import RUNS, Kind, Shape, Walk
from tests.walk.published import Published
from tests.walk.random_walks import take_walks

pytestmark = pytest.mark.timeout(sample(1800, 8 * 3600))


@pytest.mark.parametrize("kind", [*Kind])
@pytest.mark.parametrize("shape", [*Shape])
def test_a_seed_gives_one_walk_and_knows_what_comes_out_of_its_steps(kind: Kind, shape: Shape) -> None:
    if not fits(kind, shape):
        return
    for seed in range(sample(2, 20)):
        walk = drawn(seed, kind, shape, 30)
        assert walk == drawn(seed, kind, shape, 30)
        assert is_sound(walk) and len(walk.steps) >= 30


def _fault_of_an_ideal_product(walk: Walk) -> list[str]:
    """What is found wrong where each run publishes what is right."""
    log, runs, there = Log(), Runs(walk), Published()
    for step in walk.steps:
        after = log.after(step)
        if not isinstance(step, RUNS):
            runs.saw(step, after)
        elif runs.refusal(step, log, there) is None:
            case = runs.case(step, log, there)
            was, there = there, case.ideal()
            if faults := case.faults(there):
                return [repr(step), *faults]
            runs.ran(step, log, was, there)
        log = after
    return []


@pytest.mark.parametrize("shape", [*Shape])
def test_where_all_is_right_nothing_is_found_wrong(shape: Shape) -> None:
    known = {name: walk for name, walk in KNOWN.items() if walk.shape is shape}
    random_ones = {f"seed {n}": drawn(n, Kind.ICEBERG, shape, 25) for n in range(sample(2, 20))}
    for name, walk in {**known, **random_ones}.items():
        assert not (found := _fault_of_an_ideal_product(walk)), (name, found, walk.shown())


def test_random_walks_end_right(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(2**32) if IN_FULL else turn()
    faults = take_walks(spark, tmp_path, sample(20, 300), seed, tries=60, stops=True)
    assert not faults, faults[0].shown()
