"""Take the first screens of three reports for docs/report.md: `python -m tests.report.first_screens docs/pictures`.

The reports are real. A project of rides is begun by `rewindow init`, its runs are those of the command line: a run that
changes nothing, a night with five late rides, and a comparison with a live job that has counted four hours twice. Some
minutes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from spark_jobs.runs.life.store import PAGE
from tests.browser import launched

LARGEST = 150_000
"""Bytes of one picture."""
_SIZE = {"width": 1200, "height": 900}
_MAY = datetime(2026, 5, 4, tzinfo=UTC)
_CITIES = (
    "Graz", "Wien", "Linz", "Salzburg", "Innsbruck", "Klagenfurt", "Villach", "Wels", "Steyr", "Bregenz", "Dornbirn",
    "Leoben", "Krems", "Traun", "Amstetten", "Baden", "Hallein", "Kufstein", "Lienz", "Eisenstadt",
)  # fmt: skip
_INIT = (
    "data/*.jsonl", "--name", "rides", "--engine", "flink", "--job", "datastream", "--time", "started", "--unit", "iso",
    "--key", "city", "--partition", "partition", "--offset", "offset", "--arrival", "arrived", "--arrival-kind",
    "append_time", "--bound", "5 min", "--window", "tumbling", "--size", "15 min", "--lateness", "0",
    "--aggregate", "rides=count(*)", "--aggregate", "revenue=sum(CAST(fare AS DECIMAL(10, 2)))", "--yes",
)  # fmt: skip
_TOLERANCE = "publish: {policy: within_tolerance, tolerance: {share: 0.1 %}}\n"
_LIVE = """live:
  source:
    kind: files
    path: emitted.jsonl
    format: json
    schema: "city STRING, window_start TIMESTAMP, window_end TIMESTAMP, rides BIGINT, revenue DECIMAL(20, 2)"
"""


def rides(count: int = 40_000) -> list[dict[str, Any]]:
    """Two days of rides in three partitions; one in fifty arrives half an hour late."""
    draw, at, found = random.Random(24), _MAY, list[dict[str, Any]]()
    for number in range(count):
        at += timedelta(milliseconds=draw.randint(500, 8_000))
        late = 1_800 if draw.random() < 0.02 else 0
        started = at - timedelta(seconds=draw.randint(0, 200) + late)
        fare = round(draw.uniform(3, 60), 2)
        found.append(ride(number, started, at, draw.choice(_CITIES), fare))
    return found


def ride(number: int, started: datetime, arrived: datetime, city: str, fare: float) -> dict[str, Any]:
    place = {"partition": number % 3, "offset": number // 3}
    return place | {"arrived": arrived.isoformat(), "city": city, "fare": fare, "started": started.isoformat()}


def late_rides(before: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Five rides of Graz, hours after their windows have closed."""
    at, start = datetime.fromisoformat(before[-1]["arrived"]), _MAY + timedelta(days=1, hours=9)
    times = [(start + timedelta(hours=n), at + timedelta(seconds=n + 1)) for n in range(5)]
    return [ride(len(before) + n, started, arrived, "Graz", 10.0) for n, (started, arrived) in enumerate(times)]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def emitted_by_a_wrong_job(windows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The windows as a job emits them that has read the records of four hours twice."""
    wrong = [str(_MAY + timedelta(days=1, hours=hour))[:13] for hour in range(8, 12)]
    return [
        window | {"rides": 2 * window["rides"], "revenue": 2 * float(window["revenue"])}
        if window["window_start"].replace("T", " ")[:13] in wrong
        else window
        for window in windows
        if window["rides"] is not None
    ]


class Project:
    """A project in a folder of its own, and its runs by the command line."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = os.environ | {"REWINDOW_HOME": str(folder / "home"), "COLUMNS": "200", "USER": "ada"}
        self.definition = folder / "dags/pipelines/rides.yaml"

    def rewindow(self, *arguments: str, code: int = 0) -> str:
        """What the command prints. Ends this process where the command ends with another code."""
        command = [str(Path(sys.executable).with_name("rewindow")), *arguments]
        done = subprocess.run(
            command, cwd=self._folder, env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode != code:
            sys.exit(f"{' '.join(arguments)} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def page(self) -> Path:
        """The newest report."""
        return max((self._folder / "home/runs").glob(f"*/{PAGE}"), key=lambda page: page.stat().st_mtime)


def pages(folder: Path) -> dict[str, Path]:
    """The reports, by the names of their pictures."""
    project, found, log = Project(folder), dict[str, Path](), rides()
    write(folder / "data/rides.jsonl", log)
    project.rewindow("init", *_INIT)
    text = project.definition.read_text().replace("end_of_input: flush ", "end_of_input: freeze")
    project.definition.write_text(text + _TOLERANCE)
    project.rewindow("run", "rides")
    project.rewindow("run", "rides")
    found["report-unchanged"] = project.page()
    query = "SELECT city, window_start, window_end, rides, revenue FROM rewindow.default.rides WHERE state = 'closed'"
    windows = [json.loads(line) for line in project.rewindow("sql", query, "--json").splitlines()]
    write(folder / "data/late.jsonl", late_rides(log))
    project.rewindow("reconcile", "rides", code=3)
    found["report-late-rides"] = project.page()
    project.rewindow("publish", found["report-late-rides"].parent.name, "--reason", "the app was offline")
    write(folder / "emitted.jsonl", emitted_by_a_wrong_job(windows))
    project.definition.write_text(project.definition.read_text() + _LIVE)
    project.rewindow("run", "rides", code=3)
    found["report-wrong-job"] = project.page()
    return found


def take(folder: Path) -> None:
    """The part of each page that is seen without scrolling, as a PNG."""
    with tempfile.TemporaryDirectory() as project, launched() as browser:
        for name, page_file in pages(Path(project)).items():
            page = browser.new_page(viewport=_SIZE)
            page.goto(page_file.as_uri())
            target = folder / f"{name}.png"
            page.screenshot(path=target)
            if target.stat().st_size > LARGEST:
                sys.exit(f"{target} has {target.stat().st_size:,} bytes, more than {LARGEST:,}")
            print(target, f"{target.stat().st_size:,} bytes")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
