"""A run over a Hive table behind a real metastore: late partitions, pruning, and the same tables as from files."""

from __future__ import annotations

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.planning.plan import make_plan, read_planned
from spark_jobs.spark.gateway import query_execution
from tests.runs.small_runs import contents, definition_text, pipeline, record, run, write

pytestmark = pytest.mark.usefixtures("hive_metastore")

COLUMNS = "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"


def hive_pipeline(tmp_path, name: str, table: str, condition: str | None = None):
    text = definition_text(name, "unused")
    start, end = text.index("history:"), text.index("value:")
    history = f"history:\n  kind: hive\n  table: {table}\n"
    history += "  position: {partition: p, offset: o, arrival: a, arrival_unit: ms}\n"
    text = text[:start] + history + text[end:]
    text = "\n".join(line for line in text.splitlines() if not line.startswith("value:"))
    if condition:
        text += f'\nfilter: {{before_watermark: "{condition}"}}'
    path = tmp_path / f"{name}.yaml"
    path.write_text(text + "\n")
    return load_pipeline(path)


@pytest.mark.long
def test_a_partitioned_hive_table_gives_what_files_give(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(600)])
    files = pipeline(tmp_path, "as_files")
    run(spark, files)

    spark.sql("CREATE DATABASE IF NOT EXISTS run_hive")
    spark.sql(f"CREATE TABLE run_hive.log ({COLUMNS}, day INT) USING parquet PARTITIONED BY (day)")
    days = [record(i) | {"day": i // 200} for i in range(600)]
    rows = spark.createDataFrame(days, f"{COLUMNS}, day INT")
    rows.where("day < 2").write.insertInto("run_hive.log")
    hive = hive_pipeline(tmp_path, "as_hive", "run_hive.log")
    assert make_plan(spark, hive).records == 400
    rows.where("day = 2").write.insertInto("run_hive.log")  # a partition that comes later
    plan = make_plan(spark, hive)
    assert (plan.records, plan.partition_columns) == (600, ("day",))
    run(spark, hive)
    assert contents(spark, hive) == contents(spark, files)

    pruned = hive_pipeline(tmp_path, "pruned", "run_hive.log", "day >= 1")
    plan = make_plan(spark, pruned)
    assert plan.records == 400
    physical = query_execution(read_planned(spark, pruned, plan)).executedPlan().toString()
    assert "PartitionFilters: [isnotnull(day" in physical

    spark.sql("CREATE OR REPLACE VIEW run_hive.log_view AS SELECT * FROM run_hive.log WHERE day < 2")
    assert make_plan(spark, hive_pipeline(tmp_path, "as_view", "run_hive.log_view")).records == 400
    assert Tables.of(hive).windows == "rewindow.run_tests.as_hive"
