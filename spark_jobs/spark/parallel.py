"""Run independent work side by side, so that one uses the cores while another plans, commits or waits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Thread
from typing import Any, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

T = TypeVar("T")

_MAX = 4
"""Steps at the same time, at most: each needs memory while it runs."""


def run_parallel(spark: SparkSession, *steps: Callable[[], Any]) -> list[Any]:
    """Call each step in a thread of its own and return their results in order; a single step runs in this thread.

    Local properties and job tags of the calling thread hold in the steps too. All steps have ended when this returns or
    raises. If several raise, the error of the first in order is raised.
    """
    if len(steps) < 2:
        return [step() for step in steps]
    with ThreadPoolExecutor(min(len(steps), _MAX)) as pool:
        inherited = inheritable_thread_target(spark)
        started = [pool.submit(inherited(step)) for step in steps]
    return [step.result() for step in started]


def in_background(call: Callable[[], T]) -> Future[T]:
    """Call it in a thread of its own, which ends with the process at the latest: nothing waits for one that hangs."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as problem:
            future.set_exception(problem)

    Thread(target=work, name="background", daemon=True).start()
    return future
