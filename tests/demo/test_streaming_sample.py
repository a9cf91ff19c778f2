"""The sample's Structured Streaming query: its recorded checkpoint and rows, against the topic that it has read."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import load_pipeline
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.runs.work.progress import NoProgress


@pytest.mark.long
def test_the_replay_of_the_sample_s_query_is_what_it_has_emitted(spark: SparkSession, kafka: KafkaBroker) -> None:
    environ = {"REWINDOW_KAFKA": kafka.servers}
    pipeline = load_pipeline("dags/pipelines/departures_streaming.yaml", environ)
    report = run_compare(spark, pipeline, NoProgress())
    rows = spark.read.parquet("tests/data/flights/streaming/rows.parquet").count()
    assert {verdict for verdict, count in report.counts.items() if count} <= {"match", "not_closed"}
    assert report.fidelity == "recorded"
    assert report.counts["match"] == rows > 10_000, "a batch holds two days: nothing is so late"
