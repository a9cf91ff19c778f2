"""The Iceberg catalog `rewindow`: where Rewindow's own tables live.

Embedded default: a JDBC catalog on SQLite, `$REWINDOW_HOME/catalog.db`, with its data under `$REWINDOW_HOME/warehouse`.
Any other catalog is configuration only: Iceberg's catalog properties in the environment variable
`REWINDOW_CATALOG_CONF`, as `name=value` pairs separated by commas:

    REWINDOW_CATALOG_CONF='type=hive,uri=thrift://metastore:9083,warehouse=s3a://lake/rewindow'
    REWINDOW_CATALOG_CONF='type=rest,uri=https://catalog.example.com,warehouse=prod'
    REWINDOW_CATALOG_CONF='type=jdbc,uri=jdbc:postgresql://host/rewindow,jdbc.user=rewindow,jdbc.schema-version=V1,warehouse=...'
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from spark_jobs.addresses import public_address
from spark_jobs.errors import CatalogError, EnvironmentSetupError
from spark_jobs.settings import Variable, pairs, settings
from spark_jobs.spark.java import java_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "rewindow"
BUSY_TIMEOUT_MS = 60_000
"""How long one application waits for SQLite's lock, in ms. A commit takes the lock for milliseconds."""

_PREFIX = f"spark.sql.catalog.{CATALOG}"

_SHOWN = ("type", "catalog-impl", "io-impl", "warehouse", "cache-enabled", "jdbc.schema-version", "jdbc.busy_timeout")
REDACTED = rf"^spark\.sql\.catalog\.{CATALOG}\.(?!(?:{'|'.join(re.escape(name) for name in _SHOWN)})$)"
"""A regular expression (Java's) for the settings of the catalog that Spark must not show: all but a few.

Any other property can hold a secret (`credential`, `header.Authorization`, `jdbc.password`, a password in `uri`), and
catalogs have names of their own for them.
"""

# Iceberg's own tables, in its schema version V1, which supports views. Iceberg can create them itself, but in two steps
# (CREATE, then ALTER to V1), and of two applications that start on an empty home together, one can fail at the second.
_TABLES = (
    """CREATE TABLE IF NOT EXISTS iceberg_tables (
        catalog_name VARCHAR(255) NOT NULL,
        table_namespace VARCHAR(255) NOT NULL,
        table_name VARCHAR(255) NOT NULL,
        metadata_location VARCHAR(1000),
        previous_metadata_location VARCHAR(1000),
        iceberg_type VARCHAR(5),
        PRIMARY KEY (catalog_name, table_namespace, table_name))""",
    """CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
        catalog_name VARCHAR(255) NOT NULL,
        namespace VARCHAR(255) NOT NULL,
        property_key VARCHAR(255),
        property_value VARCHAR(1000),
        PRIMARY KEY (catalog_name, namespace, property_key))""",
)


def parse_catalog_conf(text: str) -> dict[str, str]:
    """Iceberg catalog properties from `name=value,name=value`. A value may contain `=`, but no comma.

    Raises EnvironmentSetupError for a part without `=` or name, and when neither `type` nor `catalog-impl` is given.
    """
    properties = pairs(text, Variable.CATALOG_CONF, "a catalog property")
    if "" in properties:
        raise EnvironmentSetupError(
            "a property has no name", Variable.CATALOG_CONF, "Write its name before the =, as in type=hive."
        )
    if properties.keys().isdisjoint({"type", "catalog-impl"}):
        raise EnvironmentSetupError(
            "the catalog's type is missing",
            Variable.CATALOG_CONF,
            "Add type=hive, type=rest or type=jdbc, or catalog-impl=<class>. (type=hadoop commits by renaming files, "
            "which is safe on HDFS and local disks, and not on object stores.)",
        )
    return properties


def embedded_catalog(home: Path) -> dict[str, str]:
    """Iceberg properties of the SQLite catalog under `home`, an absolute path."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{catalog_file(home)}",
        "jdbc.busy_timeout": str(BUSY_TIMEOUT_MS),
        "jdbc.schema-version": "V1",
        "warehouse": str(home / "warehouse"),
    }


def catalog_file(home: Path) -> Path:
    """The SQLite file of the embedded catalog."""
    return home / "catalog.db"


def configured_catalog(home: Path) -> dict[str, str]:
    """Iceberg properties of the catalog that the environment configures, else of the embedded one under `home`."""
    text = settings().catalog_conf
    return parse_catalog_conf(text) if text else embedded_catalog(home)


def catalog_conf(properties: Mapping[str, str]) -> dict[str, str]:
    """Spark settings that configure the catalog `rewindow` with `properties`; all can be set on a running session.

    Iceberg's table cache is off: it would hide commits of other applications for up to 30 s. Spark's event log shows
    settings that only a session has: `spark_session` gives them to Spark itself too, which then hides what `REDACTED`
    matches.
    """
    return {
        _PREFIX: "org.apache.iceberg.spark.SparkCatalog",
        f"{_PREFIX}.cache-enabled": "false",
        **{
            f"{_PREFIX}.{name}": value
            for name, value in (_limits(properties) | _store_limits(properties) | dict(properties)).items()
        },
    }


def _limits(properties: Mapping[str, str]) -> dict[str, str]:
    """How long the catalog's client waits for an answer: of itself it waits for ever, or for ten minutes (Hive)."""
    seconds = settings().catalog_seconds
    milliseconds = str(seconds * 1000)
    kind = properties.get("type") or properties.get("catalog-impl", "")
    if kind == "rest":
        return {"rest.client.connection-timeout-ms": milliseconds, "rest.client.socket-timeout-ms": milliseconds}
    if kind == "hive":
        return {f"hadoop.{METASTORE_TIMEOUT}": f"{seconds}s"}
    if properties.get("uri", "").startswith("jdbc:postgresql:"):
        return {"jdbc.connectTimeout": str(seconds), "jdbc.socketTimeout": str(seconds)}
    if properties.get("uri", "").startswith(("jdbc:mysql:", "jdbc:mariadb:")):
        return {"jdbc.connectTimeout": milliseconds, "jdbc.socketTimeout": milliseconds}
    return {}


def _store_limits(properties: Mapping[str, str]) -> dict[str, str]:
    """How long Iceberg's `S3FileIO` waits for an answer; of a REST catalog and Glue it is what reads the tables."""
    kind = properties.get("type") or properties.get("catalog-impl", "")
    if "S3FileIO" not in properties.get("io-impl", "S3FileIO" if kind in ("rest", "glue") else ""):
        return {}
    milliseconds = str(settings().store_seconds * 1000)
    return {
        f"http-client.{client}.{limit}-timeout-ms": milliseconds
        for client in ("apache", "urlconnection")
        for limit in ("connection", "socket")
    }


def store_conf() -> dict[str, str]:
    """Spark settings for how long Hadoop's `s3a` waits for an answer, and how often it tries.

    Of itself it tries 40 times, for 200 s each. It takes no less than 15 s. Where the store says that it is busy (503),
    it waits twice as long each time, 20 times: a day. Here it is 8 times, some 25 s.
    """
    limit = f"{settings().store_seconds}s"
    s3a = {"connection.establish.timeout": limit, "connection.timeout": limit}
    tries = {"attempts.maximum": "0", "retry.limit": "2", "retry.throttle.limit": "8"}
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in (s3a | tries).items()}


METASTORE_TIMEOUT = "hive.metastore.client.socket.timeout"
"""Hive's own setting, with its unit."""


def describe_catalog(properties: Mapping[str, str]) -> str:
    """The catalog's type and where it is, for messages, without what may contain a password: see `public_address`."""
    kind = properties.get("type") or properties.get("catalog-impl", "unknown catalog")
    return f"{kind} at {public_address(properties.get('uri') or properties.get('warehouse') or 'no address')}"


def prepare_catalog(home: Path, properties: Mapping[str, str]) -> None:
    """Create the embedded catalog's file and tables if they are missing; do nothing for any other catalog.

    Several applications may do this at the same time. Raises CatalogError when the file cannot be created or written.
    """
    if properties.get("uri") != embedded_catalog(home)["uri"]:
        return
    file = catalog_file(home)
    try:
        with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None)) as connection:
            # Takes the write lock: the file can be written, and one application at a time creates the tables.
            connection.execute("BEGIN IMMEDIATE")
            for statement in _TABLES:
                connection.execute(statement)
            connection.execute("COMMIT")
        (home / "warehouse").mkdir(exist_ok=True)
    except (sqlite3.Error, OSError) as error:
        raise CatalogError(
            f"the catalog cannot be written: {error}",
            str(file),
            "Check the folder's permissions and free space, or set REWINDOW_HOME to another folder.",
        ) from error


def check_catalog(spark: SparkSession) -> None:
    """List the namespaces of the catalog `rewindow`. Raises CatalogError with its address when it does not answer."""
    try:
        spark.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()
    except Exception as error:  # each catalog raises errors of its own
        current = spark.conf.getAll
        properties = {
            key.removeprefix(f"{_PREFIX}."): value for key, value in current.items() if key.startswith(_PREFIX)
        }
        if properties.get("type") == "hadoop" and "NoSuchNamespaceException" in java_reason(error):
            return  # its warehouse is a folder, which the first table makes
        raise CatalogError(
            f"the catalog does not answer: {java_reason(error)}",
            describe_catalog(properties),
            f"Check that it runs and that {Variable.CATALOG_CONF} is right; without {Variable.CATALOG_CONF} "
            "Rewindow keeps its tables in a SQLite catalog under REWINDOW_HOME.",
        ) from error
