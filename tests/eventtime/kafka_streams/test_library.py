"""The sequential model against the real library, by its own TopologyTestDriver, over random histories."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java
from tests.conformance.kstreams_case import StreamsCase
from tests.conformance.kstreams_sequential import run_sequential
from tests.eventtime.kafka_streams.histories import random_case

PACKAGE = "org.apache.kafka:kafka-streams-test-utils:4.1.1"
SOURCE = Path(__file__).parent / "library" / "StreamsOracle.java"
SEEDS = range(500)


def rows_of_the_library(cases: list[StreamsCase]) -> list[list[list[Any]]]:
    """Of each case the rows: record, partition, key, start, end, timestamp, count, offsets of records with a value."""
    jars = fetch_jars(PACKAGE, "Kafka Streams")
    command = [str(find_java().executable), "-Xmx1g", "-cp", f"{jars}/*", str(SOURCE)]
    given = "".join(json.dumps({"config": c.config, "records": c.document["records"]}) + "\n" for c in cases)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=1_800, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return [
        [_row(case, row) for row in json.loads(line)]
        for case, line in zip(cases, done.stdout.splitlines(), strict=True)
    ]


def _row(case: StreamsCase, row: dict[str, Any]) -> list[Any]:
    identity = [row[name] for name in ("record", "partition", "key", "start", "end", "timestamp")]
    if row["held"] is None:
        return [*identity, None, None]
    held = row["held"].split(",")[1:]
    return [*identity, len(held), sorted(case.records[int(number)].offset for number in held if number != "n")]


@pytest.mark.long
def test_the_model_gives_every_row_that_the_library_gives() -> None:
    cases = [random_case(seed, restarts=False) for seed in SEEDS]
    for seed, case, wanted in zip(SEEDS, cases, rows_of_the_library(cases), strict=True):
        rows = run_sequential(case).rows
        ours = [[*row[:7], None if row[11] is None else [o for o in row[11] if o is not None]] for row in rows]
        assert ours == wanted, f"seed {seed}: {case.config}"
