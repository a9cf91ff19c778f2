"""A reconciliation in a process of its own, which kills itself and its JVM at the n-th boundary.

`python -m tests.faults.child PIPELINE.yaml N`: boundaries are counted from 1, each call of a stage or of a step of a
commit has one before it and one after it. N 0 kills nothing, and prints the names of the boundaries.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from typing import Any

from spark_jobs import reconcile_run, stages
from spark_jobs.definition import load_pipeline
from spark_jobs.lakehouse.facts import Facts
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.progress import NoProgress
from spark_jobs.session import spark_session

STEPS: list[tuple[Any, str]] = [
    (Ledger, "begin"), (Ledger, "update"), (Ledger, "delete_rows"), (Staging, "write"), (Staging, "drop"),
    (stages, "_append"), (stages, "append_rows"), (stages, "_delete_superseded"),
    (Facts, "prepare"), (Facts, "_write"), (Facts, "_append"), (Facts, "_share_last_append"), (Facts, "_move"),
]  # fmt: skip


def main(path: str, kill_at: int) -> None:
    spark = spark_session("faults", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    passed: list[str] = []

    def boundary(name: str) -> None:
        passed.append(name)
        if len(passed) == kill_at:
            os.kill(jvm, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def watched(function: Any, name: str) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            boundary(f"before {name}")
            result = function(*arguments, **named)
            boundary(f"after {name}")
            return result

        return call

    for owner, name in STEPS:
        setattr(owner, name, watched(getattr(owner, name), name.lstrip("_")))
    reconcile_run.reconcile(spark, load_pipeline(path), NoProgress())
    print("\n".join(passed))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
