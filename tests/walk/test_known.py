"""Walks that once ended in wrong numbers end in right ones.

One alone: `pytest tests/walk/test_known.py -k "iceberg and with_an_end_each"`; what is no letter is an underline.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from spark_jobs.spark.jvm import DELTA
from tests.processes import ROOT
from tests.sampling import in_turn
from tests.services.kafka_broker import AdministeredBroker
from tests.walk.known import KNOWN
from tests.walk.plan import Kind
from tests.walk.topic import Topic
from tests.walk.walker import Walker

pytestmark = pytest.mark.timeout(1800)


SHORT = (
    "nights with an end each",
    "an arrival in front of the clock, then others",
    "a partition of the table is deleted, and inserted with other values",
    "a key is put right",
    "a key moves to another region after records were lost",
    "what moved the watermark is gone, and sessions are computed again",
    "quarantined records are gone",
    "another log after the table was emptied",
    "the column of values is renamed and another one added",
    "rolled back and filled with other values",
    "a run of a part, then a night",
    "records without a position arrive",
    "the definition changes after records were lost",
    "a partition is silent over a night, and the watermark has a timer",
    "a new record comes to a window that was final",
)
"""Stories, one of each kind of fault."""
TAKEN = frozenset(in_turn(SHORT)[:4])
"""Those of them that `make test` takes; others at each commit."""


def _of(*kinds: Kind) -> list:
    """The walks over these kinds of histories; `make test` takes some stories, each over one kind."""
    found, told = [], set()
    for name, walk in KNOWN.items():
        story = name.partition(": ")[2]
        if walk.kind in kinds:
            is_long = story in told or story not in TAKEN or walk.kind not in (Kind.ICEBERG, Kind.FILES)
            marks = [pytest.mark.long] if is_long else []
            found.append(pytest.param(name, id=re.sub(r"[^a-z]+", "_", name), marks=marks))
        told.add(story)
    return found


@pytest.fixture(scope="module")
def walker(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Walker:
    return Walker(spark, tmp_path_factory.mktemp("walks"))


def _ends_right(walker: Walker, name: str) -> None:
    fault = walker.first_fault(KNOWN[name])
    assert fault is None, fault.shown()


@pytest.mark.parametrize("name", _of(Kind.ICEBERG, Kind.FILES, Kind.QUERY, Kind.UNION))
def test_a_walk_that_once_went_wrong_ends_right(walker: Walker, name: str) -> None:
    _ends_right(walker, name)


@pytest.mark.parametrize("name", _of(Kind.HIVE, Kind.VIEW))
def test_a_walk_over_hive_that_once_went_wrong_ends_right(walker: Walker, name: str, hive_metastore: object) -> None:
    _ends_right(walker, name)


@pytest.mark.parametrize("name", _of(Kind.TOPIC, Kind.STITCHED))
def test_a_walk_over_a_topic_that_once_went_wrong_ends_right(
    walker: Walker, name: str, kafka: AdministeredBroker
) -> None:
    Topic.broker = kafka
    _ends_right(walker, name)


@pytest.mark.long
def test_walks_over_delta_that_once_went_wrong_end_right() -> None:
    """They need a Spark that was started with Delta, so they run in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.walk", "--known", "--kind", "delta"],
        env={**os.environ, "REWINDOW_PACKAGES": DELTA},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1700,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
