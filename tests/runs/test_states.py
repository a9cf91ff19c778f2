"""The state that a reconciliation goes on from: which runs take its place, and which leave it alone."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import delete_states
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_nights import log_of, pipeline
from tests.runs.small_runs import MINUTE, write

CASE = "tumbling, per event"


def run(spark: SparkSession, defined: Pipeline, start: int | None = None, end: int | None = None) -> RunResult:
    return execute(spark, defined, make_plan(spark, defined, start=start, end=end), NoProgress())


def states(spark: SparkSession, defined: Pipeline) -> set[str]:
    table = spark.table(Tables.of(defined).timeline_state)
    return {row[0] for row in table.where(table.pipeline == defined.name).select("run_id").collect()}


def with_sections(defined: Pipeline, text: str) -> Pipeline:
    path = Path(defined.file)
    path.write_text(path.read_text() + text)
    return load_pipeline(path)


def test_a_run_of_a_part_takes_no_whole_runs_state(spark: SparkSession, tmp_path: Path) -> None:
    defined = with_sections(pipeline(tmp_path, "state_of_parts", CASE), "limits: {records: 100}\n")
    records = log_of(31, count=110)
    write(tmp_path / "data", records[:90], "part-0.json")
    whole = run(spark, defined)
    start = records[40]["t"]
    parts = [run(spark, defined, start=start, end=start + 2 * MINUTE) for _ in range(2)]
    assert states(spark, defined) == {whole.run_id, parts[1].run_id}, "the second part stands for the first"
    write(tmp_path / "data", records[90:], "part-1.json")
    night = reconcile(spark, defined, NoProgress())  # a full run would be beyond the limits
    assert night.continued_from == whole.run_id
    assert {whole.run_id, parts[1].run_id} <= states(spark, defined), "they are of other end offsets"


def test_pipelines_of_one_name_with_other_tables_leave_each_other_their_states(
    spark: SparkSession, tmp_path: Path
) -> None:
    one = pipeline(tmp_path, "state_of_tables", CASE)
    text = Path(one.file).read_text()
    (tmp_path / "other.yaml").write_text(text.replace("output: {", "output: {table: state_of_another, "))
    other = load_pipeline(tmp_path / "other.yaml")
    records = log_of(32, count=110)
    write(tmp_path / "data", records[:90], "part-0.json")
    runs = [run(spark, defined) for defined in (one, other)]
    assert states(spark, one) == {done.run_id for done in runs}
    for defined in (one, other):
        delete_states(spark, Tables.of(defined), defined, None)
    write(tmp_path / "data", records[90:], "part-1.json")
    nights = [reconcile(spark, defined, NoProgress()) for defined in (one, other)]
    assert [night.continued_from for night in nights] == [done.run_id for done in runs]
