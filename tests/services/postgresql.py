"""A PostgreSQL server of the tests' own, as the catalog of tables."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_jobs.demo.ports import free_port

DRIVER = "org.postgresql:postgresql:42.7.7"


def binaries() -> Path | None:
    """The folder with PostgreSQL's `initdb` and `pg_ctl`; Debian has it off the path."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@contextmanager
def postgresql() -> Iterator[tuple[str, int]]:
    """Host and port of a PostgreSQL server of the test's own; it listens on the loopback interface."""
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
    try:
        yield "127.0.0.1", port
    finally:
        call("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(place, ignore_errors=True)


def catalog_of(host: str, port: int, warehouse: str) -> dict[str, str]:
    """The properties of a catalog in the server."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{host}:{port}/postgres",
        "jdbc.user": "rewindow",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
    }
