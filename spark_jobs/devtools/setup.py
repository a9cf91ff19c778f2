"""The last step of `make setup`: fetch what Java needs, try it on the sample, and keep Spark's loaded classes.

A Spark application spends its first seconds on loading classes. Java can keep them from one process for all later
ones ("application class data sharing", JEP 350); `spark_jobs.spark.jvm` starts every JVM with what is kept here.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.devtools.services.kafka_broker import fetch_kafka
from spark_jobs.errors import RewindowError
from spark_jobs.runs.backfill import execute
from spark_jobs.runs.plan import make_plan
from spark_jobs.runs.progress import NoProgress
from spark_jobs.spark.jvm import JAVA_OPTIONS, SHORT_APPLICATIONS, class_archive, ivy_folder
from spark_jobs.spark.session import spark_session

SAMPLE = Path("dags/pipelines/departures_hourly.yaml")


def main() -> None:
    archive = class_archive()
    new = archive.with_suffix(".new")
    archive.unlink(missing_ok=True)  # else the new one could only be laid over it
    new.unlink(missing_ok=True)
    archive.parent.mkdir(parents=True, exist_ok=True)
    for name in [name for name in os.environ if name.startswith("REWINDOW_")]:
        del os.environ[name]  # the trial is to leave nothing in a catalog or store of the user's
    os.environ["REWINDOW_DRIVER_MEMORY"] = "1g"
    os.environ[JAVA_OPTIONS] = f'{SHORT_APPLICATIONS} "-XX:ArchiveClassesAtExit={new}"'
    with tempfile.TemporaryDirectory() as folder:
        os.environ["REWINDOW_HOME"] = folder
        try:
            fetch_kafka()
            session = spark_session("setup", master="local[2]")
            pipeline = load_pipeline(SAMPLE)
            execute(session, pipeline, make_plan(session, pipeline), NoProgress())
        except RewindowError as error:
            sys.exit(str(error))
        print(f"Spark {session.version} is ready; its jars are in {ivy_folder() / 'jars'}")
        _end_jvm(session)
    if new.exists():
        new.replace(archive)


def _end_jvm(session: SparkSession) -> None:
    """End Spark's JVM as its process's end would, and wait until it has written its classes."""
    jvm = session.sparkContext._gateway.proc
    session.stop()
    jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    main()
