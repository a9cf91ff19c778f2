from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import SourceError
from spark_jobs.runs.planning.plan import make_plan, open_planned, read_planned
from spark_jobs.sources import canonical, good, inspect_history, open_history, partition_columns
from spark_jobs.spark.gateway import jvm, query_execution
from tests.processes import run_python
from tests.sources.conftest import BASE, MakePipeline, position

pytestmark = pytest.mark.usefixtures("hive_metastore")

_NUMBERS = itertools.count()


@pytest.fixture
def database(spark, tmp_path: Path) -> str:
    """An empty database of the real metastore."""
    name = f"sources_{next(_NUMBERS)}"
    spark.sql(f"CREATE DATABASE {name} LOCATION '{tmp_path / 'warehouse'}'")
    return name


@pytest.fixture
def table(spark, database: str) -> str:
    """A Hive table, partitioned by day, with one record on each of two days."""
    name = f"{database}.flights"
    spark.sql(
        f"CREATE TABLE {name} (`partition` INT, `offset` BIGINT, arrival TIMESTAMP, carrier STRING, t BIGINT) "
        "PARTITIONED BY (day STRING) STORED AS PARQUET"
    )
    for day in (1, 2):
        insert(spark, name, day)
    return name


def insert(spark, table: str, day: int) -> None:
    spark.sql(
        f"INSERT INTO {table} PARTITION (day = '2013-01-0{day}') "
        f"VALUES (0, {day}, timestamp_millis({BASE + day}), 'AA', {BASE + day})"
    )


def of_table(pipeline: MakePipeline, table: str, **sections):
    history = {"kind": "hive", "table": table, "position": position(), **sections.pop("history", {})}
    made = pipeline(
        value={"format": "columns"},
        keys={"carrier": "carrier"},
        event_time={"expression": "t", "unit": "ms"},
        **sections,
    )
    content = made.model_dump(by_alias=True)
    return type(made).model_validate({**content, "history": history})


def offsets(spark, definition) -> list[int]:
    frame = good(canonical(open_history(spark, definition), definition))
    return sorted(row.rw_offset for row in frame.collect())


def test_a_hive_table_is_a_history_and_its_partition_columns_are_fields(
    spark, table: str, pipeline: MakePipeline
) -> None:
    definition = of_table(pipeline, table, filter={"before_watermark": "day >= '2013-01-02'"})
    opened = open_history(spark, definition)
    assert (opened.pinned, opened.description) == ((), f"Hive table {table}")
    assert partition_columns(spark, definition) == ("day",)
    assert offsets(spark, definition) == [2]
    assert inspect_history(spark, definition, opened).records == 1
    plan = query_execution(canonical(opened, definition)).executedPlan().toString()
    assert "PartitionFilters: [isnotnull(day" in plan


@pytest.mark.long
def test_partitions_are_pruned_also_where_values_are_decoded(spark, database: str, pipeline: MakePipeline) -> None:
    name = f"{database}.raw"
    spark.sql(f"CREATE TABLE {name} (`partition` INT, `offset` BIGINT, arrival TIMESTAMP, value STRING) "
              "PARTITIONED BY (day INT) STORED AS ORC")  # fmt: skip
    for day in (1, 2):
        good_row = f"(0, {2 * day}, timestamp_millis({BASE}), '{{\"t\": {BASE}}}')"
        values = f"{good_row}, (0, {2 * day + 1}, timestamp_millis({BASE}), '{{')"
        spark.sql(f"INSERT INTO {name} PARTITION (day = {day}) VALUES {values}")
    definition = of_table(pipeline, name, filter={"before_watermark": "day = 2 AND t > 0"}).model_copy(
        update={
            "value": pipeline(value={"format": "json", "column": "value", "schema": "t BIGINT"}).value,
            "keys": {"day": "day"},
        }
    )
    frame = canonical(open_history(spark, definition), definition)
    assert sorted((row.rw_offset, row.rw_reason) for row in frame.collect()) == [(4, None), (5, "not valid JSON")]
    assert "PartitionFilters: [isnotnull(day" in query_execution(frame).executedPlan().toString()


@pytest.mark.long
def test_partitions_added_later_by_another_application_are_seen(
    spark, table: str, pipeline: MakePipeline, hive_metastore, tmp_path: Path
) -> None:
    definition = of_table(pipeline, table)
    assert offsets(spark, definition) == [1, 2]
    other = run_python(
        """
        import sys
        from pathlib import Path
        from spark_jobs.spark.session import spark_session
        uri, home, table, base = sys.argv[1:]
        spark = spark_session("other", home=Path(home), metastore=uri, master="local[1]")
        spark.sql(f"INSERT INTO {table} PARTITION (day = '2013-01-03') "
                  f"VALUES (0, 3, timestamp_millis({base}), 'AA', {base})")
        spark.sql(f"INSERT INTO {table} PARTITION (day = '2013-01-02') "
                  f"VALUES (0, 4, timestamp_millis({base}), 'AA', {base})")
        spark.stop()
        """,
        hive_metastore.uri, str(tmp_path / "other"), table, str(BASE + 9),
    )  # fmt: skip
    assert other.returncode == 0, other.stderr
    assert offsets(spark, definition) == [1, 2, 3, 4]


def test_a_view_is_a_history_too(spark, table: str, pipeline: MakePipeline) -> None:
    view = table + "_view"
    spark.sql(f"CREATE VIEW {view} AS SELECT *, upper(carrier) AS airline FROM {table} WHERE day > '2013-01-01'")
    definition = of_table(pipeline, view).model_copy(update={"keys": {"airline": "airline"}})
    assert partition_columns(spark, definition) == ()
    assert offsets(spark, definition) == [2]
    insert(spark, table, 3)
    assert offsets(spark, definition) == [2, 3]


def refusal(spark, definition) -> str:
    with pytest.raises(SourceError) as refused:
        open_history(spark, definition)
    assert refused.value.exit_code == 4
    return str(refused.value)


def test_a_missing_table_is_refused_with_the_one_that_was_meant(
    spark, table: str, database: str, pipeline: MakePipeline, hive_metastore
) -> None:
    assert refusal(spark, of_table(pipeline, f"{database}.flihgts")) == (
        f"there is no table `{database}.flihgts` ({hive_metastore.uri}). Did you mean `{database}.flights`?"
    )
    assert refusal(spark, of_table(pipeline, f"{database}.zzz")) == (
        f"there is no table `{database}.zzz` ({hive_metastore.uri}). Correct history.table; the database has flights."
    )


def test_a_missing_table_is_refused_with_the_line_that_names_it(spark, table: str, database: str) -> None:
    text = f"""
        name: flights
        history:
          kind: hive
          table: {database}.zzz
          position: {{partition: partition, offset: offset, arrival: arrival}}
        event_time: {{expression: t, unit: ms}}
        watermark: {{generator: bounded_out_of_orderness, bound: 1 min}}
        window: {{type: tumbling, size: 1 h}}
        aggregates: {{n: count(*)}}
    """
    assert "/flights.yaml:5)" in refusal(spark, load_pipeline("/flights.yaml", text=text))


def test_a_table_that_spark_cannot_read_does_not_hide_the_one_that_was_meant(
    spark, table: str, database: str, pipeline: MakePipeline, hive_metastore
) -> None:
    make_unreadable(spark, hive_metastore.uri, database, "unions")
    spark.range(1).createOrReplaceTempView("flihgt")
    try:
        assert refusal(spark, of_table(pipeline, f"{database}.flihgts")) == (
            f"there is no table `{database}.flihgts` ({hive_metastore.uri}). Did you mean `{database}.flights`?"
        )
    finally:
        spark.catalog.dropTempView("flihgt")
    said = refusal(spark, of_table(pipeline, f"{database}.unions"))
    assert said.startswith('the table cannot be read: Cannot recognize hive type string: "UNIONTYPE<INT,STRING>"'), said


def make_unreadable(spark, metastore: str, database: str, name: str) -> None:
    """A table as Hive itself makes them, with a type that Spark does not know."""
    hive = jvm(spark).org.apache.hadoop.hive
    conf = hive.conf.HiveConf()
    conf.set("hive.metastore.uris", metastore)
    client = hive.metastore.HiveMetaStoreClient(conf)
    try:
        table = client.getTable(database, "flights").deepCopy()
        table.setTableName(name)
        for key in list(table.getParameters()):
            if key.startswith("spark."):
                table.getParameters().remove(key)
        choice = hive.metastore.api.FieldSchema("choice", "uniontype<int,string>", None)
        table.getSd().setCols(jvm(spark).java.util.ArrayList([choice]))
        table.getSd().unsetLocation()
        client.createTable(table)
    finally:
        client.close()


def test_a_missing_database_is_refused(spark, pipeline: MakePipeline, hive_metastore) -> None:
    assert refusal(spark, of_table(pipeline, "nowhere.flights")) == (
        f"there is no table `nowhere.flights` ({hive_metastore.uri}). "
        "Correct history.table; there is no database `nowhere` either."
    )


def test_a_missing_column_is_refused_with_the_known_ones(spark, table: str, pipeline: MakePipeline) -> None:
    definition = of_table(pipeline, table, history={"position": position(offset="ofset")})
    assert refusal(spark, definition) == (
        "there is no column `ofset` (p, history.position.offset). Did you mean `offset`? "
        "known columns: partition, offset, arrival, carrier, t, day"
    )


def test_another_metastore_than_the_sessions_is_refused(
    spark, table: str, pipeline: MakePipeline, hive_metastore
) -> None:
    assert open_history(spark, of_table(pipeline, table, history={"metastore": hive_metastore.uri})).frame.columns
    said = refusal(spark, of_table(pipeline, table, history={"metastore": "thrift://elsewhere:9083"}))
    assert said.startswith(f"this Spark session uses the metastore {hive_metastore.uri}, not thrift://elsewhere:9083")


def test_files_that_vanish_below_a_table_are_reported(
    spark, table: str, pipeline: MakePipeline, tmp_path: Path
) -> None:
    definition = of_table(pipeline, table)
    opened = open_history(spark, definition)
    for file in (tmp_path / "warehouse").rglob("part-*"):
        file.write_bytes(b"PAR1")
    with pytest.raises(SourceError) as refused:
        inspect_history(spark, definition, opened)
    assert str(tmp_path) in refused.value.where and "\n" not in str(refused.value)


@pytest.mark.long
def test_a_metastore_that_went_away_is_unopen_history(tmp_path: Path) -> None:
    done = run_python(
        """
        import sys
        from pathlib import Path
        from spark_jobs.errors import SourceError
        from tests.services.hive_metastore import HiveMetastore
        from spark_jobs.spark.session import spark_session
        from spark_jobs.sources import open_history
        from tests.sources.test_hive import of_table
        from tests.sources.conftest import make_pipeline
        folder = Path(sys.argv[1])
        with HiveMetastore(folder / "metastore") as service:
            spark = spark_session("t", home=folder / "home", metastore=service.uri, master="local[1]")
            spark.sql("SHOW DATABASES").collect()
        try:
            open_history(spark, of_table(make_pipeline, "default.flights"))
        except SourceError as error:
            print(error)
        """,
        str(tmp_path),
    )
    assert done.stdout.startswith("no Hive metastore answers: Connection refused (thrift://127.0.0.1:"), done.stderr


@pytest.mark.long
def test_a_plan_stands_only_while_the_files_behind_its_table_do(spark, table: str, pipeline: MakePipeline) -> None:
    """A file that came later is not read; a partition that is overwritten, or whose folder is gone, is refused."""
    definition = of_table(pipeline, table)
    plan = make_plan(spark, definition)
    assert plan.behind is not None and len(plan.behind) == 2
    insert(spark, table, 2)
    assert read_planned(spark, definition, plan).count() == 2
    plan = make_plan(spark, of_table(pipeline, table, filter={"before_watermark": "day < '2013-01-02'"}))
    spark.sql(
        f"INSERT OVERWRITE {table} PARTITION (day = '2013-01-01') VALUES (0, 1, timestamp_millis({BASE}), 'B', {BASE})"
    )
    with pytest.raises(SourceError, match="a file of the plan is gone"):
        open_planned(spark, definition, plan)
    plan = make_plan(spark, of_table(pipeline, table, filter={"before_watermark": "day < '2013-01-02'"}))
    assert plan.behind is not None
    shutil.rmtree(Path(plan.behind[-1].path.removeprefix("file:")).parent)
    with pytest.raises(SourceError, match="a partition whose folder is gone"):
        open_planned(spark, definition, plan)
