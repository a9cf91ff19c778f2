"""Spark jobs that do not wait for each other: what one leaves of the cores while it plans or commits, another uses."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

_MAX = 4
"""Each holds memory while it works."""


def run_parallel(spark: SparkSession, *steps: Callable[[], Any]) -> list[Any]:
    """What the steps return, each called in a thread of its own; of one alone in this thread.

    All of them have ended when this returns or raises; what the first in line raised is raised.
    """
    if len(steps) < 2:
        return [step() for step in steps]
    with ThreadPoolExecutor(min(len(steps), _MAX)) as pool:
        inherited = inheritable_thread_target(spark)
        started = [pool.submit(inherited(step)) for step in steps]
    return [step.result() for step in started]
