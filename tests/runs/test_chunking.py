"""Chunks are made where records are: what lies between two of them costs nothing."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import SlidingWindows, TumblingWindows
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning import chunking
from spark_jobs.runs.planning.chunking import chunks_of, gaps_between, grid_points
from spark_jobs.runs.planning.plan import make_plan, plan_from_json
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.small_runs import T0, definition_text, record, write
from tests.sampling import sample

_numbers = itertools.count()


@settings(max_examples=sample(10, 100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(st.integers(-3_000, 9_000), min_size=1, max_size=8),
    windows=st.sampled_from([TumblingWindows(7), SlidingWindows(50, 10, 3), SlidingWindows(5, 20), TumblingWindows(1)]),
    least=st.sampled_from([None, 3, 20]),
)
def test_chunks_and_gaps_cover_the_range_and_each_window_of_a_record_is_in_a_chunk(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, times: list[int], windows, least: int | None
) -> None:
    monkeypatch.setattr(chunking, "MAX_GRID_POINTS", 40)
    work = windows.covering(TimeRange(min(times), max(times) + 1))
    records = spark.createDataFrame([(t,) for t in times], f"{EVENT_TIME} BIGINT")
    chunks = chunks_of(windows, work, least, records)
    parts = sorted((*chunks, *gaps_between(work, chunks)), key=lambda part: part.start)
    assert (parts[0].start, parts[-1].end) == (work.start, work.end)
    assert all(a.end == b.start for a, b in itertools.pairwise(parts))
    assert all(grid_points(windows, chunk) <= 42 for chunk in chunks)
    starts = {window.start for t in times for window in windows.assign(t)}
    assert all(any(c.start <= start < c.end for c in chunks) for start in starts)


@pytest.mark.long
def test_one_record_of_long_ago_costs_one_chunk_more_and_a_warning(spark: SparkSession, tmp_path) -> None:
    """60 records of one second each, and one of 1970: 53 years of windows of a second lie between."""
    name = f"long_ago_{next(_numbers)}"
    text = definition_text(name, tmp_path / "data", window="window: {type: tumbling, size: 1 s}")
    defined = load_pipeline(tmp_path / "p.yaml", text=text)
    write(tmp_path / "data", [record(i) for i in range(60)])
    execute(spark, defined, make_plan(spark, defined), LogProgress())
    table = spark.table(Tables.of(defined).windows)
    before = table.count()
    write(tmp_path / "data", [record(60, t=0), record(61)], "part-1.json")
    began = time.monotonic()
    night = reconcile(spark, defined, LogProgress())
    assert night.continued_from is not None and night.changes["inserted"] == 2
    plan = make_plan(spark, defined)
    assert len(plan.chunks) == 2 and len(plan.gaps) == 1
    assert plan_from_json(plan.to_json()) == plan
    assert "window ends lie between the first and the last of 62 records" in "; ".join(plan.warnings)
    full = execute(spark, defined, plan, LogProgress())
    assert full.changes == {}
    assert time.monotonic() - began < 300
    assert spark.table(Tables.of(defined).windows).count() == before + 2
    assert T0 > 0
