"""Real events: what the replay publishes for them is what real Flink emitted, window by window and pane by pane."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from spark_jobs.definition import load_pipeline
from spark_jobs.replay.spec import Panes
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.replay.flights import SAMPLE, definition
from tests.sampling import first_of

RUNS = ["periodic", "sessions", "hourly", "hourly_refining", "sliding"]


@pytest.mark.long
@pytest.mark.parametrize("run", first_of(RUNS))
def test_published_panes_and_late_records_are_those_of_flink(run, spark, tmp_path) -> None:
    path = tmp_path / f"{run}.yaml"
    path.write_text(definition(run))
    pipeline = load_pipeline(path)

    result = execute(spark, pipeline, make_plan(spark, pipeline), LogProgress(), panes=Panes.ALL)

    columns = ["window_start", "window_end", "pane"]
    emitted = spark.read.parquet(f"{SAMPLE}/emitted_{run}.parquet")
    wanted = emitted.select(F.col("key"), *columns, "count", "sum", "min", "max")
    published = spark.table(result.tables.windows).where("pane IS NOT NULL")
    ours = published.select("carrier", *columns, "flights", "total", "shortest", "longest")
    assert ours.count() == wanted.count()
    assert ours.exceptAll(wanted).isEmpty()

    wanted_late = spark.read.parquet(f"{SAMPLE}/late_{run}.parquet").select("partition", "offset")
    ours_late = spark.table(result.tables.late).where("side_output").select("partition", "offset")
    assert sorted(map(tuple, ours_late.collect())) == sorted(map(tuple, wanted_late.collect()))

    # The identity that links the two tables: every dropped pair is a missed window of a record in the late table.
    missed = spark.table(result.tables.late).agg(F.sum("windows_missed")).collect()[0][0] or 0
    assert result.counts.pairs_dropped == missed
