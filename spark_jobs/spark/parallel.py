"""Run independent Spark jobs side by side, so that one uses the cores while another plans or commits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

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
