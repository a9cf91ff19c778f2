"""A suite is drafted from windows that are there, edited by a person, and checked: the whole way round."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.quality.draft import drafted, profile, widened, write
from spark_jobs.quality.gate import check, check_suites
from spark_jobs.quality.suites import load_suites
from spark_jobs.runs.life.documents import GateVerdict
from spark_jobs.runs.work.staged_run import StagedRun


@pytest.mark.parametrize(
    ("least", "greatest", "expected"),
    [(1, 20, (0, 30)), (-20, -1, (-30, 0)), (80, 4983, (0, 7500)), (0, 0, (0, 0)), (5, 5, (2.5, 7.5)),
     (-3, 9, (-9, 15)), (0.11, 0.12, (0.1, 0.13))],
)  # fmt: skip
def test_a_range_is_widened_and_does_not_cross_zero(least, greatest, expected) -> None:
    low, high = widened(least, greatest)
    assert (low, high) == expected
    assert low <= least <= greatest <= high


def test_draft_edit_and_check(flights: StagedRun, suites_folder) -> None:
    folder = suites_folder("unused.txt", "")
    path: Path = folder / "departures_hourly.json"
    path.unlink()
    profiled = profile(flights.staged, flights.pipeline)
    suite = drafted(flights.pipeline, profiled, "demo.departures_hourly")
    assert profiled.rows == 14_656
    assert "Edit before you rely on it" in suite["notes"]
    write(suite, path, force=False)
    assert json.loads(path.read_text()) == suite

    suites = load_suites(flights.pipeline)
    check_suites(suites, flights.pipeline)
    assert check(flights, suites).verdict is GateVerdict.PASSED

    edited = json.loads(path.read_text())
    longest = next(e for e in edited["expectations"] if e["meta"]["name"] == "longest-in-range")
    longest["kwargs"]["max_value"], longest["severity"] = 4_000, "critical"
    path.write_text(json.dumps(edited))
    result = check(flights, load_suites(flights.pipeline))
    assert result.blocks
    found = next(one for one in result.results if not one.success)
    assert (found.name, found.samples[0]["longest"]) == ("longest-in-range", 4_983)


def test_a_reviewed_suite_is_not_overwritten(flights: StagedRun, suites_folder) -> None:
    folder = suites_folder("departures_hourly.json", "reviewed")
    with pytest.raises(DefinitionError, match=r"there is a suite already .*--force overwrites it"):
        write({"name": "x", "expectations": []}, folder / "departures_hourly.json", force=False)
    assert (folder / "departures_hourly.json").read_text() == "reviewed"
    write({"name": "x", "expectations": []}, folder / "departures_hourly.json", force=True)
    assert json.loads((folder / "departures_hourly.json").read_text()) == {"name": "x", "expectations": []}


def test_a_hostile_key_stays_a_value_and_a_long_one_is_not_listed(flights: StagedRun, suites_folder) -> None:
    path: Path = suites_folder("unused.txt", "") / "hostile.json"
    for key, is_listed in (('x"],\n \u202e\x1b ${HOME}', True), ("x" * (1 << 20), False)):
        profiled = profile(flights.staged.limit(9).withColumn("carrier", F.lit(key)), flights.pipeline)
        assert profiled.values.get("carrier") == ([key] if is_listed else None)
        write(drafted(flights.pipeline, profiled, "demo.departures_hourly"), path, force=True)
        assert json.loads(path.read_text())["name"] == flights.pipeline.name
        assert all(len(line) < 2_000 and line.isprintable() for line in path.read_text().splitlines())


def test_there_is_nothing_to_draft_from_no_windows(flights: StagedRun) -> None:
    empty = replace(flights, staged=flights.staged.limit(0))
    with pytest.raises(EmptyRangeError, match="no window to draft"):
        profile(empty.staged, empty.pipeline)
