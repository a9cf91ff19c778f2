"""Runs of a job that drops duplicates: as runs over a log in which there never were any."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.lakehouse.change import VISIBLE
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.documents import Changes, Request, Requested
from spark_jobs.runs.life.status import RunKind, Stage
from spark_jobs.runs.life.store import DEFINITION, RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.submit.application import execute_stage, plan_stage
from tests.runs.small_runs import T0, definition_text, record, run, write
from tests.sampling import IN_FULL, first_of
from tests.sequential.flink import FirstByProcessingTime

WITHIN = 5 * MINUTE
DEDUPLICATE = {
    "processing_time": "deduplicate: {by: [k, v], kind: processing_time, within: 5 min}\n",
    "row_time": "deduplicate: {by: v}\n",
}


def log(first: int, last: int) -> list[dict]:
    """Records first .. last - 1 and copies of every third one: one soon, one after the time to live."""
    sent = []
    for i in range(first, last):
        one = record(i)
        sent.append(one)
        if i % 3 == 0:
            sent += [{**one, "a": one["a"] + 2500}, {**one, "a": one["a"] + WITHIN + 700}]
    sent.sort(key=lambda one: (one["a"], one["p"]))
    return sent


def with_offsets(records: list[dict]) -> list[dict]:
    reached = {0: 0, 1: 0}
    for one in records:
        one["o"] = reached[one["p"]]
        reached[one["p"]] += 1
    return records


def without_copies(records: list[dict], within: int | None) -> list[dict]:
    first = FirstByProcessingTime(within)
    return [one for one in records if first.takes(one["v"], one["a"])]


def defined(folder: Path, name: str, kind: str | None) -> Pipeline:
    path = folder / f"{name}.yaml"
    text = definition_text(name, folder / f"{name}_data", end="freeze", namespace="deduplicated")
    path.write_text(text + (DEDUPLICATE[kind] if kind else ""))
    return load_pipeline(path)


def published(spark: SparkSession, pipeline: Pipeline) -> tuple[set[tuple], set[tuple]]:
    tables = Tables.of(pipeline)
    windows = spark.table(tables.windows).where("valid_to IS NULL").select(
        "k", "window_start", "n", "total", "n__complete", "records_on_time", "records_dropped", "pane", "state"
    )  # fmt: skip
    late = spark.table(tables.late).select("partition", "event_time", "window_start", "windows_missed")
    return {tuple(row) for row in windows.collect()}, {tuple(row) for row in late.collect()}


def in_stages(spark: SparkSession, pipeline: Pipeline, run_id: str) -> Changes:
    """What a run changes of which each stage is a process of its own, as in Airflow."""
    folder = RunStore.configured().folder(run_id)
    asked = Requested(chunks=2)
    Request.of(run_id, pipeline, RunKind.BACKFILL, "", datetime.now(UTC), asked).write(folder)
    folder.write_text(DEFINITION, pipeline.text)
    plan_stage(spark, folder, pipeline, NoProgress(), ExitStack())
    for stage, chunk in ((Stage.TIMELINE, None), (Stage.REPLAY, 1), (Stage.REPLAY, 2), (Stage.VERIFY, None)):
        execute_stage(spark, folder, pipeline, NoProgress(), stage, chunk)
    changes = Changes.read(folder)
    assert changes is not None
    return changes


@pytest.mark.long
@pytest.mark.parametrize("kind", first_of(["processing_time", "row_time"]))
def test_backfills_of_parts_and_a_night_are_as_if_there_were_no_copies(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    within = WITHIN if kind == "processing_time" else None
    everything = with_offsets(log(0, 1200))
    middle = next(n for n, one in enumerate(everything) if one["a"] > T0 + 15 * MINUTE)
    with_copies, plain = defined(tmp_path, f"copies_{kind}", kind), defined(tmp_path, f"plain_{kind}", None)

    def arrive(part: str, records: list[dict]) -> None:
        write(tmp_path / f"{with_copies.name}_data", records, f"{part}.json")
        alone = [one for one in records if one in kept]
        write(tmp_path / f"{plain.name}_data", alone, f"{part}.json")

    kept = without_copies(everything, within)
    arrive("a", everything[:middle])
    first = run(spark, with_copies, chunks=3)
    run(spark, plain)
    assert published(spark, with_copies)[0] == published(spark, plain)[0]
    alone = [one for one in everything[:middle] if one in kept]
    assert first.counts.records_duplicate == middle - len(alone) > 100

    arrive("b", everything[middle:])
    night = reconcile(spark, with_copies, NoProgress())
    assert night.continued_from is not None, night.note
    reconcile(spark, plain, NoProgress())
    windows, late = published(spark, with_copies)
    assert (windows, late) == published(spark, plain)
    assert late
    copies = len(everything) - len(kept)
    assert first.counts.records_duplicate + night.counts.records_duplicate == copies

    if not IN_FULL:
        return
    part = run(spark, with_copies, start=T0 + 5 * MINUTE, end=T0 + 9 * MINUTE)
    assert part.changes.get("updated", 0) == part.changes.get("inserted", 0) == part.changes.get("retracted", 0) == 0
    assert part.counts.records_duplicate == copies

    changes = in_stages(spark, with_copies, f"stages-{kind}")
    assert not any(changes.counts.get(kind, 0) for kind in VISIBLE)
    assert changes.records_duplicate == copies
