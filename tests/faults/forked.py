"""Run an action in a forked process: the driver's Python is new, the JVM is that of the tests."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable

from pyspark.sql import SparkSession


def forked(spark: SparkSession, action: Callable[[], object], kill_after: float | None = None) -> int:
    """Carry out `action` in a forked process; its exit code, or the negative number of the signal that ended it.

    `kill_after` seconds it is killed, if it has not ended. The JVM lives on; what it was doing for the process comes to
    its end before this returns, and what it keeps in memory is dropped, as it were with a JVM of the process's own.
    """
    process = os.fork()
    if process == 0:
        _child(spark, action)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    _let_end(spark)
    return os.waitstatus_to_exitcode(status)


def kill_this_process() -> None:
    """As the kernel does when memory runs out: no handler, no `finally`, nothing is flushed."""
    os.kill(os.getpid(), signal.SIGKILL)


def _child(spark: SparkSession, action: Callable[[], object]) -> None:
    """Never returns: what lies above on the stack is the parent's."""
    code = 1
    try:
        client = spark.sparkContext._gateway._gateway_client
        client.deque.clear()  # the parent's connections; the next call opens one for this process
        client.thread_connection = threading.local()
        random.seed()  # names must not be those that the next child draws
        action()
        code = 0
    finally:
        os._exit(code)


def _let_end(spark: SparkSession) -> None:
    tracker, quiet = spark.sparkContext.statusTracker(), 0
    deadline = time.monotonic() + 60
    while quiet < 3 and time.monotonic() < deadline:
        quiet = 0 if tracker.getActiveJobsIds() else quiet + 1
        time.sleep(0.1)
    spark.catalog.clearCache()
