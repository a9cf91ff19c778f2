"""Runs on the catalogs that people use: JDBC on a real PostgreSQL server, and a real Hive metastore."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.demo.ports import free_port
from spark_jobs.spark.session import spark_session
from tests.lakehouse.catalog_runs import check_catalog_runs
from tests.processes import ROOT
from tests.sampling import IN_FULL
from tests.services.hive_metastore import HiveMetastore

DRIVER = "org.postgresql:postgresql:42.7.7"


def binaries() -> Path | None:
    """The folder with PostgreSQL's `initdb` and `pg_ctl`; Debian has it off the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """The JDBC address of a PostgreSQL server of the test's own; it listens on the loopback interface."""
    folder = binaries()
    if folder is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    # PostgreSQL refuses to run as root; Debian's package makes a user for it.
    user = "postgres" if os.getuid() == 0 else None
    place = Path(tempfile.mkdtemp(prefix="rewindow-postgres-"))
    try:
        if user:
            shutil.chown(place, "postgres", "postgres")
    except LookupError:
        shutil.rmtree(place)
        pytest.skip("PostgreSQL cannot run as root, and there is no user `postgres`")

    def call(command: str, *arguments: str) -> None:
        line = [str(folder / command), *arguments]
        # The server inherits the output: a pipe would stay open.
        with (place / "output").open("w") as output:
            done = subprocess.run(line, cwd=place, stdout=output, stderr=output, user=user, group=user, check=False)
        assert done.returncode == 0, (place / "output").read_text()

    port, data = free_port(), str(place / "data")
    call("initdb", "-D", data, "-U", "rewindow", "--auth=trust", "--no-sync")
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
    call("pg_ctl", "-D", data, "-o", options, "-l", str(place / "log"), "-w", "start")
    yield f"jdbc:postgresql://127.0.0.1:{port}/postgres"
    call("pg_ctl", "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(place, ignore_errors=True)


@pytest.mark.long
def test_runs_on_a_jdbc_catalog_in_postgresql(postgres: str, tmp_path: Path) -> None:
    """In a process of its own: the driver's jar must be there when Java starts."""
    conf = f"type=jdbc,uri={postgres},jdbc.user=rewindow,jdbc.schema-version=V1,warehouse={tmp_path}/warehouse"
    done = subprocess.run(
        [sys.executable, "-m", "tests.lakehouse.catalog_runs", str(tmp_path)],
        cwd=ROOT,
        env={
            **os.environ,
            "REWINDOW_CATALOG_CONF": conf,
            "REWINDOW_PACKAGES": DRIVER,
            "REWINDOW_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.skipif(not IN_FULL, reason="in make test-long; all other tests have this catalog")
def test_runs_on_the_catalog_in_sqlite(spark: SparkSession, tmp_path: Path) -> None:
    check_catalog_runs(spark, tmp_path)


@pytest.mark.long
def test_runs_on_a_hive_metastore(spark: SparkSession, hive_metastore: HiveMetastore, tmp_path: Path) -> None:
    """In a session of its own: that of the other tests keeps its catalog."""
    catalog = {"type": "hive", "uri": hive_metastore.uri, "warehouse": str(tmp_path / "warehouse")}
    check_catalog_runs(spark_session("hive catalog", catalog=catalog), tmp_path)
