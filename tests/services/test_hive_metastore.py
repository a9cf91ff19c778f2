"""The Hive metastore service: real tables through it, from several processes, and no process left behind."""

from __future__ import annotations

import datetime
import json
import signal
import socket
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import EnvironmentSetupError
from tests.processes import run_python, start_python
from tests.services.hive_metastore import HiveMetastore

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def departures(spark: SparkSession) -> str:
    """A table partitioned by day, made through the session of the tests: 2 rows on the 1st, 1 on the 2nd."""
    spark.sql("CREATE DATABASE metastore_test")
    spark.sql(
        "CREATE TABLE metastore_test.departures (flight INT, carrier STRING) "
        "PARTITIONED BY (day DATE) STORED AS PARQUET"
    )
    spark.sql(
        "INSERT INTO metastore_test.departures VALUES "
        "(1, 'UA', DATE'2013-01-01'), (2, 'AA', DATE'2013-01-01'), (3, 'UA', DATE'2013-01-02')"
    )
    return "metastore_test.departures"


def test_a_table_made_in_one_process_is_read_in_another(
    departures: str, hive_metastore: HiveMetastore, tmp_path: Path
) -> None:
    code = """
        import json, sys
        from spark_jobs.spark.session import spark_session
        spark = spark_session("reader", metastore=sys.argv[1], master="local[1]")
        rows = spark.table(sys.argv[2]).orderBy("flight").collect()
        print(json.dumps([(row.flight, row.carrier, row.day.isoformat()) for row in rows]))
    """
    ended = run_python(code, hive_metastore.uri, departures, environ={"REWINDOW_HOME": str(tmp_path)})
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == [[1, "UA", "2013-01-01"], [2, "AA", "2013-01-01"], [3, "UA", "2013-01-02"]]


def test_a_filter_on_the_partition_column_reads_only_its_partition(spark: SparkSession, departures: str) -> None:
    one_day = spark.table(departures).where("day = DATE'2013-01-02'")
    assert [(row.flight, row.day) for row in one_day.collect()] == [(3, datetime.date(2013, 1, 2))]
    assert all("day=2013-01-02" in file for file in one_day.inputFiles())


def test_a_partition_that_is_added_later_is_seen(spark: SparkSession, departures: str, tmp_path: Path) -> None:
    spark.range(5).selectExpr("CAST(id AS INT) AS flight", "'B6' AS carrier").write.parquet(str(tmp_path / "late"))
    spark.sql(f"ALTER TABLE {departures} ADD PARTITION (day = DATE'2013-01-03') LOCATION '{tmp_path / 'late'}'")
    assert spark.table(departures).where("day = DATE'2013-01-03'").count() == 5
    spark.sql(f"ALTER TABLE {departures} DROP PARTITION (day = DATE'2013-01-03')")


def test_it_listens_on_the_loopback_interface_only(hive_metastore: HiveMetastore) -> None:
    socket.create_connection(("127.0.0.1", hive_metastore.port), timeout=5).close()
    # Another address of the loopback net reaches a socket that is bound to all interfaces, and only such a one.
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", hive_metastore.port), timeout=5).close()


def test_what_it_holds_is_served_again_after_a_stop(tmp_path: Path) -> None:
    code = """
        import sys
        from pathlib import Path
        from tests.services.hive_metastore import HiveMetastore
        from spark_jobs.spark.session import spark_session
        folder = Path(sys.argv[1])
        with HiveMetastore(folder) as first:
            spark = spark_session("client", metastore=first.uri, master="local[1]")
            spark.sql("CREATE DATABASE kept")
        assert first.pid is None
        with HiveMetastore(folder, port=first.port):
            print([row.namespace for row in spark.sql("SHOW DATABASES").collect()])
    """
    ended = run_python(code, str(tmp_path / "metastore"), environ={"REWINDOW_HOME": str(tmp_path / "home")})
    assert ended.stdout == "['default', 'kept']\n", ended.stderr


def test_two_at_once_in_one_directory_are_refused(hive_metastore: HiveMetastore) -> None:
    with pytest.raises(EnvironmentSetupError, match="Another instance of Derby") as refused:
        HiveMetastore(hive_metastore.directory).start()
    assert "another metastore" in refused.value.hint


def test_a_port_that_is_taken_is_refused(hive_metastore: HiveMetastore, tmp_path: Path) -> None:
    with pytest.raises(EnvironmentSetupError, match="Address already in use"):
        HiveMetastore(tmp_path, port=hive_metastore.port).start()


def test_a_jvm_that_cannot_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentSetupError, match="its JVM ended at once"):
        HiveMetastore(tmp_path, heap="nonsense").start()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_its_owner_however_that_ends(tmp_path: Path, how: signal.Signals) -> None:
    owner = start_python(
        """
        import signal, sys
        from contextlib import suppress
        from pathlib import Path
        from tests.services.hive_metastore import HiveMetastore
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        with suppress(KeyboardInterrupt), HiveMetastore(Path(sys.argv[1])) as service:
            print(service.uri, flush=True)
            signal.pause()
        """,
        str(tmp_path),
    )
    line = owner.stdout.readline()
    assert "thrift://127.0.0.1:" in line, owner.stderr.read()
    port = int(line.rpartition(":")[2])
    socket.create_connection(("127.0.0.1", port), timeout=5).close()

    owner.send_signal(how)
    _, errors = owner.communicate(timeout=30)
    assert errors == ""
    deadline = time.monotonic() + 30
    while _answers(port):
        assert time.monotonic() < deadline, "the metastore outlived its owner"
        time.sleep(0.1)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
