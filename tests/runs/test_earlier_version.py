"""What the version before wrote is read today: its run folders, its tables, its staged runs and its timeline state.

The project under `tests/data/earlier_version` was written by that version; the README there says how.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.runs.documents import Outcome
from spark_jobs.runs.plan import plan_from_json
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.store import DEFINITION, OUTCOME, PAGE, PLAN, REQUEST, RunStore
from spark_jobs.web.runs import Runs
from tests.command_line import in_process
from tests.sampling import first_of

PACKED = Path(__file__).parents[1] / "data" / "earlier_version" / "project.tar.gz"

PROJECT = Path("/tmp/rewindow-earlier-version")
"""Where the project was made: Iceberg's metadata holds absolute paths, so its tables can be read only here."""

STATUSES = {
    "orders-first": "published",
    "orders-dry": "dry_run",
    "orders-never": "compared_only",
    "orders-night": "published",
    "orders-again": "unchanged",
    "visits-first": "published",
    "visits-waiting": "awaiting_approval",
    "refunds-discarded": "discarded",
    "refunds-rejected": "rejected",
    "refunds-waiting": "awaiting_approval",
    "shipments-staged": "staged",
    "returns-closed": "gate_failed",
    "ratios-failed": "failed",
}
"""The status of each run of the project, as the version before left it."""

OF_THE_RUN = "run_id, revision, cause, as_of, valid_from, valid_to"
"""The columns of a published window that depend on the run that published it, not on the history."""

Rewindow = Callable[..., tuple[int, str, str]]


def unpack(folder: Path) -> None:
    with tarfile.open(PACKED) as archive:
        archive.extractall(folder, filter="data")


@pytest.fixture
def rewindow(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rewindow:
    """Run a command line in this process; gives (exit code, standard output, standard error)."""

    def call(*arguments: str, home: Path = PROJECT / "home") -> tuple[int, str, str]:
        variables = {"REWINDOW_HOME": str(home), "REWINDOW_EXPECTATIONS": str(PROJECT / "expectations")}
        return in_process(monkeypatch, capfd)(*arguments, **variables)

    return call


# The documents of the runs, which are read without Spark.


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> RunStore:
    """The run folders of the version before, in a home of their own."""
    folder = tmp_path_factory.mktemp("earlier")
    unpack(folder)
    return RunStore(str(folder / "home" / "runs"))


def test_every_run_is_listed_with_the_status_that_it_had(store: RunStore) -> None:
    listed = Runs(store).all()
    assert {run.run_id: run.status for run in listed} == STATUSES
    assert all(run.requested_at for run in listed)
    night = next(run for run in listed if run.run_id == "orders-night")
    assert (night.pipeline, night.kind, night.windows) == ("orders", "reconcile", 8)
    assert night.changed is not None
    assert night.changed["updated"] > 0


@pytest.mark.parametrize("run_id", STATUSES)
def test_the_documents_of_a_run_are_read(store: RunStore, run_id: str) -> None:
    folder = store.folder(run_id)
    documents = [name for name in folder.documents() if name.endswith(".json")]
    assert REQUEST in documents
    for name in documents:
        assert folder.read(name), name
    request, text, plan = folder.read(REQUEST), folder.read_text(DEFINITION), folder.read_text(PLAN)
    assert request is not None
    assert text is not None
    assert plan is not None
    defined = load_pipeline(request["file"], text=text)
    assert defined.definition_hash == request["definition_hash"] == plan_from_json(plan).definition_hash
    outcome = Outcome.read(folder)
    assert outcome is not None and outcome.status == STATUSES[run_id]


@pytest.mark.parametrize("run_id", first_of(STATUSES))
def test_the_report_of_a_run_is_what_it_was(store: RunStore, rewindow: Rewindow, run_id: str) -> None:
    folder, home = store.folder(run_id), Path(store.url).parent
    before = folder.read("report.json")
    code, _, err = rewindow("report", run_id, home=home)
    assert code == 0, err
    page, report = folder.read_text(PAGE), folder.read("report.json")
    assert page is not None
    assert run_id in page
    assert before is not None
    assert report is not None
    failed = (report["expectations"] or {}).get("failed", {})
    only_infos = failed.get("info") and not failed["critical"] and not failed["warning"]
    level = before["verdict"]["level"]
    # The version before counted what is for information as a warning.
    assert report["verdict"]["level"] == ("good" if only_infos and level == "note" else level)
    outcome = folder.read(OUTCOME)
    assert outcome is not None
    steps = "\n".join(f"{step['text']} {step['command'] or ''}" for step in report["verdict"]["next"])
    # Under `mend` the version before wrote what to do next; of a run that waits the steps name the reader's own way.
    ways = (f"rewindow publish {run_id}", "decide__", "The task `publish` follows")
    assert any(w in steps for w in (ways if RunStatus(outcome["status"]).waits else (outcome["mend"],)))
    assert report.keys() >= before.keys()


# The tables, in the place where they were written.


@pytest.fixture
def project() -> Iterator[Path]:
    """The project as the version before left it. Two processes that test it take turns."""
    with PROJECT.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PROJECT, ignore_errors=True)
        unpack(PROJECT)
        yield PROJECT
        shutil.rmtree(PROJECT)


def definition(pipeline: str) -> str:
    return str(PROJECT / "pipelines" / f"{pipeline}.yaml")


def lines(answer: tuple[int, str, str]) -> list[dict[str, Any]]:
    """The JSON lines that a command has printed."""
    code, out, err = answer
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()]


def rows(rewindow: Rewindow, query: str, **of_call: Path) -> list[str]:
    """A query's rows in an order of their own."""
    found = lines(rewindow("sql", query, "--limit", "1000", "--json", **of_call))
    return sorted(json.dumps(row, sort_keys=True) for row in found)


def published(rewindow: Rewindow, pipeline: str, **of_call: Path) -> tuple[list[str], list[str]]:
    """The windows and the late records that are published, without what depends on the run."""
    table = f"rewindow.earlier.{pipeline}"
    windows = rows(rewindow, f"SELECT * EXCEPT ({OF_THE_RUN}) FROM {table}", **of_call)
    return windows, rows(rewindow, f"SELECT * EXCEPT (run_id) FROM {table}__late", **of_call)


def assert_as_of_a_complete_run(rewindow: Rewindow, pipeline: str, home: Path) -> None:
    """The published tables are those of one run over the whole history on an empty home."""
    code, _, err = rewindow("run", definition(pipeline), "--no-gate", "--run-id", "whole", home=home)
    if code == 3:  # the definition's policy requires an approval
        code, _, err = rewindow("publish", "whole", "--reason", "to compare with", home=home)
    assert code == 0, err
    windows, late = published(rewindow, pipeline, home=home)
    assert windows
    assert published(rewindow, pipeline) == (windows, late)


def status_of(run_id: str) -> str | None:
    outcome = Outcome.read(RunStore(str(PROJECT / "home" / "runs")).folder(run_id))
    return outcome and outcome.status.value


@pytest.mark.usefixtures("spark", "project")
def test_a_night_goes_on_from_the_state_of_the_version_before(rewindow: Rewindow, tmp_path: Path) -> None:
    window = ("history", definition("orders"), "--window", "2020-09-13T12:27:00Z", "--key", "k=b", "--json")
    before = lines(rewindow(*window))
    assert [(one["revision"], one["cause"], one["run_id"]) for one in before] == [
        (1, "backfill", "orders-first"),
        (2, "late_arrivals", "orders-night"),
    ]
    assert before[0]["reason"] == "the first backfill"
    shutil.copy(PROJECT / "arrives-later" / "orders" / "part-2.json", PROJECT / "data" / "orders")
    (night,) = lines(rewindow("reconcile", definition("orders"), "--run-id", "orders-today", "--json"))
    assert night["continued_from"] == "orders-again"
    assert night["changes"]["updated"] > 0
    assert night["changes"]["inserted"] > 0
    # The version before did not keep how many records there are: they are counted once, whatever the offsets say.
    plan = RunStore(str(PROJECT / "home" / "runs")).folder("orders-today").read(PLAN) or {}
    files = (PROJECT / "data" / "orders").glob("*.json")
    assert plan["history_records"] == sum(len(file.read_text().splitlines()) for file in files)
    assert lines(rewindow(*window)) == before
    runs = rows(rewindow, "SELECT run_id, status FROM rewindow.earlier.runs WHERE pipeline = 'orders'")
    assert {json.loads(row)["run_id"] for row in runs} == {name for name in STATUSES if name.startswith("orders")} | {
        "orders-today"
    }
    assert_as_of_a_complete_run(rewindow, "orders", tmp_path / "home")


WAITING = {
    "visits": "visits-waiting",
    "shipments": "shipments-staged",
    "returns": "returns-closed",
    "refunds": "refunds-waiting",
}


@pytest.mark.usefixtures("spark", "project")
@pytest.mark.parametrize("pipeline", first_of(WAITING))
def test_a_run_that_waits_is_ended_by_the_upgrade_and_its_command_makes_it_again(
    rewindow: Rewindow, tmp_path: Path, pipeline: str
) -> None:
    file, waiting = definition(pipeline), WAITING[pipeline]
    staging = f"SHOW TABLES IN rewindow.earlier LIKE '{pipeline}__staging*'"
    assert rows(rewindow, staging)
    before = published(rewindow, pipeline) if pipeline == "visits" else None  # of the others nothing is published
    for command in (("run", file), ("reconcile", file), ("publish", waiting, "--reason", "seen"), ("discard", waiting)):
        code, _, err = rewindow(*command)
        assert code == 9 and f"a run of a version before 0.2 has not ended ({waiting})" in err, err
        assert "Run `rewindow upgrade PIPELINE`" in err
    code, out, err = rewindow("upgrade", file)
    assert code == 0, err
    again = re.search(rf"run {waiting} was given up; `rewindow run {pipeline} (.*)` makes it again", out)
    assert again, out
    assert (status_of(waiting), rows(rewindow, staging)) == ("abandoned", [])
    assert before is None or published(rewindow, pipeline) == before
    code, _, err = rewindow("run", file, *again[1].split(), "--no-gate", "--run-id", "again")
    if code == 3:
        code, _, err = rewindow("publish", "again", "--reason", "as before")
    assert code == 0, err
    assert_as_of_a_complete_run(rewindow, pipeline, tmp_path / "home")
