"""`Evidence.java` in real Flink: windows, sessions and SQL on a local cluster, the same records in each."""

from __future__ import annotations

import os
import re
import subprocess
import time
from itertools import chain
from pathlib import Path

import pytest

from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.java import find_java
from tests.java import compiled, compiler, flink_path

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
ARTIFACTS = ("flink-clients", "flink-table-planner-loader", "flink-table-runtime", "flink-table-api-java-bridge")
# partition, offset, key, event time, value: one record comes within the allowed lateness, the last one after all.
RECORDS = (
    (0, 0, "a", 1_000, 1), (1, 0, "a", 4_000, 2), (0, 1, "b", 6_000, 4), (0, 2, "a", 13_000, 8),
    (1, 1, "a", 2_000, 16), (0, 3, "a", 30_000, 32), (1, 2, "a", 3_000, 64),
)  # fmt: skip
Emitted = tuple[str, int, int, int, dict[int, int]]


@pytest.fixture(scope="module")
def jars() -> str:
    """Flink's class path; skips where a registry does not give it."""
    try:
        return flink_path(*ARTIFACTS)
    except EnvironmentSetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def emitted(jars: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Emitted]]:
    """What the job of `tests/data/flink_evidence` emits, by kind."""
    if not compiler().exists():
        pytest.skip(f"there is no {compiler()}: this Java cannot compile")
    classes = tmp_path_factory.mktemp("classes")
    sources = [ROOT / "spark_jobs/project/files/Evidence.java", ROOT / "tests/data/flink_evidence/EvidenceJob.java"]
    compiled(sources, jars, classes)
    arguments = [",".join(map(str, record)) for record in RECORDS]
    command = [
        str(find_java().executable),
        "-Duser.timezone=UTC",
        "-Xmx400m",
        "-cp",
        f"{classes}{os.pathsep}{jars}",
        "EvidenceJob",
    ]
    began = time.time() * 1000
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[Emitted]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("ROW\t"):
            kind, key, start, end, value, offsets, at = line.split("\t")[1:]
            last = {int(p): int(o) for p, o in re.findall(r"(\d+)=(\d+)", offsets)}
            found.setdefault(kind, []).append((key, int(start), int(end), int(value), last))
            assert began < int(at) < time.time() * 1000
    return found


def test_each_row_holds_exactly_the_records_up_to_its_last_offsets(emitted: dict[str, list[Emitted]]) -> None:
    assert set(emitted) == {"tumbling", "session", "sql"}
    for key, start, end, value, last in chain(*emitted.values()):
        inside = [r for r in RECORDS if r[2] == key and start <= r[3] < end and r[1] <= last.get(r[0], -1)]
        assert sum(r[4] for r in inside) == value
        assert {r[0]: max(o[1] for o in inside if o[0] == r[0]) for r in inside} == last


def test_a_refined_window_has_the_late_record_and_no_row_has_the_dropped_one(emitted: dict[str, list[Emitted]]) -> None:
    panes = [row for row in emitted["tumbling"] if row[:3] == ("a", 0, 10_000)]
    assert [(row[3], row[4]) for row in panes] == [(3, {0: 0, 1: 0}), (19, {0: 0, 1: 1})]
    assert all(row[4].get(1, 0) < 2 for row in chain(*emitted.values()))
    assert ("a", 1_000, 7_000, 3, {0: 0, 1: 0}) in emitted["session"]  # two sessions that merged
