"""The settings that Spark's JVM starts with: jars, heap, options, logging. This module imports no Spark."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from pathlib import Path

from spark_jobs.settings import settings

_OF_SPARK = {
    "4.0": (
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        "org.apache.spark:spark-avro_2.13:4.0.0",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
    ),
    "4.1": (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "org.apache.spark:spark-avro_2.13:4.1.1",
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
    ),
}
"""The jars that belong to a version of Spark."""


def _packages_of_spark() -> tuple[str, ...]:
    """The jars for the PySpark that is installed; for an unknown newer version, those of the newest that is known."""
    installed = ".".join(version("pyspark").split(".")[:2])
    return _OF_SPARK.get(installed, _OF_SPARK[max(_OF_SPARK)])


PACKAGES = (*_packages_of_spark(), "org.xerial:sqlite-jdbc:3.50.3.0")
"""Jars as Maven coordinates. Spark downloads them once, to `ivy_folder()`."""

DELTA = "io.delta:delta-spark_2.13:4.0.0"
"""The jar of Delta for Spark 4.0. It is fetched only where the environment names it."""
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"

LOG_SETTINGS = (Path(__file__).parent / "log4j2.properties").as_uri()
"""The address of Log4j's settings."""
DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
"""The setting with the options of the driver's JVM."""


def packages() -> tuple[str, ...]:
    """`PACKAGES`, and those that the environment adds. Raises EnvironmentSetupError as `settings` does."""
    return (*PACKAGES, *(part.strip() for part in (settings().packages or "").split(",") if part.strip()))


def has_delta() -> bool:
    """Whether the environment adds Delta's jar, of any version."""
    artifact = DELTA.rpartition(":")[0]
    return any(package.startswith(f"{artifact}:") for package in packages())


SHORT_APPLICATIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m"
"""Java options for short applications, for which the optimizing compiler costs more time than it saves.

With one compiler, Java's default cache for compiled code is small and full after a dozen runs; hence its size here.
"""

_LATER_OPTIMIZED = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's own thresholds: what runs a few seconds is not optimized, the loop over millions of records is."""

_COMPILER = re.compile(r"-XX:(?:[-+]?Tiered|Tier[234])\w+")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")


def ivy_folder() -> Path:
    """The folder of downloaded jars: Spark's default, but under `$HOME` (the JVM would ask the user database)."""
    return Path.home() / ".ivy2.5.2"


def jar_file(package: str) -> Path:
    """The file in `ivy_folder()` for the Maven coordinate `group:artifact:version`."""
    group, artifact, version = package.split(":")
    return ivy_folder() / "jars" / f"{group}_{artifact}-{version}.jar"


def class_archive() -> Path:
    """The archive of Spark's loaded classes (Java's class data sharing), which `make setup` writes beside the packages.

    Java ignores an archive that was written by another Java or with other jars.
    """
    return Path(sys.prefix) / "share" / "rewindow" / "classes.jsa"


def jvm_settings(*, short: bool = False) -> dict[str, str]:
    """What a local run's JVM starts with. Raises EnvironmentSetupError as `settings` does.

    Its garbage collector is the one for throughput, unless the user's options name another: nobody waits for a pause.
    `short`: the application reads little, so Java's fast compiler does; the user's options overrule that too.
    """
    configured = settings()
    options = ["-Duser.timezone=UTC", f"-Dlog4j2.configurationFile={LOG_SETTINGS}"]
    if class_archive().exists():
        options.append(f'"-XX:SharedArchiveFile={class_archive()}"')
    own = configured.java_options or ""
    if not _COLLECTOR.search(own):  # Java refuses two
        options.append("-XX:+UseParallelGC")
    if not _COMPILER.search(own):
        options.append(SHORT_APPLICATIONS if short else _LATER_OPTIMIZED)
    if own:
        options.append(own)
    return {
        "spark.driver.memory": configured.driver_memory,
        DRIVER_OPTIONS: " ".join(options),
        "spark.jars.packages": ",".join(packages()),
        "spark.jars.ivy": str(ivy_folder()),
    }
