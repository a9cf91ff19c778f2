"""How the tasks in Airflow start Spark: the connection says where it runs, the settings say with what."""

from __future__ import annotations

from functools import cache
from typing import Any

from spark_jobs.settings import settings
from spark_jobs.spark.jvm import jvm_settings
from spark_jobs.submit.conf import more_conf
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
        "conf": {**conf, **more_conf()},
        "verbose": False,
    }
