"""`rewindow expectations`: list, check, new."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.work.staged_run import StagedRun
from tests.quality.conftest import FLIGHTS, ROOT

COMMAND = CliRunner()


def said(*arguments: str) -> str:
    done = COMMAND.invoke(app, ["expectations", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_list_names_data_severity_and_column() -> None:
    text = said("list", str(FLIGHTS))
    assert "critical keys-not-null: carrier: A window has all of its keys" in text
    listing = json.loads(said("list", str(FLIGHTS), "--json"))
    longest = next(e for e in listing["expectations"] if e["name"] == "longest-plausible")
    assert (longest["data"], longest["severity"], longest["kwargs"]["max_value"]) == ("windows", "critical", 5000)
    assert listing["left_out"] == []


def test_check_says_how_many_there_are() -> None:
    assert said("check", str(FLIGHTS)).startswith("ok 52 expectations for departures_hourly")


def test_the_commands_of_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As they stand on docs/gate.md, but for the draft, which a test below makes."""
    first, second = re.findall(r"^```console\n(.*?)^```", (ROOT / "docs/gate.md").read_text(), re.DOTALL | re.MULTILINE)
    listed, checked, _ = first.splitlines()
    assert "longest-plausible" in said(*words(listed))
    assert said(*words(checked)).startswith("ok")
    made = shutil.copytree(ROOT / "dags/pipelines", tmp_path / "dags/pipelines")
    text = FLIGHTS.read_text().replace("name: departures_hourly", "name: orders_hourly")
    (made / "orders_hourly.yaml").write_text(text.replace("distance: sum", "amount_sum: sum"))
    suite = {"name": "orders", "expectations": [{"type": "expect_column_max_to_be_between"}]}
    suite["expectations"][0]["kwargs"] = {"column": "amount", "max_value": 9_000_000}
    (tmp_path / "path/to/project/expectations").mkdir(parents=True)
    (tmp_path / "path/to/project/expectations/orders.json").write_text(json.dumps(suite))
    monkeypatch.chdir(tmp_path)
    done = COMMAND.invoke(app, shlex.split(second)[1:], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    written = json.loads((tmp_path / "expectations/orders_hourly.json").read_text())
    assert written["expectations"][0]["kwargs"]["column"] == "amount_sum"


def words(line: str) -> list[str]:
    """The words of a line of the page behind `rewindow expectations`."""
    return shlex.split(line, comments=True)[2:]


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
