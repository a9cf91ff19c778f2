"""What small work costs: each command on the sample, as a process of its own, with its Spark jobs and its stages.

Each is measured with a JVM of its own, as the first command of a day has it, and with the warm JVM of earlier commands.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.settings import Variable
from tests.bench.measure import Row
from tests.bench.workload import Bench

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
        for warm in (False, True):
            measured = [_measured(command, warm=warm) for _ in range(bench.rounds)]
            seconds = statistics.median(one for one, _, _ in measured)
            _, jobs, stages = measured[-1]
            note = f"{jobs} Spark jobs" + (f"; {stages}" if stages else "")
            what = f"{command.what}, {'warm' if warm else 'first'}"
            bench.log(f"{what}: {seconds:.1f} s, {note}")
            yield Row("small", what, seconds, target=f"{command.goal} s", note=note)
    seconds, (backfill, night) = _demo()
    yield Row("small", "backfill in Airflow, trigger to the end", backfill, target="35 s")
    yield Row("small", "`rewindow demo`", seconds, target="90 s", note=f"the night in Airflow {night:.1f} s")


def _measured(command: _Command, *, warm: bool) -> tuple[float, int, str]:
    """The process's seconds, its Spark jobs, and the seconds of its stages."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events, conf, home = folder / "events", folder / "conf", folder / "home"
        for made in (events, conf, home):
            made.mkdir()
        settings = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": events.as_uri()}
        settings["spark.eventLog.compress"] = "false"
        (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        environ = {key: value for key, value in os.environ.items() if key not in (Variable.RUNS, Variable.CATALOG_CONF)}
        environ |= {
            Variable.HOME: str(home), "SPARK_CONF_DIR": str(conf), Variable.SPARK_IDLE_MINUTES: "1" if warm else "0",
            "XDG_RUNTIME_DIR": name,
        }  # fmt: skip
        if warm:
            for arguments in (*command.before, command.arguments):
                _run(arguments, environ)
            _empty(home)
        for arguments in command.before:
            _run(arguments, environ)
        for earlier in events.iterdir():
            shutil.rmtree(earlier) if earlier.is_dir() else earlier.unlink()
        began = time.monotonic()
        output = _run(command.arguments, environ).stdout
        seconds = time.monotonic() - began
        logs = events.rglob("events_*")  # the others are renamed when the application ends
        jobs = sum(file.read_text().count('"Event":"SparkListenerJobStart"') for file in logs)
        if warm:
            _run(("spark", "stop"), environ)
        return seconds, jobs, _stages_of(output)


def _empty(home: Path) -> None:
    """Remove tables and runs, and leave the log of the JVM that goes on."""
    for found in home.iterdir():
        if found.name != "logs":
            shutil.rmtree(found) if found.is_dir() else found.unlink()


def _demo() -> tuple[float, list[float]]:
    """The seconds of `rewindow demo`, and of its two runs in Airflow."""
    with tempfile.TemporaryDirectory() as home:
        began = time.monotonic()
        output = _run(("demo",), {**os.environ, Variable.HOME: home}).stdout
        seconds = time.monotonic() - began
    return seconds, [float(found) for found in re.findall(r"ended as \w+ after ([\d.]+) s", output)]


def _run(arguments: Sequence[str], environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spark_jobs.cli", *arguments]
    return subprocess.run(command, env=environ, check=True, capture_output=True, text=True)


def _stages_of(output: str) -> str:
    """The seconds by stage of a run's JSON line; empty where a command prints none."""
    line = next((line for line in output.splitlines() if re.match(r'\{.*"timings"', line)), None)
    timings = json.loads(line)["timings"] if line else {}
    return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in timings.items())
