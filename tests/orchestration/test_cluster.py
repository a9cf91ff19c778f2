"""The same DAGs on a real Spark standalone cluster: a master and two workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.demo.airflow import Airflow
from spark_jobs.runs.life.documents import Outcome
from spark_jobs.submit.package import packaged
from tests.orchestration.project import SPARK_CONF, folder_of, make_project, rows
from tests.sampling import sample
from tests.services.spark_cluster import SparkCluster

FORM = {"reason": "a test"} | sample({}, {"chunks": 2})
STAGES = sample(("plan",), ("plan", "replay", "replay", "verify"))
"""The applications. One does all of a small backfill; in chunks, `verify` publishes what nobody has to approve."""


@pytest.mark.timeout(1200)
@pytest.mark.long
def test_a_backfill_runs_on_a_standalone_cluster(tmp_path: Path, spark: SparkSession, monkeypatch) -> None:
    project = make_project(tmp_path / "project", {"clustered": "always"}, days=1)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    with SparkCluster(tmp_path / "cluster", workers=2, memory="1g") as cluster:
        environ = {
            "REWINDOW_DRIVER_MEMORY": "512m",
            "REWINDOW_SPARK_CONF": f"{SPARK_CONF},spark.driver.host=127.0.0.1,spark.executor.memory=512m,"
            "spark.executor.extraJavaOptions=-XX:TieredStopAtLevel=1,spark.sql.shuffle.partitions=4",
        }
        connection = {"conn_type": "spark", "host": "spark://127.0.0.1", "port": int(cluster.url.rsplit(":", 1)[1])}
        with Airflow(tmp_path / "airflow", project=project, slots=2, spark=connection, environ=environ) as airflow:
            airflow.unpause("backfill__clustered")
            run = airflow.trigger("backfill__clustered", FORM)
            state = airflow.wait(run, 900)
            failed = [task for task in airflow.tasks(run) if task["state"] == "failed"]
            assert state == "success", [
                airflow.task_log(run, t["task_id"], t["try_number"], t["map_index"]) for t in failed
            ]
        seen = cluster.applications()
    outcome = folder_of(run).read(Outcome.FILE)
    assert outcome["status"] == "published"
    names = sorted(application["name"] for application in seen)
    assert names == sorted(f"rewindow {stage} clustered" for stage in STAGES)
    assert len(rows(spark, "clustered")) > 50


def test_the_package_is_one_archive_that_the_same_files_give_again(tmp_path: Path) -> None:
    first, second = packaged(tmp_path / "a"), packaged(tmp_path / "b")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    code = "import spark_jobs.eventtime.flink.operator as o, sys; sys.exit(0 if '.zip/' in o.__file__ else 1)"
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(first)}, cwd=tmp_path)
    assert done.returncode == 0
