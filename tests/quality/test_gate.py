"""The gate over a staged run of the flights: it passes, planted faults close it, and it leaves nothing behind."""

# pyright: reportOperatorIssue=false, reportOptionalOperand=false

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from spark_jobs.quality.gate import check
from spark_jobs.quality.suites import load_suites
from spark_jobs.runs.life.documents import ExpectationResult, Gate, GateVerdict
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.spark.gateway import java_context
from tests.quality.conftest import EXPECTATIONS
from tests.quality.small_suites import between, own

HOUR = "2013-01-08T{:02}:00:00Z"
HOSTILE = "'; DROP TABLE rewindow.demo.runs; --<script>alert(1)</script>" + "x" * 10_000


def at(hour: int, carrier: str = "UA") -> Column:
    return (F.col("carrier") == carrier) & (F.col("window_start") == F.lit(HOUR.format(hour)).cast("timestamp"))


def cached(spark: SparkSession) -> set[int]:
    numbers = java_context(spark).getPersistentRDDs().keysIterator()  # of a Scala map
    found = set()
    while numbers.hasNext():
        found.add(numbers.next())
    return found


@pytest.fixture(scope="module")
def cached_before(spark: SparkSession, flights: StagedRun) -> set[int]:
    """What other tests have left, until Java's garbage collector finds it."""
    return cached(spark)


@pytest.fixture(scope="module")
def passed(flights: StagedRun, cached_before: set[int]) -> Gate:
    return check(flights, load_suites(flights.pipeline, EXPECTATIONS))


@pytest.fixture(scope="module")
def faulty(flights: StagedRun) -> Mapping[str, ExpectationResult]:
    """One day of windows with one fault in each of several hours, all asked about at once."""
    day = flights.staged.where("window_start >= '2013-01-08' AND window_start < '2013-01-09'")
    minute, hour = F.expr("INTERVAL 1 MINUTE"), F.expr("INTERVAL 1 HOUR")
    changes: dict[str, list[tuple[Column, Column]]] = {
        "carrier": [(at(11), F.lit(None)), (at(12), F.lit(HOSTILE))],
        "window_end": [(at(13), F.col("window_end") + minute), (at(14), F.col("window_end") + hour)],
        "records_dropped": [(at(15), F.lit(-1).cast("long"))],
        "pane": [(at(16), F.lit(7))],
        "state": [(at(17), F.lit("gone"))],
        "longest": [(at(18), F.lit(9_999).cast("long"))],
        "flights": [(at(19), F.lit(1_000).cast("long"))],
        "window_start": [(at(13), F.col("window_start") + minute)],  # last: the others find their row by it
    }
    for column, cases in changes.items():
        for where, value in cases:
            day = day.withColumn(column, F.when(where, value).otherwise(F.col(column)))
    twice = day.unionAll(day.where(at(20)))
    result = check(replace(flights, staged=twice), load_suites(flights.pipeline, EXPECTATIONS))
    assert result.verdict is GateVerdict.FAILED
    assert result.blocks
    json.dumps(result.to_dict(), allow_nan=False)
    return {one.name: one for one in result.results}


def test_a_staged_run_of_the_flights_passes(passed: Gate) -> None:
    assert [one for one in passed.results if not one.success] == []
    assert passed.verdict is GateVerdict.PASSED
    assert not passed.blocks
    assert {one.data for one in passed.left_out} == {"live"}  # the run has compared no live job


def test_the_document_is_json_with_the_agreed_fields(passed: Gate) -> None:
    document = json.loads(json.dumps(passed.to_dict(), allow_nan=False))
    assert {"verdict", "blocks", "suites", "results", "seconds", "spark_jobs"} <= document.keys()
    assert {suite["data"] for suite in document["suites"]} == {"input", "windows", "reconciliation", "live"}
    for result in document["results"]:
        assert {"suite", "data", "expectation", "description", "severity", "success", "column", "observed"} < set(
            result
        )
    unique = next(one for one in document["results"] if one["name"] == "windows-unique")
    assert (unique["checked"], unique["unexpected_count"], unique["samples"]) == (14_656, 0, [])


def test_few_spark_jobs_and_nothing_stays_cached(spark: SparkSession, passed: Gate, cached_before: set[int]) -> None:
    # unique 2, row count 2, all row checks and sums together 2, days 4, and 4 for each of the two pairs of columns
    assert 0 < passed.spark_jobs <= 20
    assert cached(spark) <= cached_before


@pytest.mark.parametrize(
    ("name", "severity", "count", "shown"),
    [
        ("windows-unique", "critical", 1, {"carrier": "UA", "window_start": "2013-01-08T20:00:00Z"}),
        ("keys-not-null", "critical", 1, {"carrier": None, "window_start": "2013-01-08T11:00:00Z"}),
        ("start-on-grid", "critical", 1, {"rw_off_grid_ms": 60_000, "window_start": "2013-01-08T13:01:00Z"}),
        ("length-as-defined", "critical", 1, {"rw_length_off_ms": 3_600_000, "window_start": "2013-01-08T14:00:00Z"}),
        ("dropped-not-negative", "critical", 1, {"records_dropped": -1, "window_start": "2013-01-08T15:00:00Z"}),
        ("longest-plausible", "critical", 1, {"longest": 9_999, "window_start": "2013-01-08T18:00:00Z"}),
        ("flights-plausible", "warning", 1, {"flights": 1_000, "window_start": "2013-01-08T19:00:00Z"}),
    ],
)
def test_a_planted_fault_is_found(faulty, name: str, severity: str, count: int, shown: dict) -> None:
    found = faulty[name]
    assert (found.success, found.severity, found.unexpected_count, found.observed) == (False, severity, count, count)
    assert found.error is None
    assert len(found.samples) == 1
    assert shown.items() <= found.samples[0].items()


def test_windows_that_are_known_to_be_distinct_are_not_counted(flights: StagedRun, passed: Gate) -> None:
    suites = load_suites(flights.pipeline, EXPECTATIONS)
    checked = check(replace(flights, is_distinct=True), suites)
    assert checked.verdict is GateVerdict.PASSED
    assert checked.spark_jobs < passed.spark_jobs
    [found] = [one for one in checked.results if one.name == "windows-unique"]
    assert (found.success, found.checked, found.unexpected_count) == (True, 14_656, 0)
    assert found.threshold == {"known_distinct": True}


@pytest.mark.long
def test_many_tasks_find_the_same_rows_twice(flights: StagedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many rows each task counts few; here a few hundred."""
    monkeypatch.setattr("spark_jobs.quality.unique._ROWS_A_TASK", 300)
    again = flights.staged.where("window_start < '2013-01-03'")
    staged = flights.staged.unionAll(again)
    checked = check(replace(flights, staged=staged), load_suites(flights.pipeline, EXPECTATIONS))
    [found] = [one for one in checked.results if one.name == "windows-unique"]
    assert (found.success, found.unexpected_count, found.checked) == (False, again.count(), staged.count())
    assert len(found.samples) == 5


def test_counts_that_contradict_each_other_are_told_with_the_rule(faulty) -> None:
    found = faulty["counts-consistent"]
    assert found.unexpected_count == 2
    assert sorted(row["rw_contradiction"] for row in found.samples) == [
        "the pane is not what the counts give", "there is no such state",
    ]  # fmt: skip


def test_a_hostile_value_is_shown_as_it_is_and_cut(faulty) -> None:
    found = faulty["carrier-code"]
    assert found.unexpected_count == 1
    assert found.samples[0]["carrier"].startswith("'; DROP TABLE")
    assert len(found.samples[0]["carrier"]) == 200


def test_what_holds_is_not_told_against(faulty) -> None:
    held = ("start-not-null", "ends-after-start", "on-time-not-negative", "late-not-negative", "start-in-range")
    assert all(faulty[name].success for name in held)


def test_severity_decides(flights: StagedRun, suites_folder) -> None:
    failing = {"column": "flights", "max_value": 0}
    folder = suites_folder("departures_hourly.json", own(between(kwargs=failing, severity="info")))
    small = replace(flights, staged=flights.staged.where("window_start < '2013-01-03'"))
    assert check(small, load_suites(flights.pipeline, folder)).verdict is GateVerdict.PASSED
    suites_folder("departures_hourly.json", own(between(kwargs=failing)))
    checked = check(small, load_suites(flights.pipeline, folder))
    assert checked.verdict is GateVerdict.WARNED
    assert not checked.blocks


@pytest.mark.long
def test_an_expectation_that_cannot_be_computed_closes_the_gate_if_it_is_critical(flights, suites_folder) -> None:
    # A regular expression that Spark cannot compile: GX learns it from Spark only.
    broken = {"column": "carrier", "regex": "("}
    folder = suites_folder(
        "departures_hourly.json",
        own(between(type="expect_column_values_to_match_regex", kwargs=broken, severity="critical"), between()),
    )
    small = replace(flights, staged=flights.staged.where("window_start < '2013-01-03'"))
    checked = check(small, load_suites(flights.pipeline, folder))
    assert checked.verdict is GateVerdict.FAILED
    [failed] = [one for one in checked.results if not one.success]  # and none of those that shared its aggregation
    assert failed.expectation == "expect_column_values_to_match_regex"
    assert failed.error


def test_a_run_of_complete_values_is_not_asked_about_what_it_does_not_compute(flights: StagedRun) -> None:
    kept = [c for c in flights.staged.columns if c.startswith(("carrier", "window_")) or c.endswith("__complete")]
    complete = replace(flights, staged=flights.staged.where("window_start < '2013-01-03'").select(*kept))
    checked = check(complete, load_suites(flights.pipeline, EXPECTATIONS))
    assert checked.verdict is GateVerdict.PASSED
    reasons = {one.name: one.reason for one in checked.left_out}
    assert reasons["counts-consistent"] == "this run has no column rw_contradiction"
    assert "windows-unique" in {one.name for one in checked.results}


def test_it_is_silent(flights: StagedRun, passed: Gate, capfd: pytest.CaptureFixture[str]) -> None:
    check(replace(flights, staged=flights.staged.limit(10)), load_suites(flights.pipeline, EXPECTATIONS))
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err == ""
