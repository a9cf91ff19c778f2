"""How the tasks in Airflow start Spark: the connection says where it runs, the settings say with what."""

from __future__ import annotations

from functools import cache
from typing import Any

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.settings import Variable, settings
from spark_jobs.spark.jvm import jvm_settings
from spark_jobs.submit.package import packaged


@cache
def _archive() -> str:
    return str(packaged())


def spark_submit_settings() -> dict[str, Any]:
    """The arguments of SparkSubmitOperator that all stages share. Raises EnvironmentSetupError."""
    configured = settings()
    conf = jvm_settings()
    memory, packages = conf.pop("spark.driver.memory"), conf.pop("spark.jars.packages")
    return {
        "conn_id": configured.spark_connection,
        "driver_memory": memory,
        "packages": packages,
        "py_files": _archive(),
        "conf": {**conf, **_more_conf(configured.spark_conf or "")},
        "verbose": False,
    }


def _more_conf(text: str) -> dict[str, str]:
    pieces = [piece.strip() for piece in text.split(",") if piece.strip()]
    if any("=" not in piece for piece in pieces):
        raise EnvironmentSetupError(
            f"{text!r} is not a list of settings", Variable.SPARK_CONF, "Write name=value with commas."
        )
    return dict(piece.split("=", 1) for piece in pieces)
