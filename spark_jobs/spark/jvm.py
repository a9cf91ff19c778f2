"""What Spark's JVM starts with: its jars, its heap, its logging. Nothing of Spark is imported here."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from spark_jobs.errors import EnvironmentSetupError

PACKAGES = (
    "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "org.apache.spark:spark-avro_2.13:4.0.0",
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    "org.xerial:sqlite-jdbc:3.50.3.0",
)
"""Jars, as Maven coordinates; Spark fetches them once and keeps them in `ivy_folder()`."""

DEFAULT_DRIVER_MEMORY = "4g"
JAVA_OPTIONS = "REWINDOW_JAVA_OPTIONS"
SHORT_APPLICATIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Java options where each application is short: the optimizing compiler would cost more than it gains.

Without it Java's room for compiled code is small, and full after a dozen runs.
"""

_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def ivy_folder() -> Path:
    """Where Spark keeps fetched jars: its own default, but under `$HOME` (the JVM asks the user database instead)."""
    return Path.home() / ".ivy2.5.2"


def jar_file(package: str) -> Path:
    """The file that Spark keeps for the Maven coordinate `group:artifact:version`."""
    group, artifact, version = package.split(":")
    return ivy_folder() / "jars" / f"{group}_{artifact}-{version}.jar"


def class_archive() -> Path:
    """Spark's classes as Java has loaded them before (class data sharing); `make setup` writes it beside the packages.

    Java ignores one that another Java or other jars made.
    """
    return Path(sys.prefix) / "share" / "rewindow" / "spark-classes.jsa"


def jvm_settings() -> dict[str, str]:
    """What a local run's JVM starts with. Raises EnvironmentSetupError when REWINDOW_DRIVER_MEMORY is not a size.

    Its garbage collector is the one for throughput, unless the user's options name another: nobody waits for a pause.
    """
    memory = os.environ.get("REWINDOW_DRIVER_MEMORY") or DEFAULT_DRIVER_MEMORY
    if not re.fullmatch(r"[1-9]\d*[mg]", memory, re.IGNORECASE):
        raise EnvironmentSetupError(f"`{memory}` is not a heap size", "REWINDOW_DRIVER_MEMORY", "Write 4g or 512m.")
    logging = (Path(__file__).parent / "log4j2.properties").as_uri()
    options = ["-Duser.timezone=UTC", f"-Dlog4j2.configurationFile={logging}"]
    if class_archive().exists():
        options.append(f'"-XX:SharedArchiveFile={class_archive()}"')
    own = os.environ.get(JAVA_OPTIONS) or ""
    if not _COLLECTOR.search(own):  # Java refuses two
        options.append("-XX:+UseParallelGC")
    if own:
        options.append(own)
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.ivy": str(ivy_folder()),
    }
