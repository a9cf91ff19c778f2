"""`rewindow expectations`: list, check, new."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.staged_run import StagedRun
from tests.quality.conftest import FLIGHTS

COMMAND = CliRunner()


def said(*arguments: str) -> str:
    done = COMMAND.invoke(app, ["expectations", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_list_names_data_severity_and_column() -> None:
    text = said("list", str(FLIGHTS))
    assert "critical keys-not-null: carrier: A window has all of its keys" in text
    told = json.loads(said("list", str(FLIGHTS), "--json"))
    longest = next(e for e in told["expectations"] if e["name"] == "longest-plausible")
    assert (longest["data"], longest["severity"], longest["kwargs"]["max_value"]) == ("windows", "critical", 5000)
    assert told["left_out"] == []


def test_check_says_how_many_there_are() -> None:
    assert said("check", str(FLIGHTS)).startswith("ok 45 expectations for departures_hourly")


def test_new_drafts_from_what_a_run_has_staged(flights: StagedRun, suites_folder) -> None:
    file = flights.pipeline.file
    folder = suites_folder("departures_hourly.json", "reviewed")
    with pytest.raises(DefinitionError, match="there is a suite already"):
        said("new", file)
    (folder / "departures_hourly.json").unlink()
    with pytest.raises(DefinitionError, match="there are no windows to draft expectations from"):
        said("new", file, "--run", "nobody")
    flights.staged.writeTo(Tables.of(flights.pipeline).staging("r1", None)).createOrReplace()
    assert "A person has to edit it" in said("new", file, "--run", "r1")
    assert len(json.loads((folder / "departures_hourly.json").read_text())["expectations"]) == 17
    assert said("check", file).startswith("ok")
