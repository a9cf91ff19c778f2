"""`rewindow doctor`: check everything that a run needs, and say how to fix what is missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.probe import check_branches
from spark_jobs.settings import settings
from spark_jobs.spark.catalog import check_catalog, configured_catalog, describe_catalog, prepare_catalog
from spark_jobs.spark.java import NEWEST_TESTED_JAVA, find_java
from spark_jobs.spark.jvm import ivy_folder, jar_file, packages
from spark_jobs.spark.launch import log_file
from spark_jobs.spark.session import check_metastore, rewindow_home, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.definition.pipeline import Pipeline

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 13)
SPARK = "4.0"
SPACE_TO_RUN = 1 << 30
SPACE_FOR_BACKFILLS = 10 << 30


class Status(StrEnum):
    """The result of one check. `warn`: a run may work; `fail`: it will not."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its result, what was found, how to fix it (empty where nothing is wrong), and its name."""

    status: Status
    what: str
    hint: str = ""
    name: str = ""


_ok, _warn, _fail = (partial(Check, status) for status in Status)


def run_doctor(pipeline: Pipeline | None = None, start: Callable[[], SparkSession] | None = None) -> list[Check]:
    """Check everything that a run needs, the quick checks first; with a pipeline, its metastore and history too.

    Problems are results, not errors. Spark is started only where no check before it has failed, by `start` where that
    is given.
    """
    checks = [_run_check(name, check) for name, check in _without_spark(pipeline)]
    if all(check.status is not Status.FAIL for check in checks):
        checks += _with_spark(pipeline, start)
    return checks


def _without_spark(pipeline: Pipeline | None) -> Iterator[tuple[str, Callable[[], Check]]]:
    yield "Python", _python
    yield "Java", _java
    yield "PySpark", _pyspark
    yield "home", _home
    yield "disk space", _space
    yield "jars", _jars
    yield "catalog", _catalog
    metastore = _metastore_of(pipeline)
    if metastore:
        yield "metastore", lambda: _metastore(metastore)


def _with_spark(pipeline: Pipeline | None, start: Callable[[], SparkSession] | None) -> list[Check]:
    try:
        spark = start() if start else spark_session("doctor", metastore=_metastore_of(pipeline))
    except RewindowError as error:
        return [_failed("Spark", error)]

    def catalog() -> Check:
        check_catalog(spark)
        return _ok("its namespaces can be listed")

    def history(pipeline: Pipeline) -> Check:
        from spark_jobs.sources import open_history

        open_history(spark, pipeline)
        return _ok(f"the history of {pipeline.name} can be opened")

    def branches() -> Check:
        check_branches(spark)
        return _ok("it moves two branches of a table in one commit")

    checks = [
        _run_check("Spark", lambda: _ok(f"Spark {spark.version} starts ({spark.sparkContext.master})")),
        _run_check("time zones", lambda: zones_check(spark, pipeline)),
        _run_check("catalog answers", catalog),
    ]
    if checks[-1].status is Status.OK:
        checks.append(_run_check("catalog publishes", branches))
    if pipeline is not None:
        checks.append(_run_check("history", lambda: history(pipeline)))
    return checks


def zones_check(spark: SparkSession, pipeline: Pipeline | None) -> Check:
    """Whether Java and Python have the same time zone data. Raises SourceError where the pipeline's zone differs."""
    from spark_jobs.sources.zone_rules import java_release, python_release, refuse_unlike_zone, what_to_update

    java, python = java_release(spark), python_release()
    what = f"Java has release {java}, Python {python}"
    if java == python:
        return _ok(what)
    if pipeline is None:
        return _warn(f"{what}; a pipeline whose zone they know differently is refused", what_to_update(java, python))
    refuse_unlike_zone(spark, pipeline)
    return _ok(f"{what}; they agree on all zones of {pipeline.name}")


def _run_check(name: str, check: Callable[[], Check]) -> Check:
    try:
        return replace(check(), name=name)
    except RewindowError as error:
        return _failed(name, error)


def _failed(name: str, error: RewindowError) -> Check:
    where = f" ({error.where})" if error.where else ""
    return replace(_fail(f"{error.what}{where}", error.hint), name=name)


def _metastore_of(pipeline: Pipeline | None) -> str | None:
    own = pipeline.history.metastore if pipeline is not None else None
    return own or settings().metastore


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        return _fail(f"Python {found} is too old", "Use Python 3.11, 3.12 or 3.13.")
    if sys.version_info[:2] > NEWEST_PYTHON:
        return _warn(f"Python {found} is newer than Spark 4.0 supports", "Use Python 3.13.")
    return _ok(f"Python {found} ({sys.executable})")


def _java() -> Check:
    java = find_java()
    found = f"Java {java.version} ({java.executable})"
    if java.version > NEWEST_TESTED_JAVA:
        what = f"{found}; Spark 4.0 is made for Java 17 and 21"
        return _warn(what, "Set JAVA_HOME to one of them.")
    return _ok(found)


def _pyspark() -> Check:
    found = version("pyspark")
    try:
        version("pyspark-client")
    except PackageNotFoundError:
        pass
    else:
        return _fail(
            "pyspark-client is installed too and overwrites files of pyspark",
            "Uninstall both, then install pyspark alone (make setup).",
        )
    if not found.startswith(f"{SPARK}."):
        return _warn(f"pyspark {found}; the jars are those for Spark {SPARK}", "Run make setup.")
    spark_home = os.environ.get("SPARK_HOME")
    if spark_home and Path(spark_home).resolve() != Path(pyspark.__file__).parent.resolve():
        return _warn(
            f"pyspark {found}; SPARK_HOME={spark_home} is not used in local runs",
            "Unset SPARK_HOME; for your own spark-defaults.conf set SPARK_CONF_DIR.",
        )
    return _ok(f"pyspark {found}")


def _home() -> Check:
    home = rewindow_home()
    return _ok(f"{home}, from {settings().home_origin} (Spark's log: {log_file(home)})")


def _space() -> Check:
    free = shutil.disk_usage(rewindow_home()).free
    what = f"{free / (1 << 30):.1f} GiB free under the home folder"
    if free < SPACE_TO_RUN:
        return _fail(what, "Free some space, or set REWINDOW_HOME to a larger disk.")
    if free < SPACE_FOR_BACKFILLS:
        return _warn(what, "A large backfill may need more.")
    return _ok(what)


def _jars() -> Check:
    missing = [package for package in packages() if not jar_file(package).is_file()]
    if missing:
        return _warn(
            f"not downloaded yet: {', '.join(missing)}",
            "Spark downloads them from Maven Central at its next start, which needs the network once.",
        )
    return _ok(f"{len(packages())} jars in {ivy_folder() / 'jars'}")


def _catalog() -> Check:
    home = rewindow_home()
    properties = configured_catalog(home)
    prepare_catalog(home, properties)
    if properties.get("type") == "hadoop":
        return _warn(
            f"{describe_catalog(properties)}: it commits by renaming a file. On an object store that is not atomic: "
            "of two runs that publish at the same time, one can lose the other's windows",
            "Use it on HDFS or on a local disk only; else choose type=hive, type=rest or type=jdbc.",
        )
    return _ok(describe_catalog(properties))


def _metastore(uri: str) -> Check:
    check_metastore(uri)
    return _ok(f"{uri} accepts connections")
