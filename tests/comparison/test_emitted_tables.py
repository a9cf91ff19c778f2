"""Emitted rows in tables: Hive behind a real metastore, and Iceberg."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from pyspark.sql.types import StringType

from spark_jobs.comparison.emitted import EmittedRows
from spark_jobs.definition import Pipeline
from spark_jobs.errors import SourceError
from spark_jobs.eventtime.ranges import TimeRange
from tests.processes import run_python

pytestmark = pytest.mark.usefixtures("hive_metastore")

HOUR = 3_600_000
NOON = 1_357_041_600_000  # 2013-01-01T12:00:00Z
ALL = TimeRange(0, 2 * NOON)
_NUMBERS = itertools.count()


def of_table(table: str, **live: Any) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "p",
            "history": {"kind": "files", "path": "history", "format": "parquet"},
            "keys": {"carrier": "key"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "watermark": {"generator": "ascending"},
            "window": {"type": "tumbling", "size": "1 h"},
            "aggregates": {"n": "count(*)", "total": "sum(v)"},
            "live": {"source": {"kind": "table", "table": table}, **live},
        }
    )


def values(spark, defined: Pipeline) -> list[tuple]:
    found = EmittedRows(spark, defined, {"carrier": StringType()}).windows(ALL)
    columns = ("carrier", "window_start", "window_end", *(f"{name}__emitted" for name in found.values))
    return sorted(map(tuple, found.rows.select(*columns).collect()))


@pytest.fixture
def hive(spark, tmp_path) -> str:
    """A Hive table of results, partitioned by day, as a sink writes them: ORC, the window's start as a timestamp."""
    database = f"results_{next(_NUMBERS)}"
    spark.sql(f"CREATE DATABASE {database} LOCATION '{tmp_path / 'warehouse'}'")
    table = f"{database}.hourly"
    spark.sql(
        f"CREATE TABLE {table} (carrier STRING, window_start TIMESTAMP, n BIGINT, total DECIMAL(10, 2)) "
        "PARTITIONED BY (day STRING) STORED AS ORC"
    )
    spark.sql(f"INSERT INTO {table} PARTITION (day='1') VALUES ('AA', timestamp_millis({NOON}), 3, 1.50)")
    return table


@pytest.mark.long
def test_a_hive_table_with_the_definitions_own_names_needs_no_mapping(spark, hive, hive_metastore, tmp_path) -> None:
    defined = of_table(hive, window={"start": "window_start"})
    first = ("AA", NOON, NOON + HOUR, 3)
    assert [row[:4] for row in values(spark, defined)] == [first]
    other = run_python(
        """
        import sys
        from pathlib import Path
        from spark_jobs.spark.session import spark_session
        uri, home, table, noon = sys.argv[1:]
        spark = spark_session("sink", home=Path(home), metastore=uri, master="local[1]")
        row = f"('BB', timestamp_millis({noon}), 1, 2.25)"
        spark.sql(f"INSERT INTO {table} PARTITION (day = '2') VALUES {row}")
        spark.stop()
        """,
        hive_metastore.uri, str(tmp_path / "sink"), hive, str(NOON),
    )  # fmt: skip
    assert other.returncode == 0, other.stderr
    assert [row[:4] for row in values(spark, defined)] == [first, ("BB", NOON, NOON + HOUR, 1)]
    view = hive + "_only_b"
    spark.sql(f"CREATE VIEW {view} AS SELECT * FROM {hive} WHERE carrier = 'BB'")
    assert [row[0] for row in values(spark, of_table(view, window={"start": "window_start"}))] == ["BB"]


def test_an_iceberg_table_is_named_with_its_catalog(spark) -> None:
    table = f"rewindow.live_{next(_NUMBERS)}.hourly"
    spark.sql(f"CREATE NAMESPACE {table.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {table} (w STRUCT<s: BIGINT, e: BIGINT>, k STRING, cnt BIGINT, seq BIGINT) USING iceberg")
    spark.sql(f"INSERT INTO {table} VALUES (named_struct('s', {NOON}, 'e', {NOON + HOUR}), 'AA', 3, 1)")
    mapped = {
        "keys": {"carrier": "k"}, "window": {"start": "w.s", "end": "w.e", "unit": "ms"}, "values": {"n": "cnt"},
        "mode": "upsert", "order": "seq",
    }  # fmt: skip
    defined = of_table(table, **mapped)
    assert values(spark, defined) == [("AA", NOON, NOON + HOUR, 3)]
    spark.sql(f"INSERT INTO {table} VALUES (named_struct('s', {NOON}, 'e', {NOON + HOUR}), 'AA', 5, 2)")
    assert values(spark, defined) == [("AA", NOON, NOON + HOUR, 5)]
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH audited")
    spark.sql(f"INSERT INTO {table} VALUES (named_struct('s', {NOON}, 'e', {NOON + HOUR}), 'AA', 9, 3)")
    assert values(spark, of_table(f"{table}.branch_audited", **mapped)) == [("AA", NOON, NOON + HOUR, 5)]


@pytest.mark.parametrize("table", ["nowhere.hourly", "rewindow.nowhere.hourly"])
def test_a_table_that_is_not_there_is_refused_with_the_field(spark, table) -> None:
    with pytest.raises(SourceError) as refused:
        values(spark, of_table(table))
    said = str(refused.value)
    assert "nowhere" in said and "hourly" in said and "Correct live.source." in said and "\n" not in said
