"""What expectations see of the live job: one row for each day, and the shares of the run."""

from __future__ import annotations

import json
import math
from pathlib import Path

from spark_jobs.quality.live import LIVE_COLUMNS, live_frame
from spark_jobs.runs.life.verdicts import Verdicts

DAY = 86_400_000
T0 = 1_360_281_600_000  # 2013-02-08T00:00:00Z


def test_each_day_has_a_row_with_its_counts_and_those_of_the_run() -> None:
    days = [
        {"start": T0, "counts": {"match": 90, "mismatch": 2, "not_closed": 5}, "lag": {"windows": 92, "largest": 700}},
        {"start": T0 + DAY, "counts": {"match": 107, "missing": 1}},
    ]
    counts = {"match": 197, "mismatch": 2, "missing": 1, "not_closed": 5}
    frame = live_frame(Verdicts.model_validate({"windows": 200, "counts": counts, "days": days}))
    assert list(frame.columns) == list(LIVE_COLUMNS)
    assert list(frame["day"]) == ["2013-02-08", "2013-02-09"]
    assert (list(frame["windows"]), list(frame["mismatch"])) == ([92, 108], [2, 0])
    assert list(frame["different_share"]) == [2 / 92, 1 / 108]
    assert frame["lag_largest_ms"][0] == 700 and math.isnan(frame["lag_largest_ms"][1])
    assert list(frame["run_mismatch_share"]) == [0.01, 0.01] and list(frame["run_missing_share"]) == [0.005, 0.005]


def test_a_run_that_could_compare_nothing_has_one_row_that_says_so() -> None:
    frame = live_frame(Verdicts(problem="the emitted windows cannot be read"))
    assert len(frame) == 1 and frame["run_compared"][0] == 0 and math.isnan(frame["run_mismatch_share"][0])


def test_the_shipped_suite_names_columns_that_are_there() -> None:
    suite = json.loads(Path("expectations/live.json").read_text())
    assert {one["kwargs"]["column"] for one in suite["expectations"]} <= set(LIVE_COLUMNS)
