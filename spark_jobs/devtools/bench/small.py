"""What small work costs: each command on the sample, as a process of its own, with its Spark jobs and its stages."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.devtools.bench.measure import Row
from spark_jobs.devtools.bench.workload import Bench
from spark_jobs.settings import Variable

PIPELINE = "departures_hourly"
_NIGHTS = ("2013-02-20T00:00:00Z", "2013-02-21T00:00:00Z")


@dataclass(frozen=True, slots=True)
class _Command:
    """A command line of the table; `goal` in seconds; `before` prepares the tables for it."""

    what: str
    arguments: Sequence[str]
    goal: int
    before: Sequence[Sequence[str]] = ()


_COMMANDS = (
    _Command("`rewindow check`", ("check", PIPELINE), 1),
    _Command("`rewindow plan`", ("plan", PIPELINE), 5),
    _Command("`rewindow run`, report included", ("run", PIPELINE, "--json"), 12),
    _Command(
        "a night in which nothing has arrived",
        ("reconcile", PIPELINE, "--until", _NIGHTS[0], "--json"),
        6,
        (("reconcile", PIPELINE, "--until", _NIGHTS[0]),),
    ),
    _Command(
        "a night with one new day of records",
        ("reconcile", PIPELINE, "--until", _NIGHTS[1], "--json"),
        12,
        (("reconcile", PIPELINE, "--until", _NIGHTS[0]),),
    ),
)


def small(bench: Bench) -> Iterator[Row]:
    """The commands of `_COMMANDS`, each with empty tables; the seconds of the process, the median of the rounds."""
    for command in _COMMANDS:
        measured = [_measured(command) for _ in range(bench.rounds)]
        seconds = statistics.median(one for one, _, _ in measured)
        _, jobs, stages = measured[-1]
        note = f"{jobs} Spark jobs" + (f"; {stages}" if stages else "")
        bench.log(f"{command.what}: {seconds:.1f} s, {note}")
        yield Row("small", command.what, seconds, target=f"{command.goal} s", note=note)


def _measured(command: _Command) -> tuple[float, int, str]:
    """The process's seconds, its Spark jobs, and the seconds of its stages."""
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "events"
        conf = Path(folder) / "conf"
        for made in (events, conf):
            made.mkdir()
        settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
        settings["spark.eventLog.compress"] = "false"
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        environ = {key: value for key, value in os.environ.items() if key not in (Variable.RUNS, Variable.CATALOG_CONF)}
        environ |= {Variable.HOME: str(Path(folder) / "home")}
        for arguments in command.before:
            _run(arguments, environ)
        began = time.monotonic()
        output = _run(command.arguments, environ | {"SPARK_CONF_DIR": str(conf)})
        seconds = time.monotonic() - began
        logs = [file for file in events.rglob("*") if file.is_file()]
        jobs = sum(file.read_text().count('"Event":"SparkListenerJobStart"') for file in logs)
        return seconds, jobs, _stages_of(output)


def _run(arguments: Sequence[str], environ: dict[str, str]) -> str:
    command = [sys.executable, "-m", "spark_jobs.cli", *arguments]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout


def _stages_of(output: str) -> str:
    """The seconds by stage of a run's JSON line; empty where a command prints none."""
    line = next((line for line in output.splitlines() if re.match(r'\{.*"timings"', line)), None)
    timings = json.loads(line)["timings"] if line else {}
    return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in timings.items())
