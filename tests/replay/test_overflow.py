"""A sum that overflows is named: the aggregate, the window, the key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.replay.aggregates import overflow_in_words
from spark_jobs.replay.from_pipeline import spec_of
from tests.runs.small_runs import MINUTE, T0, pipeline

LARGE = 2**62
SUMS = {"n": "count(*)", "total": "sum(v)"}
ROWS = [("a", T0, 1), ("b", T0, 1), ("b", T0 + MINUTE, LARGE), ("a", T0 + MINUTE, 1), ("b", T0 + MINUTE + 1, LARGE)]


@pytest.mark.parametrize(
    ("aggregates", "rows", "window", "said"),
    [
        (SUMS, ROWS, "tumbling, size: 1 min", "aggregate `total`: sum(v) overflows in the window 2020-09-13T12:28:00Z"),
        (SUMS, ROWS, "tumbling, size: 1 min", " to 2020-09-13T12:29:00Z, k = b"),
        (
            SUMS,
            ROWS,
            "sliding, size: 2 min, slide: 1 min",
            "in the window 2020-09-13T12:27:00Z to 2020-09-13T12:29:00Z",
        ),
        (SUMS, ROWS, "session, gap: 1 min", "sum(v) overflows, k = b"),
        (SUMS, ROWS[:4], "tumbling, size: 1 min", None),
        (SUMS, [("a", T0, None)], "tumbling, size: 1 min", None),
        ({"n": "count(*)"}, ROWS, "tumbling, size: 1 min", None),
        ({"share": "SUM(v) / sum(1)"}, ROWS, "tumbling, size: 1 min", "aggregate `share`: SUM(v) overflows"),
        ({"big": "1 + sum(v) FILTER (WHERE v > 1)"}, ROWS, "tumbling, size: 1 min", "sum(v) FILTER (WHERE v > 1) over"),
        ({"small": "sum(v) FILTER (WHERE v < 9)"}, ROWS, "tumbling, size: 1 min", None),
    ],
)
def test_the_first_sum_that_overflows_is_named(
    spark: SparkSession, tmp_path: Path, aggregates: dict, rows: list, window: str, said: str | None
) -> None:
    defined = pipeline(tmp_path, "large", window=f"window: {{type: {window}}}")
    records = spark.createDataFrame(rows, "k STRING, rw_event_time BIGINT, v BIGINT")
    found = overflow_in_words(records, replace(spec_of(defined, [0, 1]), aggregates=aggregates))
    assert (found is None) if said is None else (found is not None and said in found)
