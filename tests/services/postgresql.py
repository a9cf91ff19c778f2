"""A PostgreSQL server of the tests' own, as the catalog of tables; its clients come over TLS."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

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
    _certify(place)
    try:
        if user:
            for path in (place, place / "server.crt", place / "server.key"):
                shutil.chown(path, user, user)
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
    tls = f"-c ssl=on -c ssl_cert_file={place}/server.crt -c ssl_key_file={place}/server.key"
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off {tls}"
    call("pg_ctl", "-D", data, "-o", options, "-l", str(place / "log"), "-w", "start")
    try:
        yield "127.0.0.1", port
    finally:
        call("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(place, ignore_errors=True)


def _certify(place: Path) -> None:
    """Put a certificate that nobody has signed, `server.crt`, and its key into the folder."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (place / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    in_pem = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (place / "server.key").write_bytes(key.private_bytes(*in_pem))
    (place / "server.key").chmod(0o600)


def catalog_of(host: str, port: int, warehouse: str) -> dict[str, str]:
    """The properties of a catalog in the server."""
    return {
        "type": "jdbc",
        "uri": f"jdbc:postgresql://{host}:{port}/postgres",
        "jdbc.user": "rewindow",
        "jdbc.sslmode": "require",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
    }
