"""`rewindow import expectations`: the suites of a real Great Expectations project become a pipeline's suite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.project.gx_import import import_suites, suite_files
from spark_jobs.quality.gate import check_suites
from spark_jobs.quality.suites import load_suites
from tests.quality.conftest import EXPECTATIONS, FLIGHTS, ROOT

GX_PROJECT = ROOT / "tests/data/gx_project"
"""Suites as Great Expectations 1.24 and 0.18 write them, and a checkpoint."""


def test_a_project_becomes_a_suite_that_the_gate_accepts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDOW_EXPECTATIONS", str(tmp_path))
    for file in EXPECTATIONS.glob("*.json"):
        (tmp_path / file.name).write_text(file.read_text())
    suite = tmp_path / "departures_hourly.json"
    suite.unlink()
    command = ["import", "expectations", str(FLIGHTS), str(GX_PROJECT), "--column", "airline=carrier"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    written = json.loads(suite.read_text())
    kinds = [one["type"].removeprefix("expect_") for one in written["expectations"]]
    assert kinds == [
        "column_values_to_be_between",
        "column_values_to_not_be_null",
        "table_row_count_to_be_between",
        "column_values_to_be_in_set",
        "unexpected_rows_expectation",
        "column_values_to_be_unique",
    ]
    first, second = written["expectations"][:2]
    assert first["kwargs"] == {"column": "flights", "min_value": 0, "mostly": 0.99}
    assert (first["severity"], first["notes"], second["severity"]) == ("warning", "agreed", "critical")
    assert second["kwargs"]["column"] == "carrier"
    for said in (
        "departures.json: expectation 1: meta.owner: has no counterpart",
        "'flown_by' is no column of the windows",
        "expect_table_row_count_to_be_between: CHECK: it is computed over the windows that one run has staged",
        "'most' is no parameter: the gate gives",
        "6: row_condition: {'pass_through_filter': 'flights > 1', 'type': 'pass_through'}: CHECK",
        "old.json: expectation 1: result_format: is decided by the gate",
        "'expect_column_values_to_be_plausible' is no type of expectation",
        "checkpoints/nightly.json: not imported",
    ):
        assert said in done.output
    pipeline = load_pipeline(FLIGHTS)
    check_suites(load_suites(pipeline), pipeline)

    again = CliRunner().invoke(app, [*command, "--add"])
    assert again.exit_code == 0 and json.loads(suite.read_text()) == written
    with pytest.raises(DefinitionError, match="has a suite already"):
        CliRunner().invoke(app, command, catch_exceptions=False, standalone_mode=False)


def test_what_is_no_suite_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="there is no expectation suite"):
        suite_files(tmp_path)
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(DefinitionError, match="not an expectation suite"):
        import_suites(suite_files(tmp_path), load_pipeline(FLIGHTS), {})
