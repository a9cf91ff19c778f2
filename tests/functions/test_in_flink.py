"""One class in a real Flink job and in a definition: each firing of each window has the same value."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.spark.java import find_java
from tests.functions.definitions import READING, defined
from tests.java import compiled, flink_path
from tests.runs.small_runs import T0, run, write

pytestmark = pytest.mark.long

HERE = Path(__file__).parent
ARTIFACTS = ("flink-clients", "flink-table-api-java-bridge")


@pytest.fixture(scope="module")
def fired(jobs_jar: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, int, float]]]:
    """What Flink emits, firing by firing, by the kind of windows."""
    path = f"{jobs_jar}{os.pathsep}{flink_path(*ARTIFACTS)}"
    classes = tmp_path_factory.mktemp("flink")
    compiled([HERE / "FunctionsJob.java"], path, classes)
    command = [str(find_java().executable), "-Xmx400m", "-cp", f"{classes}{os.pathsep}{path}", "FunctionsJob"]
    given = [f"{one['k']},{one['t']},{one['v']}" for one in records()]
    done = subprocess.run([*command, *given], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[tuple[str, int, float]]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("ROW\t"):
            _, kind, key, start, value = line.split("\t")
            found.setdefault(kind, []).append((key, int(start), float(value)))
    return found


def records() -> list[dict]:
    """Three minutes of two sensors in one partition, every seventh record 40 s behind."""
    behind = (40_000 if i % 7 == 6 else 0 for i in range(180))
    return [
        {"p": 0, "o": i, "a": T0 + i * 1000, "k": "ab"[i % 2], "t": T0 + i * 1000 - late, "v": i * 37 % 101}
        for i, late in enumerate(behind)
    ]


@pytest.mark.parametrize(
    ("kind", "window", "more"),
    [
        ("tumbling", "{type: tumbling, size: 1 min}", "panes: all\nallowed_lateness: 5 min\n"),
        ("sliding", "{type: sliding, size: 1 min, slide: 20 s}", "panes: all\n"),
    ],
)
def test_each_firing_is_flinks(spark, project, fired, kind, window, more) -> None:
    write(project / "data", records())
    pipeline = defined(
        project,
        f"as_flink_{kind}",
        aggregates={"own": f"median_of({READING})"},
        keys="{k: k}",
        window=window,
        more=more,
    )
    path = Path(pipeline.file)
    path.write_text(path.read_text().replace("partitions: [0, 1]", "partitions: [0]"))
    run(spark, load_pipeline(path))
    rows = spark.table(Tables.of(pipeline).windows).where("own IS NOT NULL").collect()
    ours = sorted((row.k, int(row.window_start.timestamp() * 1000), row.pane, row.own) for row in rows)
    theirs, seen = [], dict[tuple[str, int], int]()
    for key, start, value in fired[kind]:
        number = seen.get((key, start), -1) + 1
        seen[key, start] = number
        theirs.append((key, start, number, value))
    assert len(theirs) > 8
    assert ours == sorted(theirs)
