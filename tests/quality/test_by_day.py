"""Expectations whose rows are checked day by day: the bad day is named, and a day's result is GX's own."""

# pyright: reportOperatorIssue=false, reportOptionalOperand=false

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import functions as F

from spark_jobs.quality.gate import check
from spark_jobs.quality.suites import load_suites
from spark_jobs.runs.life.documents import DayResult, ExpectationResult, Gate
from spark_jobs.runs.work.staged_run import StagedRun
from tests.quality.small_suites import between, own

BAD = "2013-01-08"
DAYS = ("2013-01-07", BAD, "2013-01-09")
EXPECTED = [
    between(kwargs={"column": "flights", "max_value": 500}, meta={"name": "largest"}),
    between(kwargs={"column": "flights", "max_value": 500, "mostly": 0.99}, meta={"name": "most"}),
    between(
        type="expect_column_max_to_be_between",
        kwargs={"column": "flights", "max_value": 500, "row_condition": "carrier = 'UA'", "condition_parser": "spark"},
        meta={"name": "figure"},
    ),
    between(type="expect_table_row_count_to_be_between", kwargs={"min_value": 100}, meta={"name": "rows"}),
    between(
        kwargs={"column": "rw_start_ms", "max_value": {"$PARAMETER": "range_end_ms"}}, meta={"name": "with-parameter"}
    ),
]


def by_day(expectations: list[dict]) -> list[dict]:
    return [one | {"meta": one["meta"] | {"by": "day"}} for one in expectations]


def named(result: Gate) -> dict[str, ExpectationResult]:
    return {one.name: one for one in result.results if one.suite == "own"}


def of_days(flights: StagedRun, first: str, before: str) -> StagedRun:
    """The windows of some days; on the bad one, one window of one airline has too many flights."""
    faulty = (F.to_date("window_start") == BAD) & (F.hour("window_start") == 12) & (F.col("carrier") == "UA")
    staged = flights.staged.where(f"window_start >= '{first}' AND window_start < '{before}'")
    column = F.when(faulty, F.lit(1_000).cast("long")).otherwise(F.col("flights"))
    return replace(flights, staged=staged.withColumn("flights", column))


@pytest.fixture
def suites(flights: StagedRun, suites_folder):
    def of(*expectations: dict):
        # The common suites about windows are left out: this is about one suite's own.
        folder = suites_folder("departures_hourly.json", own(*expectations))
        for common in ("windows", "reconciliation", "input"):
            (folder / f"{common}.json").write_text(f'{{"name": "{common}", "expectations": []}}')
        return load_suites(flights.pipeline, folder)

    return of


def test_one_bad_day_is_named_and_each_day_is_judged_as_if_it_were_alone(flights: StagedRun, suites) -> None:
    result = check(of_days(flights, "2013-01-07", "2013-01-10"), suites(*by_day(EXPECTED)))
    found = named(result)
    assert {name: (one.days, one.days_failed, one.success, one.error) for name, one in found.items()} == {
        "largest": (3, 1, False, None),
        "most": (3, 0, True, None),
        "figure": (3, 1, False, None),
        "rows": (3, 0, True, None),
        "with-parameter": (3, 0, True, None),
    }
    [bad] = found["largest"].failed_days
    alone = named(check(of_days(flights, BAD, "2013-01-09"), suites(*EXPECTED)))["largest"]
    assert (bad.day, bad.unexpected_count, bad.checked) == (BAD, 1, alone.checked)
    assert bad.unexpected_percent == alone.unexpected_percent
    [sample] = found["largest"].samples
    assert (sample["rw_day"], sample["flights"], sample["carrier"]) == (BAD, 1_000, "UA")
    assert found["figure"].failed_days == (DayResult(day=BAD, observed=1_000),)
    # A quarter of a year takes as many queries as three days.
    more = check(replace(flights, staged=flights.staged), suites(*by_day(EXPECTED[1:2] + EXPECTED[3:])))
    assert named(more)["most"].days == 91
    assert more.spark_jobs <= result.spark_jobs


def test_what_cannot_be_computed_fails_alone(flights: StagedRun, suites) -> None:
    broken = between(
        type="expect_column_values_to_match_regex", kwargs={"column": "carrier", "regex": "("}, meta={"name": "broken"}
    )
    found = named(check(of_days(flights, BAD, "2013-01-09"), suites(*by_day([broken, EXPECTED[3]]))))
    assert found["broken"].error
    assert not found["broken"].success
    assert (found["rows"].success, found["rows"].days) == (True, 1)
