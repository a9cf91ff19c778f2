"""Queries of people: only what reads is carried out, and times are in UTC."""

from __future__ import annotations

from datetime import datetime

import pytest
from pyspark.sql import types as t

from spark_jobs.errors import DefinitionError
from spark_jobs.operations.query import in_utc, query, refuse_writes

WRITES = (
    "DROP TABLE rewindow.demo.x",
    "DELETE FROM rewindow.demo.x",
    "UPDATE rewindow.demo.x SET a = 1",
    "TRUNCATE TABLE rewindow.demo.x",
    "CREATE TABLE rewindow.demo.y AS SELECT 1",
    "CREATE TEMPORARY VIEW v AS SELECT 1",
    "ALTER TABLE rewindow.demo.x CREATE BRANCH b",
    "INSERT INTO rewindow.demo.x SELECT 1",
    "FROM rewindow.demo.x INSERT INTO a SELECT * INSERT INTO b SELECT *",
    "WITH x AS (SELECT 1) INSERT INTO a SELECT * FROM x",
    "INSERT OVERWRITE DIRECTORY '/tmp/x' USING parquet SELECT 1",
    "MERGE INTO a USING b ON a.x = b.x WHEN MATCHED THEN DELETE",
    "SELECT TRANSFORM(a) USING 'rm' FROM VALUES (1) AS v(a)",
    "EXECUTE IMMEDIATE 'DROP TABLE rewindow.demo.x'",
    "CALL rewindow.system.expire_snapshots('demo.x')",
    "SET spark.sql.ansi.enabled=false",
    "USE rewindow.demo",
    "CACHE TABLE rewindow.demo.x",
    "ADD JAR '/x.jar'",
)
READS = (
    "SELECT 1 UNION ALL SELECT 2",
    "WITH x AS (SELECT 1 AS a) SELECT * FROM x JOIN x AS y USING (a) ORDER BY a LIMIT 1",
    "VALUES (1), (2)",
    "FROM VALUES (1) AS v(a) |> WHERE a > 0",
    "SHOW TABLES IN rewindow.demo",
    "DESCRIBE rewindow.demo.x",
    "EXPLAIN SELECT 1",
)


def test_what_does_more_than_read_is_refused_before_it_is_carried_out(spark) -> None:
    for statement in WRITES:
        with pytest.raises(DefinitionError, match="only reads"):
            refuse_writes(spark, statement)
    for statement in READS:
        refuse_writes(spark, statement)


def test_a_limit_says_that_there_are_more_and_a_mistake_is_short(spark) -> None:
    found = query(spark, "SELECT id, CAST(NULL AS STRING) AS n FROM range(5) ORDER BY id", 2)
    assert (found.columns, found.rows, found.has_more) == (("id", "n"), ((0, None), (1, None)), True)
    for mistake in ("SELEC 1", "SELECT x FROM range(1)", "SELECT 1 DIV 0", "BEGIN SELECT 1; END"):
        with pytest.raises(DefinitionError) as refused:
            query(spark, mistake, 1)
        assert "\n" not in refused.value.what


def test_instants_are_in_utc_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        local, utc = datetime(2013, 2, 1, 1), datetime(2013, 2, 1, 0)
        kind = t.StructType().add("a", t.ArrayType(t.TimestampType())).add("n", t.TimestampNTZType())
        assert in_utc(t.Row(a=[local, None], n=local), kind) == {"a": [utc, None], "n": local}
    finally:
        monkeypatch.undo()
        time.tzset()
