"""Whatever happens to a history, a run ends as a full run would, or it refuses or keeps values and says so.

Hypothesis state machines (`histories`) over real files, a real Hive table and a real topic.

`REWINDOW_HISTORY_LIVES=300 .venv/bin/python -m pytest tests/faults/test_history_lives.py` takes so many steps.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.demo.kafka_broker import KafkaBroker
from tests.faults.histories import FileLives, PartitionLives, TopicLives
from tests.sampling import sample

STEPS = int(os.environ.get("REWINDOW_HISTORY_LIVES", sample(45, 300)))
STEPS_OF_ONE = 40

pytestmark = pytest.mark.timeout(sample(1800, 8 * 3600))


def test_whatever_happens_to_files_a_run_is_right_or_says_why_not(spark: SparkSession, tmp_path: Path) -> None:
    FileLives.made_ready(spark, tmp_path)
    FileLives.take(STEPS // 3, STEPS_OF_ONE)


@pytest.mark.long
def test_whatever_happens_to_partitions_a_run_is_right_or_says_why_not(
    spark: SparkSession, tmp_path: Path, hive_metastore: object
) -> None:
    PartitionLives.made_ready(spark, tmp_path)
    PartitionLives.take(STEPS // 3, STEPS_OF_ONE)


@pytest.mark.long
def test_whatever_happens_to_a_topic_a_run_is_right_or_says_why_not(
    spark: SparkSession, tmp_path: Path, kafka: KafkaBroker
) -> None:
    TopicLives.kafka = kafka
    TopicLives.made_ready(spark, tmp_path)
    TopicLives.take(STEPS // 3, STEPS_OF_ONE)
