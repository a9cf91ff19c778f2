"""Nights of a job that was restarted go on from its last life; the tables are those of a full run."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.accounts import check_account
from tests.runs.night.shapes import restarted
from tests.runs.small_nights import CASES, between_arrivals, log_of, tables_of
from tests.runs.small_runs import write
from tests.sampling import seeds


@pytest.mark.parametrize("seed", seeds(1, 12))
def test_every_night_after_restarts_ends_in_the_tables_of_a_full_run(spark: SparkSession, tmp_path, seed) -> None:
    """One restart may lie behind what the first run reads: the next night reads all, and the one after goes on."""
    records, draw, case = log_of(seed, 300), random.Random(seed + 500), list(CASES)[seed % len(CASES)]
    cuts = [
        between_arrivals(records, cut) for cut in (draw.randrange(100, 140), draw.randrange(160, 280), len(records))
    ]
    last = draw.choice((cuts[0], between_arrivals(records, (cuts[0] + cuts[1]) // 2)))
    restarts = sorted({records[draw.randrange(30, cuts[0])]["a"], records[last - 1]["a"]})
    nightly, done, went_on = restarted(tmp_path, f"restarted_{seed}", case, restarts), 0, []
    for night, cut in enumerate(cuts):
        write(tmp_path / "data", records[done:cut], f"part-{night}.json")
        done = cut
        result = reconcile(spark, nightly, LogProgress())
        went_on.append(result.continued_from is not None)
        check_account(result)
    assert went_on == [False, restarts[-1] <= records[cuts[0] - 1]["a"], True]
    full = restarted(tmp_path, f"restarted_full_{seed}", case, restarts)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)
