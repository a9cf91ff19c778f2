"""The Spark session that every command uses: pinned jars, UTC, ANSI, the catalog `rewindow`, quiet on the terminal.

What the environment decides:

| variable | meaning | default |
| --- | --- | --- |
| `REWINDOW_HOME` | folder of the embedded catalog, the tables and the logs | `./.rewindow` |
| `REWINDOW_DRIVER_MEMORY` | heap of a local run, as `4g` or `512m` | `4g` |
| `REWINDOW_METASTORE` | Hive metastore, `thrift://host:9083` | none |
| `REWINDOW_CATALOG_CONF` | another Iceberg catalog, see `lakehouse/catalog.py` | SQLite under the home |
| `REWINDOW_SPARK_UI` | `1` turns Spark's own web page on; `spark-submit` has its own setting | off |
| `SPARK_CONF_DIR` | folder with your `spark-defaults.conf` (object stores, proxies, mirrors) | none |

A process started by `spark-submit` keeps the master, memory and jars that `spark-submit` gave it.
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
from spark_jobs.spark.catalog import catalog_conf, configured_catalog, prepare_catalog
from spark_jobs.spark.java import java_reason
from spark_jobs.spark.jvm import jvm_settings
from spark_jobs.spark.launch import launch_jvm, log_file

_EXTENSION = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_METASTORE_KEY = "spark.hadoop.hive.metastore.uris"
_PYTHON_FILES = "spark.submit.pyFiles"


def rewindow_home(home: Path | None = None) -> Path:
    """The absolute folder of Rewindow's own data: `home`, else `$REWINDOW_HOME`, else `./.rewindow`.

    It is made where it is missing. Raises EnvironmentSetupError when it cannot be made or written.
    """
    folder = (home or Path(os.environ.get("REWINDOW_HOME") or ".rewindow")).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
) -> SparkSession:
    """A Spark session with the catalog `rewindow`.

    `catalog` holds Iceberg catalog properties (default: `REWINDOW_CATALOG_CONF`, else SQLite under `home`);
    `metastore` is the Hive metastore behind `spark_catalog` (default: `REWINDOW_METASTORE`, else none: an empty,
    temporary `spark_catalog`); `master` defaults to all local cores; `conf` adds Spark settings and wins.

    A process has one Spark. Where it already runs, another home, catalog or SQL setting gives a new session of it;
    another master, metastore or start-up setting is refused.

    Raises EnvironmentSetupError (Java, jars, memory, folders, a Spark that runs with other settings), CatalogError
    (the embedded catalog cannot be written) and SourceError (no metastore answers).
    """
    folder = rewindow_home(home)
    properties = configured_catalog(folder) if catalog is None else dict(catalog)
    thrift = metastore or os.environ.get("REWINDOW_METASTORE") or None
    extra = dict(conf or {})

    prepare_catalog(folder, properties)
    if thrift:
        check_metastore(thrift)
    if SparkContext._active_spark_context is None:
        _silence_query_context()
        _start(app_name, folder, thrift, master, extra)
        session = SparkSession.builder.getOrCreate()
    else:
        session = SparkSession.builder.getOrCreate()
        _refuse_other_start(session, thrift, master, extra)
    return _with_conf(session, catalog_conf(properties), extra)


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


def _start(app_name: str, home: Path, metastore: str | None, master: str | None, extra: Mapping[str, str]) -> None:
    """Start Spark in this process: the JVM, where none runs yet, then the context."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    settings = {
        "spark.app.name": app_name,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
        # The Python line of each column would be our code, not the user's, and costs most of the calls to the JVM.
        "spark.sql.dataFrameQueryContext.enabled": "false",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
        "spark.ui.showConsoleProgress": "false",
        # A run asks more than the hundred queries of which Spark would keep the compiled code.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # A close position is looked up in an array for each record; put together with others in a struct, it would be
        # taken out of that for each record first.
        "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.MergeScalarSubqueries",
        # What is kept is narrow and read a few times; to compress it takes longer than to decode it.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
    }
    if metastore:
        settings |= {
            "spark.sql.catalogImplementation": "hive",
            _METASTORE_KEY: metastore,
            # Hive would leave a folder in /tmp for every session.
            "spark.hadoop.hive.downloaded.resources.dir": str(home / "tmp" / "hive"),
        }
    if master or not submitted:
        settings |= _placement(master or "local[*]")
    if not submitted:
        settings |= jvm_settings()
        settings["spark.ui.enabled"] = "true" if os.environ.get("REWINDOW_SPARK_UI") == "1" else "false"
    settings |= extra

    gateway = None
    if not submitted and SparkContext._gateway is None:
        gateway = launch_jvm(settings, log_file(home))
    if submitted:
        SparkContext._ensure_initialized()
    context_conf = SparkConf(loadDefaults=submitted)
    if submitted:
        # With the jars of its packages among the files for Python, PySpark would copy each, and every module would be
        # looked for in them.
        files = context_conf.get(_PYTHON_FILES, "").split(",")
        settings[_PYTHON_FILES] = ",".join(file for file in files if not file.endswith(".jar"))
    context_conf.setAll(list(settings.items()))
    try:
        context = SparkContext(conf=context_conf, gateway=gateway)
    except (Py4JError, PySparkException, ValueError) as error:
        raise EnvironmentSetupError(
            f"Spark did not start: {java_reason(error)}",
            settings.get("spark.master", "spark-submit"),
            f"The whole output is in {log_file(home)}." if not submitted else "",
        ) from error
    _remember_names(context)
    if submitted:
        context.setLogLevel("ERROR")
        cores = _local_cores(context.master)
        if cores:
            SparkSession.builder.getOrCreate().conf.set("spark.sql.shuffle.partitions", str(2 * cores))


def _remember_names(context: SparkContext) -> None:
    """Keep what PySpark asks the JVM for at every column and every query: Java looks through all jars each time."""
    for name in ("org.apache.spark.sql.functions", "functions", "PythonUtils", "PythonSQLUtils", "py4j"):
        setattr(context._jvm, name, getattr(context._jvm, name))


def _placement(master: str) -> dict[str, str]:
    """Where Spark runs. Local: on the loopback interface, with this Python, and two shuffle partitions a core."""
    cores = _local_cores(master)
    if cores is None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return {"spark.master": master}
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    return {
        "spark.master": master,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(2 * cores),
    }


def _local_cores(master: str) -> int | None:
    """The cores of a local master; None for a cluster."""
    local = re.fullmatch(r"local(?:\[(\*|\d+)[^\]]*\])?", master)
    if local is None:
        return None
    return (os.cpu_count() or 1) if local.group(1) == "*" else int(local.group(1) or 1)


def _refuse_other_start(
    session: SparkSession, metastore: str | None, master: str | None, extra: Mapping[str, str]
) -> None:
    """Raises EnvironmentSetupError when the running Spark lacks what only a start can give it."""
    running = dict(session.sparkContext.getConf().getAll())
    wanted = {key: value for key, value in extra.items() if not session.conf.isModifiable(key)}
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
            f"this process already runs Spark with {key} = {has or 'nothing'}, and {value} was asked for",
            session.sparkContext.appName,
            "Use another process, or call stop() on the running session first.",
        )


def _with_conf(session: SparkSession, catalog: Mapping[str, str], extra: Mapping[str, str]) -> SparkSession:
    """`session` itself, or a new session of the same Spark where a catalog or an SQL setting differs.

    A session keeps the catalog that it has once used, so another catalog needs another session.
    """
    current = session.conf.getAll
    prefix = min(catalog, key=len)
    present = {key: value for key, value in current.items() if key == prefix or key.startswith(prefix + ".")}
    sql = {key: value for key, value in extra.items() if session.conf.isModifiable(key)}
    if present == catalog and all(current.get(key) == value for key, value in sql.items()):
        return session
    if present:
        session = session.newSession()
    for key, value in {**catalog, **sql}.items():
        session.conf.set(key, value)
    return session


def _silence_query_context() -> None:
    """PySpark prints a JSON line to stderr for every failing query; the error that is raised says the same."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True
