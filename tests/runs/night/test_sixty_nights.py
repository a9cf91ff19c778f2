"""Sixty nights of each shape of job, six days apart, in four parts: the tables are those of one full run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import DAY
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.accounts import check_account
from tests.runs.night.shapes import ROWS, deduplicated, look_up_in, looked_up, restarted, sessions, with_copies
from tests.runs.small_applications import APPLICATIONS, EMIT, OF_TASKS, defined
from tests.runs.small_nights import CASES, pipeline, tables_of
from tests.runs.small_runs import T0, write
from tests.runs.streaming_nights import WrittenQuery, batches_of, records_of
from tests.runs.streaming_nights import defined as query_of

NIGHTS = 15
PARTS = 4

Defined = Callable[[Path, str, int], Pipeline]


def of_days(draw: random.Random) -> list[dict]:
    """Some twenty records a night; one in ten is late by up to five nights."""
    rows, offsets = [], [0, 0]
    for night in range(NIGHTS):
        arrival = T0 + night * 6 * DAY
        for _ in range(draw.randrange(12, 30)):
            arrival += draw.choice((700, 1000, 2500, 20_000))
            behind = draw.randrange(60_000, 30 * DAY) if draw.random() < 0.1 else draw.randrange(12_000)
            partition, key = draw.randrange(2), draw.choice(("a", "b", None))
            time = max(T0, arrival - behind)
            rows.append({"p": partition, "o": offsets[partition], "a": arrival, "k": key, "t": time, "v": len(rows)})
            offsets[partition] += 1
    return rows


def of_case(folder: Path, name: str, part: int) -> Pipeline:
    return pipeline(folder, name, list(CASES)[part % len(CASES)])


def of_restarts(folder: Path, name: str, part: int) -> Pipeline:
    return restarted(folder, name, list(CASES)[part % len(CASES)], [T0 + 5_000])


def of_application(folder: Path, name: str, part: int, *, applications: list[dict]) -> Pipeline:
    return defined(folder / "data", name, applications[part % len(applications)])


SHAPES: dict[str, Defined] = {
    "aligned": of_case,
    "sessions": sessions,
    "duplicates": deduplicated,
    "lookup": looked_up,
    "restarts": of_restarts,
    "stream_time": partial(of_application, applications=APPLICATIONS),
    "tasks": partial(of_application, applications=[one for one in OF_TASKS if one["emission"] != EMIT]),
    "emit_strategy": partial(of_application, applications=[one for one in OF_TASKS if "advance" in one["window"]]),
}


def nights_of(records: list[dict]) -> Iterator[list[dict]]:
    for night in range(NIGHTS):
        low = T0 + night * 6 * DAY
        yield [one for one in records if (night == 0 or one["a"] >= low) and one["a"] < low + 6 * DAY]


def night_of(spark: SparkSession, nightly: Pipeline) -> str:
    """The account of a night is right; why it computed all windows, empty where it went on."""
    result = reconcile(spark, nightly, NoProgress())
    check_account(result)
    return "" if result.continued_from is not None else result.note


def assert_as_one_run(spark: SparkSession, nightly: Pipeline, full: Pipeline, notes: list[str]) -> None:
    """Few nights computed all windows, and the tables are those of one run."""
    assert sum(map(bool, notes)) < 4, notes
    with planned_records(spark, full) as (plan, planned):
        execute(spark, full, plan, NoProgress(), records=planned)
    assert tables_of(spark, nightly) == tables_of(spark, full)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("shape", SHAPES)
def test_fifteen_nights_end_in_the_tables_of_one_full_run(
    spark: SparkSession, tmp_path: Path, shape: str, part: int
) -> None:
    draw = random.Random(f"{shape} {part}")
    records, rows = of_days(draw), ROWS
    if shape == "duplicates":
        records = with_copies(draw, records)
    if shape == "lookup":
        look_up_in(spark, rows)
    nightly, notes = SHAPES[shape](tmp_path, f"sixty_{shape}_{part}", part), []
    for number, night in enumerate(nights_of(records)):
        write(tmp_path / "data", night, f"part-{number:02}.json")
        if shape == "lookup" and number % 4 == 3:
            rows = {**rows, "b": f"region {number}"}
            look_up_in(spark, rows)
        notes.append(night_of(spark, nightly))
    assert_as_one_run(spark, nightly, SHAPES[shape](tmp_path, f"sixty_{shape}_{part}_full", part), notes)


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("window", ["tumbling", "sliding", "session"])
def test_fifteen_nights_of_a_query_end_in_the_tables_of_one_full_run(
    spark: SparkSession, tmp_path: Path, window: str, part: int
) -> None:
    draw = random.Random(f"query {window} {part}")
    records = records_of(draw, 500)
    query = WrittenQuery(tmp_path, records, batches := batches_of(draw, records, 10_000))
    output = (window, ("append", "update", "complete")[part % 3] if window != "session" else "append", "last")
    nightly, notes = query_of(query, f"sixty_{window}_{part}", *output), []
    for cut in [*sorted(draw.sample(range(2, len(batches)), NIGHTS - 1)), len(batches)]:
        query.go_on(cut, pending=draw.random() < 0.5, ahead=draw.choice((0, 7)))
        notes.append(night_of(spark, nightly))
    assert_as_one_run(spark, nightly, query_of(query, f"sixty_{window}_{part}_full", *output), notes)
