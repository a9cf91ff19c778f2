"""The Spark session that every command uses: pinned jars, UTC, ANSI, the catalog `rewindow`, quiet on the terminal.

`spark_jobs.settings` says what the environment decides. Spark itself also reads `spark-defaults.conf` in the folder
`SPARK_CONF_DIR` (object stores, proxies, mirrors). A process started by `spark-submit` keeps the master, memory, jars
and web page that `spark-submit` gave it.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from spark_jobs.errors import EnvironmentSetupError, SourceError
from spark_jobs.settings import is_of_another, settings
from spark_jobs.spark.catalog import (
    METASTORE_TIMEOUT,
    REDACTED,
    catalog_conf,
    configured_catalog,
    prepare_catalog,
    store_conf,
)
from spark_jobs.spark.closed import CLOSED, close
from spark_jobs.spark.gateway import (
    cache_java_names,
    connect_to_jvm,
    context_conf,
    has_jvm,
    is_spark_running,
    system_property,
)
from spark_jobs.spark.jars import keep_files, with_jar_files
from spark_jobs.spark.java import java_reason
from spark_jobs.spark.jvm import DELTA_EXTENSION, has_delta, jvm_settings
from spark_jobs.spark.launch import launch_jvm, log_file
from spark_jobs.spark.warm import warm_gateway

_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_METASTORE_KEY = "spark.hadoop.hive.metastore.uris"
_PYTHON_FILES = "spark.submit.pyFiles"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_REDACTION_KEY = "spark.redaction.regex"
_CLOSED_TO_OTHERS = {
    # Other users of this machine can reach its ports: Spark draws a secret, which it keeps in its memory.
    "spark.authenticate": "true",
    # Python workers import no modules from the current folder, which may be somebody else's.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
}
"""Settings of a local Spark."""
_SPARKS_REDACTION = "(?i)secret|password|token|access[.]?key"
"""Spark's default; a setting of our own takes its place, so it is repeated there."""


def rewindow_home(home: Path | None = None) -> Path:
    """The absolute folder of Rewindow's own data: `home`, else `$REWINDOW_HOME`, else `./.rewindow`.

    The folder is created if it is missing, closed to other users: it holds windows, records and documents. Raises
    EnvironmentSetupError when it cannot be created or written, and for another user's that no variable names.
    """
    found = settings()
    folder = found.home if home is None else home.expanduser().absolute()
    is_found = home is None and "home" not in found.model_fields_set
    try:
        if is_found and os.path.lexists(folder) and is_of_another(folder):
            hint = "Set REWINDOW_HOME, to this folder if you trust its owner."
            raise EnvironmentSetupError("the home folder belongs to another user", str(folder), hint)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise EnvironmentSetupError(
            f"the home folder cannot be written: {error.strerror}",
            str(folder),
            "Set REWINDOW_HOME to a folder that you can write.",
        ) from error
    return folder


def spark_session(
    app_name: str,
    *,
    home: Path | None = None,
    catalog: Mapping[str, str] | None = None,
    metastore: str | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    short: bool = False,
    warm: bool = False,
) -> SparkSession:
    """A Spark session with the catalog `rewindow`.

    `catalog` gives Iceberg's catalog properties (default: `REWINDOW_CATALOG_CONF`, else SQLite under `home`);
    `metastore` is the Hive metastore behind `spark_catalog` (default: `REWINDOW_METASTORE`, else none: an empty,
    temporary `spark_catalog`); `master` defaults to all local cores; `conf` adds Spark settings and overrides the rest;
    `short` says that the process reads little (`jvm_settings`); `warm` lets it join the user's warm JVM.

    A process has one Spark. When it already runs, another home, catalog or SQL setting gives a new session of the same
    Spark; another master, metastore or start-up setting is refused.

    Raises EnvironmentSetupError (Java, jars, memory, folders, a Spark that runs with other settings), CatalogError
    (the embedded catalog cannot be written) and SourceError (no metastore answers).
    """
    folder = rewindow_home(home)
    properties = configured_catalog(folder) if catalog is None else dict(catalog)
    thrift = metastore or settings().metastore
    extra = dict(conf or {})
    catalog_settings = catalog_conf(properties)
    prepare_catalog(folder, properties)
    if thrift:
        check_metastore(thrift)
    if not is_spark_running():
        _silence_query_context()
        _start(app_name, folder, thrift, master, {**catalog_settings, **extra}, short=short, warm=warm)
        session = SparkSession.builder.getOrCreate()
    else:
        session = SparkSession.builder.getOrCreate()
        _refuse_other_start(session, thrift, master, extra)
    close(session)
    return _with_conf(session, catalog_settings, extra)


def check_metastore(uris: str) -> None:
    """Raises SourceError unless one of the metastore addresses, `thrift://host:port[,...]`, accepts a connection."""
    for uri in uris.split(","):
        try:
            address = urlsplit(uri.strip())
            host, port = address.hostname, address.port
        except ValueError:
            host = port = None
        if address.scheme != "thrift" or not host or not port:
            raise SourceError("not the address of a Hive metastore", uri.strip(), "Write thrift://host:9083.")
        try:
            socket.create_connection((host, port), timeout=5).close()
            return
        except OSError as error:
            reason = error.strerror or str(error)
    raise SourceError(
        f"no Hive metastore answers: {reason}",
        uris,
        "Start it, or correct the pipeline's `metastore` or REWINDOW_METASTORE.",
    )


def _start(
    app_name: str,
    home: Path,
    metastore: str | None,
    master: str | None,
    extra: Mapping[str, str],
    *,
    short: bool,
    warm: bool,
) -> None:
    """Start Spark in this process: first the JVM, unless one runs already, then the context."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    conf = {
        "spark.app.name": app_name,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # Files are named one by one: Spark would start a task for each of them, only to look at it.
        _LISTING_TASKS: "256",
        # Folders `store=007` are text: a type guessed from the folders that are there changes with the next one.
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # Otherwise a file with such a column cannot be opened at all: see `sources.parquet`.
        "spark.sql.legacy.parquet.nanosAsLong": "true",
        # `decode` reads every encoding of Java, such as windows-1252.
        "spark.sql.legacy.javaCharsets": "true",
        # Spark would record the Python line of each column: our code, not the user's, and most of the calls to the JVM.
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **CLOSED,
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
        "spark.ui.showConsoleProgress": "false",
        # A run has more queries than the hundred whose compiled code Spark caches by default.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # The rule would merge the arrays of close positions into one struct, from which each record would have to
        # extract its array before the look-up.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
        # Cached frames are narrow and read a few times; compressing them takes longer than it saves.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
    }
    if has_delta():
        conf |= {
            "spark.sql.extensions": f"{_EXTENSION},{DELTA_EXTENSION}",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            # The state of a table's log: by default, 50 tasks compute it.
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    if metastore:
        conf |= {
            "spark.sql.catalogImplementation": "hive",
            _METASTORE_KEY: metastore,
            f"spark.hadoop.{METASTORE_TIMEOUT}": f"{settings().catalog_seconds}s",
            # By default Hive leaves a folder in /tmp for every session.
            "spark.hadoop.hive.downloaded.resources.dir": str(home / "tmp" / "hive"),
        }
    if master or not submitted:
        conf |= _placement(master or "local[*]")
    if not submitted:
        conf |= jvm_settings(short=short)
        conf["spark.ui.enabled"] = "true" if settings().spark_ui else "false"
    conf |= extra
    if not submitted and _local_cores(conf["spark.master"]) is not None:
        conf = with_jar_files(conf, extra)

    gateway = None
    if not submitted and not has_jvm():
        gateway = warm_gateway(conf, log_file(home)) if warm else None
        gateway = gateway or launch_jvm(conf, log_file(home))
    if submitted:
        connect_to_jvm()
    for name, value in store_conf().items():
        if name not in conf and system_property(name, gateway) is None:  # as spark-defaults.conf has it
            conf[name] = value
    conf[_REDACTION_KEY] = _redaction(conf.get(_REDACTION_KEY), system_property(_REDACTION_KEY, gateway))
    context_conf = SparkConf(loadDefaults=submitted)
    if submitted:
        # spark-submit lists the jars of its packages among the Python files; PySpark would copy each jar and search it
        # for every module.
        files = context_conf.get(_PYTHON_FILES, "").split(",")
        conf[_PYTHON_FILES] = ",".join(file for file in files if not file.endswith(".jar"))
        if _local_cores(context_conf.get("spark.master", "")) is not None:
            conf = _CLOSED_TO_OTHERS | conf
    context_conf.setAll(list(conf.items()))
    try:
        context = SparkContext(conf=context_conf, gateway=gateway)
    except (Py4JError, PySparkException, ValueError) as error:
        raise EnvironmentSetupError(
            f"Spark did not start: {java_reason(error)}",
            conf.get("spark.master", "spark-submit"),
            f"The whole output is in {log_file(home)}." if not submitted else "",
        ) from error
    cache_java_names(context)
    if not submitted and "spark.jars.packages" in conf and "spark.jars.packages" not in extra:
        _keep_jars(context)
    if submitted:
        context.setLogLevel("ERROR")
        cores = _local_cores(context.master or "")
        if cores:
            spark = SparkSession.builder.getOrCreate()
            for name, value in _by_cores(cores).items():
                spark.conf.set(name, value)


def _keep_jars(context: SparkContext) -> None:
    """Keep the jars that Ivy has found. Raises EnvironmentSetupError, without a Spark, where one is not the pinned."""
    try:
        keep_files(context.getConf().get("spark.jars") or "")
    except EnvironmentSetupError:
        context.stop()
        raise


def _redaction(own: str | None, configured: str | None) -> str:
    """What Spark hides of its settings: the user's choice (here or in spark-defaults.conf), and the catalog's."""
    return f"(?:{own or configured or _SPARKS_REDACTION})|{REDACTED}"


def _placement(master: str) -> dict[str, str]:
    """Settings for where Spark runs. Locally: loopback interface, this Python, few tasks for each core."""
    cores = _local_cores(master)
    if cores is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return {"spark.master": master}
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return {
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **_CLOSED_TO_OTHERS,
        **_by_cores(cores),
    }


def _by_cores(cores: int) -> dict[str, str]:
    """How many tasks a shuffle and a look at many files have on this machine."""
    return {"spark.sql.shuffle.partitions": str(2 * cores), _LISTING_TASKS: str(4 * cores)}


def _local_cores(master: str) -> int | None:
    """The cores of a local master; None for a cluster."""
    local = re.fullmatch(r"local(?:\[(\*|\d+)[^\]]*\])?", master)
    if local is None:
        return None
    return (os.cpu_count() or 1) if local.group(1) == "*" else int(local.group(1) or 1)


def _refuse_other_start(
    session: SparkSession, metastore: str | None, master: str | None, extra: Mapping[str, str]
) -> None:
    """Raises EnvironmentSetupError when the running Spark lacks a setting that only a start can give it."""
    running = dict(session.sparkContext.getConf().getAll())
    wanted = {key: value for key, value in extra.items() if not session.conf.isModifiable(key)}
    if _REDACTION_KEY in wanted:
        wanted[_REDACTION_KEY] = _redaction(wanted[_REDACTION_KEY], None)
    wanted["spark.sql.extensions"] = _EXTENSION
    if metastore:
        wanted[_METASTORE_KEY] = metastore
    if master:
        wanted["spark.master"] = master
    for key, value in wanted.items():
        has = running.get(key)
        if has == value or (key == "spark.sql.extensions" and value in (has or "").split(",")):
            continue
        raise EnvironmentSetupError(
            f"this process already runs Spark with {key} = {has or 'nothing'}, and {value} was requested",
            session.sparkContext.appName or "",
            "Use another process, or call stop() on the running session first.",
        )


def _with_conf(session: SparkSession, catalog: Mapping[str, str], extra: Mapping[str, str]) -> SparkSession:
    """`session` itself, or a new session of the same Spark where a catalog or an SQL setting differs.

    A session caches the catalog after its first use, so another catalog needs another session. Of the settings that a
    session's jobs run with, Spark's event log redacts only those that Spark itself has too: so each of the catalog's is
    made known to it, without a value.
    """
    current = session.conf.getAll
    prefix = min(catalog, key=len)
    present = {key: value for key, value in current.items() if key == prefix or key.startswith(prefix + ".")}
    sql = {key: value for key, value in extra.items() if session.conf.isModifiable(key)}
    if present == catalog and all(current.get(key) == value for key, value in sql.items()):
        return session
    if present:
        session = session.newSession()
        close(session)
        for key in (key for key in session.conf.getAll if key.startswith(prefix + ".") and key not in catalog):
            session.conf.unset(key)  # of the catalog that Spark was started with
    running = context_conf(session)
    for key in (key for key in catalog if not running.contains(key)):
        running.set(key, "")
    for key, value in {**catalog, **sql}.items():
        session.conf.set(key, value)
    return session


def _silence_query_context() -> None:
    """PySpark prints a JSON line to stderr for every failing query; the error that is raised says the same."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
