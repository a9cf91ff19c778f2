"""How Airflow starts Spark: one connection says where, these settings say with what.

| environment variable | meaning | default |
| --- | --- | --- |
| `REWINDOW_SPARK_CONNECTION` | Airflow connection of type Spark | `spark_default` |
| `REWINDOW_POOL` | pool of the Spark tasks | `default_pool` |
| `REWINDOW_PARALLEL_CHUNKS` | chunks of one run at work at the same time | 2 |
| `REWINDOW_SPARK_CONF` | more Spark settings, `name=value` with commas | none |
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.jvm import jvm_settings
from spark_jobs.submit.package import packaged

CONNECTION = "REWINDOW_SPARK_CONNECTION"
POOL = "REWINDOW_POOL"
PARALLEL = "REWINDOW_PARALLEL_CHUNKS"
MORE_CONF = "REWINDOW_SPARK_CONF"


def pool() -> str:
    return os.environ.get(POOL) or "default_pool"


def parallel_chunks() -> int:
    text = os.environ.get(PARALLEL) or "2"
    if not text.isdigit() or int(text) < 1:
        raise EnvironmentSetupError(f"{text!r} is not a number of tasks", PARALLEL, "Write 1, 2, ...")
    return int(text)


@cache
def _archive() -> str:
    return str(packaged())


def spark_submit_settings(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Arguments of SparkSubmitOperator that all stages share."""
    settings = jvm_settings()
    memory, packages = settings.pop("spark.driver.memory"), settings.pop("spark.jars.packages")
    return {
        "conn_id": environ.get(CONNECTION) or "spark_default",
        "driver_memory": memory,
        "packages": packages,
        "py_files": _archive(),
        "conf": {**settings, **_more_conf(environ.get(MORE_CONF, ""))},
        "verbose": False,
    }


def _more_conf(text: str) -> dict[str, str]:
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if any("=" not in piece for piece in pieces):
        raise EnvironmentSetupError(f"{text!r} is not a list of settings", MORE_CONF, "Write name=value with commas.")
    return dict(piece.split("=", 1) for piece in pieces)
