"""A script of two source subtasks, imported, gives the rows of real Flink for the same records in the same order."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.project.flink_import import import_script
from spark_jobs.project.flink_parser import FlinkParser
from spark_jobs.spark.java import find_java
from tests.java import compiled, flink_path
from tests.runs.small_runs import run
from tests.tools.flink_sql.record import HERE, OPENED
from tests.tools.flink_values import ARTIFACTS

pytestmark = pytest.mark.long

START = 1_709_290_800_000  # 2024-03-01T11:00:00Z
FUNCTIONS = {
    "tumble": "TUMBLE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
    "hop": "HOP(TABLE events, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '2' MINUTE)",
    "cumulate": "CUMULATE(TABLE events, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)",
}
KAFKA = "'connector' = 'kafka', 'topic' = 'events', 'format' = 'json', 'properties.bootstrap.servers' = 'b:9092'"
TABLE = f"""
SET 'parallelism.default' = '2';
CREATE TABLE events (k STRING, ts TIMESTAMP(3), v BIGINT, mark BIGINT, WATERMARK FOR ts AS ts - INTERVAL '2' SECOND)
WITH ({KAFKA}, 'scan.watermark.emit.strategy' = 'on-event');
"""
SCRIPT = TABLE + "".join(
    f"INSERT INTO {name} SELECT k, window_start, window_end, COUNT(*) AS n, SUM(v) AS total\n"
    f"FROM TABLE({function}) GROUP BY k, window_start, window_end;\n"
    for name, function in FUNCTIONS.items()
)
SUBTASKS = [[0, 2], [1]]


def records(seed: int, count: int = 400) -> list[list[Any]]:
    """Partition, offset, arrival, key, event time, value; partition 1 is behind, and each has late records."""
    chance, offsets = random.Random(seed), Counter[int]()
    found = []
    for place in range(count):
        partition = chance.randrange(3)
        behind = chance.choice([0, 0, 0, 0, 3, 20, 70, 150]) + 40 * (partition == 1)
        time = START + place * 3000 - 1000 * behind + chance.randrange(1000)
        found.append([partition, offsets[partition], START + place * 3000, chance.choice("abc"), time, place])
        offsets[partition] += 1
    return found


def in_flink(given: list[list[Any]], folder: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of each query of the script, by real Flink, one record after the other over two source subtasks."""
    table, *inserts = (part for part in SCRIPT.split(";\n") if "CREATE" in part or "INSERT" in part)
    jobs = [
        {
            "name": name,
            "settings": {},
            "table": table.replace(KAFKA, "'connector' = 'script'"),
            "query": insert.partition("SELECT")[1] + insert.partition("SELECT")[2],
            "subtasks": SUBTASKS,
            "clock_start": START,
            "interval": 0,
            "assigner_interval": 0,
            "records": given,
            "steps": [["record", place] for place in range(len(given))],
            "flush": True,
        }
        for name, insert in zip(FUNCTIONS, inserts, strict=True)
    ]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    jars, classes = flink_path(*ARTIFACTS), folder / "classes"
    classes.mkdir()
    compiled((HERE / "java").glob("*.java"), jars, classes)
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in OPENED]
    path = f"{classes}:{HERE / 'java'}:{jars}"
    command = [str(find_java().executable), "-Xmx700m", *opened, "-cp", path, "Recorder", "jobs.jsonl", "found.jsonl"]
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    found = [json.loads(line) for line in (folder / "found.jsonl").read_text().splitlines()]
    assert [one["error"] for one in found] == [None] * len(jobs)
    assert all("LocalWindowAggregate" in one["plan"] for one in found)
    return {one["name"]: Counter(tuple(row[2:]) for row in one["rows"]) for one in found}


def defined(text: str, folder: Path) -> Pipeline:
    """An imported definition over files in the place of the topic, with what it asks for."""
    files = (
        f"history:\n  kind: files\n  path: {folder}/data/*.jsonl\n  format: json\n"
        "  position: {partition: part, offset: place, arrival: arrived, arrival_unit: ms}\nvalue:\n"
    )
    text = re.sub(r"(?ms)^history:.*?^value:\n  format: json[^\n]*\n", files, text)
    text = text.replace('schema: "', 'schema: "part INT, place BIGINT, arrived BIGINT, ')
    text = re.sub(r"(?m)^  # subtasks: .*$", f"  subtasks: {SUBTASKS}", text)
    text = text.replace("end_of_input: freeze", "end_of_input: flush") + "output: {namespace: beside}\n"
    (name,) = re.findall(r"(?m)^name: (\w+)", text)
    return load_pipeline(folder / f"{name}.yaml", text=text)


@pytest.mark.parametrize("seed", [1, 2])
def test_an_imported_script_of_two_subtasks_gives_the_rows_of_flink(spark, tmp_path: Path, seed: int) -> None:
    given = records(seed)
    (tmp_path / "data").mkdir()
    lines = [
        {"part": p, "place": o, "arrived": a, "k": k, "v": v, "mark": 0,
         "ts": f"{datetime.fromtimestamp(t / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]}
        for p, o, a, k, t, v in given
    ]  # fmt: skip
    (tmp_path / "data/events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    try:
        theirs = in_flink(given, tmp_path)
    except EnvironmentSetupError as error:
        pytest.skip(str(error))
    with FlinkParser() as parser:
        imported = import_script(SCRIPT, "job.sql", parser).definitions
    for one in imported:
        pipeline = defined(one.text, tmp_path)
        run(spark, pipeline)
        rows = spark.table(Tables.of(pipeline).windows).where("valid_to IS NULL AND n IS NOT NULL")
        columns = ("k", "unix_millis(window_start)", "unix_millis(window_end)", "n", "total")
        assert Counter(tuple(row) for row in rows.selectExpr(*columns).collect()) == theirs[one.name]
        assert spark.table(Tables.of(pipeline).late).count() > 0
