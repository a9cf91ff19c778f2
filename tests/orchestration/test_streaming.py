"""A live query of Structured Streaming and its pipeline in a real Airflow: backfill, night, what is put right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession

from spark_jobs.demo.airflow import Airflow, DagRun
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.runs.life.documents import Outcome
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.work.corrected import DeliveredCorrections
from tests.kafka import produce
from tests.orchestration.project import SPARK_CONF, folder_of, make_project
from tests.runs.live_query import SCHEMA, STEPS, WINDOWS, LiveQuery, live_section, sent, topic_stream

TOPIC, NAME = "streaming_in_airflow", "streamed"


def pipeline_of(live: LiveQuery, servers: str, corrected: Path) -> str:
    return yaml.safe_dump(
        {
            "name": NAME,
            "history": {"kind": "kafka", "servers": servers, "topic": TOPIC},
            "value": {"format": "json", "schema": SCHEMA},
            "keys": {"k": "k"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "engine": "spark",
            "watermark": {"delay": "10 seconds", "checkpoint": str(live.checkpoint)},
            "window": WINDOWS["tumbling"],
            "aggregates": {"n": "count(*)", "total": "sum(v)"},
            "output": {"namespace": "airflow"},
            "publish": "always",
            "schedule": "0 0 1 1 *",
            "live": live_section(live),
            "corrections": {"value": "complete", "to": {"kind": "files", "path": str(corrected)}},
        }
    )


@pytest.mark.timeout(1800)
@pytest.mark.long
def test_a_query_s_backfill_and_night_are_its_rows_and_late_records_are_put_right(
    spark: SparkSession, kafka: KafkaBroker, tmp_path: Path
) -> None:
    kafka.create_topic(TOPIC, 2, APPEND_TIME)
    live = LiveQuery([topic_stream(spark, kafka.servers, TOPIC, "10 seconds")], tmp_path, "append", "tumbling")

    def sending(number: int) -> Callable[[], None]:
        return partial(produce, spark, kafka.servers, TOPIC, sent(STEPS[number]))

    def published() -> set[tuple]:
        rows = spark.table(f"rewindow.airflow.{NAME}").where("pane IS NOT NULL").collect()
        return {(row["k"], int(row["window_start"].timestamp() * 1000), row["n"], row["total"]) for row in rows}

    def emitted() -> set[tuple]:
        return {(row["k"], row["s"], row["n"], row["total"]) for row in live.emitted()}

    def ended(run: DagRun) -> None:
        assert airflow.wait(run, 900) == "success", airflow.failures(run)
        outcome = Outcome.read(folder_of(run))
        assert outcome is not None and outcome.status is RunStatus.PUBLISHED
        verdicts = Verdicts.read(folder_of(run))
        assert verdicts is not None
        assert {v for v, n in verdicts.counts.items() if n} <= {"match", "late_arrivals", "all_late", "not_closed"}
        assert published() == emitted()

    project = make_project(tmp_path / "project", {}, days=0)
    (project / f"dags/pipelines/{NAME}.yaml").write_text(pipeline_of(live, kafka.servers, tmp_path / "corrected"))
    live.run([sending(0), sending(1), sending(2)])
    environ = {"REWINDOW_DRIVER_MEMORY": "512m", "REWINDOW_SPARK_CONF": SPARK_CONF}
    connection = {"conn_type": "spark", "host": "local[1]"}
    with Airflow(tmp_path / "airflow", project=project, slots=2, spark=connection, environ=environ) as airflow:
        airflow.unpause(f"backfill__{NAME}")
        ended(airflow.trigger(f"backfill__{NAME}", {"reason": "a test"}))
        before = emitted()

        live.run([sending(3), sending(4), sending(5)])
        night = airflow.trigger(f"reconcile__{NAME}")
        airflow.unpause(f"reconcile__{NAME}")  # after it, so that the schedule's latest night does not come first
        ended(night)
        assert emitted() > before
        delivered = DeliveredCorrections.read(folder_of(night))
    late = spark.table(f"rewindow.airflow.{NAME}__late").count()
    assert late > 0 and delivered is not None and delivered.is_delivered and delivered.rows > 0
    windows = spark.table(f"rewindow.airflow.{NAME}").where("state <> 'open' AND NOT (n <=> n__complete)")
    corrected = spark.table(f"rewindow.airflow.{NAME}__corrections").select("k", "window_start")
    assert {tuple(row) for row in corrected.collect()} == {
        tuple(row) for row in windows.select("k", "window_start").collect()
    }
