"""Ctrl-C in a command that works with Spark: one sentence, exit code 130, and tables as they were."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spark_jobs.cli import interrupt
from spark_jobs.runs.life.status import RunStatus
from tests.processes import ROOT

SAMPLE = ROOT / "dags/pipelines/departures_hourly.yaml"


def interrupted_at(
    stage: str, home: Path, number: int = signal.SIGINT, wait: float = 0.0, mark: str = "stage started"
) -> tuple[int, list[str]]:
    """The exit code of a run that gets a signal `wait` seconds after the stage begins, and what it said after that.

    As from a terminal: its Java gets the signal too.
    """
    command = [sys.executable, "-m", "spark_jobs", "run", str(SAMPLE)]
    environ = {**os.environ, "REWINDOW_HOME": str(home), "REWINDOW_SPARK_IDLE_MINUTES": "0"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    for line in process.stderr:
        if (f'"stage": "{stage}"' in line and mark in line) or (not stage and mark in line):
            time.sleep(wait)
            os.killpg(process.pid, number)
            break
    _, said = process.communicate(timeout=60)
    return process.returncode, [line for line in said.splitlines() if not line.startswith("{")]


def test_an_interrupted_run_says_in_one_sentence_what_was_published_and_how_to_go_on(tmp_path) -> None:
    code, said = interrupted_at("windows", tmp_path)
    assert code == 130
    (sentence,) = said
    assert sentence.startswith("interrupted: nothing was published. What run departures_hourly-")
    assert sentence.endswith("start the command again")
    environ = {**os.environ, "REWINDOW_HOME": str(tmp_path)}
    status = [sys.executable, "-m", "spark_jobs.cli", "runs", "--json"]
    listed = subprocess.run(status, cwd=ROOT, env=environ, capture_output=True, text=True).stdout
    (run,) = map(json.loads, listed.splitlines())
    assert run["status"] == "failed" and "interrupted" in run["message"]
    assert not list((tmp_path / "warehouse").glob("demo/departures_hourly/data/**/*.parquet"))


@pytest.mark.long
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("stage", "mark", "wait"), [("plan", "stage started", 0.5), ("", "home ", 0.0), ("", "home ", 6.0)]
)
def test_while_it_starts_or_plans_it_is_one_sentence_too(tmp_path, number, code, stage, mark, wait) -> None:
    found, said = interrupted_at(stage, tmp_path, number, wait, mark)
    assert found == code
    assert [line for line in said if "started" not in line] == [interrupt.sentence("run")]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize(
    ("module", "words"), [("typer", "nothing was done yet"), ("spark_jobs.definition.pipeline", "nothing was staged")]
)
def test_while_its_modules_are_loaded_it_is_one_sentence_too(number, code, module, words) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "spark_jobs", "run", str(SAMPLE)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stderr is not None
    next(line for line in process.stderr if line.rstrip().endswith(f" {module}"))
    os.killpg(process.pid, number)
    _, said = process.communicate(timeout=60)
    (sentence,) = [line for line in said.splitlines() if not line.startswith("import time:")]
    assert process.returncode == code
    assert sentence.startswith(f"interrupted: {words}") and sentence.endswith("Start the command again")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (RunStatus.PUBLISHING, "all of its windows are published, or none"),
        (RunStatus.PUBLISHED, "is published; `rewindow report a-run`"),
        (RunStatus.AWAITING_APPROVAL, "is waiting for an approval, nothing was published"),
    ],
)
def test_the_sentence_follows_from_where_the_run_stands(monkeypatch, status, words) -> None:
    monkeypatch.setattr("spark_jobs.runs.life.lifecycle._MOVED", {"a-run": status})
    assert words in interrupt.sentence("run")


def test_before_a_run_has_begun_nothing_can_have_changed(monkeypatch) -> None:
    monkeypatch.setattr("spark_jobs.runs.life.lifecycle._MOVED", {})
    assert interrupt.sentence("run").startswith("interrupted: nothing was staged or published")
    assert "only reads" in interrupt.sentence("plan")
