"""A reconciliation in a process of its own, which kills itself and its JVM at the n-th boundary.

`python -m tests.faults.child PIPELINE.yaml N`: boundaries are counted from 1, each call of a stage or of a step of a
commit has one before it and one after it. N 0 kills nothing, and prints the names of the boundaries.
"""

from __future__ import annotations

import os
import signal
import sys

from spark_jobs.definition import load_pipeline
from spark_jobs.runs.night import nightly
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.gateway import jvm
from spark_jobs.spark.session import spark_session
from tests.faults.boundaries import stopped_at


def main(path: str, kill_at: int) -> None:
    spark = spark_session("faults", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    java_process = jvm(spark).java.lang.ProcessHandle.current().pid()

    def kill() -> None:
        os.kill(java_process, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    with stopped_at(kill_at, stop=kill) as passed:
        nightly.reconcile(spark, load_pipeline(path), NoProgress())
    print("\n".join(passed))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
