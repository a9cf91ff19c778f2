"""The last step of `make setup`: download the jars, try them on the sample, and archive Spark's loaded classes.

A Spark application spends its first seconds on loading classes. Java can archive the classes of one process for all
later ones ("application class data sharing", JEP 350). `spark_jobs.spark.jvm` starts every JVM with this archive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.demo.kafka_broker import fetch_kafka
from spark_jobs.errors import RewindowError
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.settings import Variable
from spark_jobs.spark.gateway import JavaObject
from spark_jobs.spark.jvm import SHORT_APPLICATIONS, class_archive, ivy_folder
from spark_jobs.spark.session import spark_session

SAMPLE = Path("dags/pipelines/departures_hourly.yaml")


def main() -> None:
    archive = class_archive()
    new = archive.with_suffix(".new")
    for old in archive.parent.glob("*.jsa"):  # else Java would only add to it
        old.unlink()
    new.unlink(missing_ok=True)
    archive.parent.mkdir(parents=True, exist_ok=True)
    for name in Variable:
        os.environ.pop(name, None)  # the trial must not write to the user's own catalog or run store
    os.environ[Variable.DRIVER_MEMORY] = "1g"
    os.environ[Variable.JAVA_OPTIONS] = f'{SHORT_APPLICATIONS} "-XX:ArchiveClassesAtExit={new}"'
    with tempfile.TemporaryDirectory() as folder:
        os.environ[Variable.HOME] = folder
        try:
            _say("starting Spark, which fetches its jars")
            _resolve_jars()
            with ThreadPoolExecutor(1) as beside:  # not before: two of Ivy share no cache
                broker = beside.submit(fetch_kafka)
                _say("fetching a Kafka broker")
                _say("a run over the sample, after which Java keeps the classes that it has loaded")
                session = spark_session("setup", master="local[2]")
                pipeline = load_pipeline(SAMPLE)
                execute(session, pipeline, make_plan(session, pipeline), NoProgress())
                broker.result()
        except RewindowError as error:
            sys.exit(str(error))
        print(f"Spark {session.version} is ready; its jars are in {ivy_folder() / 'jars'}")
        _end_jvm(session)
    if new.exists():
        new.replace(archive)


def _say(what: str) -> None:
    print(f"  {what}", flush=True)


def _resolve_jars() -> None:
    """Start a Spark once: then the one whose classes are archived has its jars as files (`spark_jobs.spark.jars`)."""
    code = "from spark_jobs.spark.session import spark_session; spark_session('setup', master='local[1]')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(ended.stderr.strip().splitlines()[-1])


def _end_jvm(session: SparkSession) -> None:
    """Close the JVM's standard input, which ends it, and wait until it has written the archive."""
    context: JavaObject = session.sparkContext
    jvm: subprocess.Popen[bytes] = context._gateway.proc
    session.stop()
    if jvm.stdin is not None:
        jvm.stdin.close()
    jvm.wait()


if __name__ == "__main__":
    main()
