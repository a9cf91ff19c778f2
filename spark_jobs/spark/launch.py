"""Start Spark's JVM for a local run, and explain why it did not start."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.settings import Variable
from spark_jobs.spark.java import find_java

LOG_LIMIT_BYTES = 10_000_000

_AT_LAUNCH = ("spark.master", "spark.driver.", "spark.jars", "spark.submit.")
"""Prefixes of settings that take effect only when the JVM starts; the Spark context gets all others."""


def log_file(home: Path) -> Path:
    """The file that receives all output of a local run's JVM and Python workers."""
    return home / "logs" / "spark.log"


def launch_jvm(settings: Mapping[str, str], log: Path) -> JavaGateway:
    """Start Spark's JVM with its output in `log`. It ends with this process, however this process ends.

    Of the `settings`, those are used that take effect only at the start. Raises EnvironmentSetupError.
    """
    find_java()
    # The launcher belongs to the installed pyspark, not to another Spark that the machine may have.
    os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
    conf = SparkConf(loadDefaults=False)
    conf.setAll([(key, value) for key, value in settings.items() if key.startswith(_AT_LAUNCH)])
    log.parent.mkdir(exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".log.1"))
    with log.open("ab") as output:
        before = output.tell()
        try:
            return launch_gateway(conf, {"stdout": output, "stderr": output})
        except PySparkException as error:
            with log.open("rb") as written:
                written.seek(before)
                raise _launch_problem(written.read().decode(errors="replace"), settings, log) from error


def _launch_problem(output: str, settings: Mapping[str, str], log: Path) -> EnvironmentSetupError:
    see = f"The whole output is in {log}."
    if "unresolved dependenc" in output or "download failed" in output:
        missing = sorted(set(re.findall(r"(?:unresolved dependency|download failed): ([^\s:]+)", output)))
        return EnvironmentSetupError(
            "Spark could not fetch its jars: " + (", ".join(missing) or settings["spark.jars.packages"]),
            settings["spark.jars.ivy"],
            "They come from Maven Central, once. Check the network and try again; for a mirror set "
            f"spark.jars.ivySettings or spark.jars.repositories in spark-defaults.conf (folder: SPARK_CONF_DIR). {see}",
        )
    if re.search(r"Invalid (initial|maximum) heap|Could not reserve enough space|Cannot allocate memory", output):
        return EnvironmentSetupError(
            f"Java could not take a heap of {settings['spark.driver.memory']}",
            Variable.DRIVER_MEMORY,
            f"Set {Variable.DRIVER_MEMORY} to less than this machine's memory. {see}",
        )
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(("\tat ", "WARNING:"))]
    return EnvironmentSetupError(f"Spark's JVM did not start: {lines[-1].strip() if lines else 'no output'}", "", see)
