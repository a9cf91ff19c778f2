"""Four nights in fast motion, in which the application, the broker, the metastore or the scheduler is killed.

`python -m tests.fortnight` takes any number of nights.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.spark.session import spark_session
from tests.fortnight.nights import live
from tests.fortnight.world import PATIENCE, World
from tests.sampling import seeds

pytestmark = [pytest.mark.long, pytest.mark.timeout(4 * PATIENCE)]


@pytest.mark.parametrize("seed", seeds(1, 1))
def test_nights_end_right_whatever_is_killed(spark, rewindow_home: Path, tmp_path: Path, seed: int) -> None:
    with World(tmp_path, rewindow_home) as world:
        own = spark_session("fortnight", catalog=world.catalog)
        result = live(world, own, 4, seed, print)
    assert not result.faults, result.nights
