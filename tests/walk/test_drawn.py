"""Whatever happens to a history, each run's tables are what a fresh full run would give, or it says why not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sampling import IN_FULL, sample
from tests.walk.drawn import drawn, is_sound
from tests.walk.plan import Kind, Shape
from tests.walk.random_walks import take_walks

pytestmark = pytest.mark.timeout(sample(1800, 8 * 3600))


@pytest.mark.parametrize("kind", [*Kind])
@pytest.mark.parametrize("shape", [*Shape])
def test_a_seed_gives_one_walk_and_knows_what_comes_out_of_its_steps(kind: Kind, shape: Shape) -> None:
    if kind is Kind.QUERY and shape is not Shape.TUMBLING:
        return
    for seed in range(20):
        walk = drawn(seed, kind, shape, 30)
        assert walk == drawn(seed, kind, shape, 30)
        assert is_sound(walk) and len(walk.steps) >= 30


def test_random_walks_end_right(spark: SparkSession, tmp_path: Path) -> None:
    seed = random.randrange(2**32) if IN_FULL else 0
    faults = take_walks(spark, tmp_path, sample(20, 300), seed, tries=60, stops=True)
    assert not faults, faults[0].shown()
