"""Commands, and refusals, that need no Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from spark_jobs import __version__, cli
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.life.documents import Changes, Outcome, Request
from spark_jobs.runs.life.status import RunKind, RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.settings import settings
from tests.command_line import Rewindow, in_process

SAMPLE = "dags/pipelines/departures_hourly.yaml"
BEGIN = datetime(2026, 2, 1, 12, tzinfo=UTC)


@pytest.fixture
def rewindow(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rewindow:
    return in_process(monkeypatch, capfd, columns=80)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """A store with three runs of one pipeline, an hour apart: published, waiting, failed."""
    monkeypatch.setenv("REWINDOW_RUNS", str(tmp_path / "runs"))
    store, pipeline = RunStore.configured(), load_pipeline(SAMPLE)
    ends = (RunStatus.PUBLISHED, RunStatus.AWAITING_APPROVAL, RunStatus.FAILED)
    for number, status in enumerate(ends):
        _write_run(store, pipeline, f"departures_hourly-run-with-a-long-id-{number}", status, number)
    return store


def _write_run(store: RunStore, pipeline: Pipeline, run_id: str, status: RunStatus, hours: int) -> None:
    folder = store.folder(run_id)
    Request.of(run_id, pipeline, RunKind.BACKFILL, "a fix", BEGIN + timedelta(hours=hours)).write(folder)
    Changes(counts={"updated": 3}).write(folder)
    Outcome(run_id=run_id, status=status, message="the disk is full" if status is RunStatus.FAILED else "").write(
        folder
    )


def test_the_version_and_short_help(rewindow) -> None:
    assert rewindow("--version")[1].strip() == f"rewindow {__version__}"
    assert "--debug" in rewindow("-h")[1]
    assert "--from" in rewindow("plan", "-h")[1]
    assert "--install-completion" in rewindow("-h")[1]


@pytest.mark.parametrize("place", [0, 1, 2, 4])
def test_debug_may_stand_anywhere(rewindow, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    command = ["runs", "departures_hourly", "--status", "great"]
    assert rewindow(*command)[0] == 2
    monkeypatch.setattr("sys.argv", ["rewindow", *command[:place], "--debug", *command[place:]])
    with pytest.raises(DefinitionError, match="--status: 'great'"):  # the error itself, with all that led to it
        cli.main()


def test_runs_are_listed_the_last_one_first_with_whole_ids(rewindow, store) -> None:
    code, out, err = rewindow("runs")
    assert code == 0
    assert "home " in err
    lines = out.splitlines()
    assert [line.split("  ")[1] for line in lines if line.startswith("2026")] == [
        "Failed", "Waiting for approval", "Published",
    ]  # fmt: skip
    assert "  departures_hourly-run-with-a-long-id-2" in lines
    assert "3 windows updated; the disk is full; reason: a fix" in out
    code, out, _ = rewindow("runs", "departures_hourly", "--status", "failed", "--json")
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["failed"]
    assert "no such runs" in rewindow("runs", "--until", "2026-01-31")[1]
    assert rewindow("runs", "--status", "great")[0] == rewindow("runs", "--since", "monday")[0] == 2


def test_the_status_shows_what_waits_and_what_to_write(rewindow, store) -> None:
    code, out, _ = rewindow("status", "departures_hourly")
    assert code == 0
    assert "  last       2026-02-01 14:00  Failed" in out
    assert "  published  2026-02-01 12:00  Published" in out
    assert "rewindow publish departures_hourly-run-with-a-long-id-1 --reason" in out
    records = [json.loads(line) for line in rewindow("status", "--json")[1].splitlines()]
    assert {record["pipeline"]: record["last"] is not None for record in records}["departures_hourly"]
    assert rewindow("status", "nothing")[0] == 2


def test_a_report_is_found_by_pipeline_and_as_the_last_one(rewindow, store) -> None:
    for arguments in (["departures_hourly"], ["--last"]):
        code, out, err = rewindow("report", *arguments)
        assert code == 0, err
        assert "run-with-a-long-id-2/report.html" in out
    assert rewindow("report")[0] == rewindow("report", "departures_hourly", "--last")[0] == 2
    code, _, err = rewindow("report", "departures_yearly")
    assert code == 2
    assert "The last runs: departures_hourly-run-with-a-long-id-2" in err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["run", SAMPLE, "--from", "2013-02-02T00:00:00Z", "--to", "2013-02-01T00:00:00Z"], 2, "reversed or empty"),
        (["plan", SAMPLE, "--from", "2013-02-01T00:10:00Z", "--to", "2013-02-01T00:20:00Z"], 6,
         "The next one starts at 2013-02-01T01:00:00Z"),
        (["run", SAMPLE, "--publish", "sometimes"], 2, "Use always"),
        (["revisions", SAMPLE, "--window", "2013-02-01T10:00:00Z", "--key", "carier=UA"], 2, "Did you mean carrier?"),
        (["run", "departures_hourl"], 2, "Did you mean departures_hourly?"),
        (["sql", "SELECT 1", "--csv", "--json"], 2, "choose one"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_before_spark_starts(rewindow, arguments, code, words) -> None:
    got, _, err = rewindow(*arguments)
    assert got == code
    assert words in err
    assert "home " not in err  # that line comes with Spark


def test_a_definition_is_checked_for_machines(rewindow, tmp_path: Path) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(Path(SAMPLE).read_text().replace("bound: 30 min", "bound: 30 mins ago"))
    code, out, _ = rewindow("check", str(file), "--json")
    found = json.loads(out)
    assert (code, found["ok"], found["problems"][0]["field"]) == (2, False, "watermark.bound")
    assert found["problems"][0]["line"] > 1


def test_a_definition_is_checked_without_spark(rewindow) -> None:
    code, out, err = rewindow("check", SAMPLE)
    assert (code, out.split()[:2]) == (0, ["ok", "departures_hourly"])
    assert "home " not in err


def test_check_refuses_a_draft_with_a_comment_that_nobody_has_read(rewindow, tmp_path: Path) -> None:
    file = tmp_path / "draft.yaml"
    text = Path(SAMPLE).read_text() + "# Fill in what says CHECK.\n"
    file.write_text(text)
    assert rewindow("check", str(file))[0] == 0
    file.write_text(text.replace("bound: 30 min", "bound: 30 min  # CHECK: the job's own\n ") + "# CHECK: and this\n")
    code, out, _ = rewindow("check", str(file), "--json")
    found = json.loads(out)["problems"]
    assert code == 2 and len(found) == 2
    assert found[0]["what"] == "still says `CHECK: the job's own`"
    assert "bound: 30 min" in file.read_text().splitlines()[found[0]["line"] - 1]


def test_check_names_what_a_history_without_an_order_can_do(rewindow, tmp_path: Path) -> None:
    file = tmp_path / "unordered.yaml"
    of_position = ("position:", "partition:", "offset:", "arrival:")
    lines = Path(SAMPLE).read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.strip().startswith(of_position)))
    code, out, err = rewindow("check", str(file))
    assert code == 0, err
    assert "an integer that grows with each record serves as `offset`" in out and "`mode: complete`" in out
    (note,) = json.loads(rewindow("check", str(file), "--json")[1])["notes"]
    assert note["field"] == "history.position" and note["line"] > 1
    assert "runs refuse faithful values" in note["what"]
    code, _, err = rewindow("plan", str(file))  # and so it does, in the same words
    assert code == 5 and note["hint"].removeprefix("name ") in err
    assert "home " not in err


def test_the_home_is_the_projects_from_anywhere_below_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REWINDOW_HOME")
    below = tmp_path / "project/dags/pipelines/more"
    below.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    for folder, home, origin in (
        (below, "project", "the project's folder"),
        (tmp_path / "project", "project", "the current folder"),
        (tmp_path / "elsewhere", "elsewhere", "the current folder"),
    ):
        monkeypatch.chdir(folder)
        assert (settings().home, settings().home_origin) == (tmp_path / home / ".rewindow", origin)
    monkeypatch.setenv("REWINDOW_HOME", str(tmp_path / "own"))
    assert (settings().home, settings().home_origin) == (tmp_path / "own", "REWINDOW_HOME")
