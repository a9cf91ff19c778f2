"""A checkpoint that is put back from a copy begins another life of its query: no batch of the other one counts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.engines.spark.kept import keep_batches
from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.runs.small_nights import tables_of
from tests.runs.streaming_nights import SECOND, Planned, WrittenQuery, defined, records_of
from tests.sampling import one_of

RESTORED = 5
"""The last batch of the copy."""


def batches_of_sizes(records: list[dict], sizes: Sequence[int]) -> list[Planned]:
    """Batches that read so many records each."""
    made, ends, done, watermark = [], [0, 0], 0, 0
    for size in sizes:
        read = records[done : done + size]
        for record in read:
            ends[record["p"]] = record["o"] + 1
        made.append(Planned(read[-1]["a"] + 1, watermark, (ends[0], ends[1])))
        watermark = max([watermark, *(r["t"] - 10 * SECOND for r in read if r["t"] is not None)])
        done += size
    return made


def put_back(query: WrittenQuery, new_life: list[Planned]) -> None:
    """Put the checkpoint back to the batches of a copy; from there on it runs other ones."""
    for part in ("offsets", "commits"):
        for file in (query.checkpoint / part).iterdir():
            if int(file.name) > RESTORED:
                file.unlink()
    query.batches, query._written = new_life, RESTORED + 1


def started(
    spark: SparkSession, folder: Path, name: str, old: Sequence[int], new: Sequence[int]
) -> tuple[WrittenQuery, Pipeline]:
    """A query of 240 records with ten published batches of the life `old`; its checkpoint is put back to `RESTORED`."""
    records = records_of(random.Random("lives"), 240)
    query = WrittenQuery(folder, records, batches_of_sizes(records, old))
    query.go_on(10, pending=False, ahead=240)
    pipeline = defined(query, name, "tumbling", "append", "last")
    reconcile(spark, pipeline, NoProgress())
    put_back(query, batches_of_sizes(records, new))
    return query, pipeline


def as_a_fresh_run(spark: SparkSession, query: WrittenQuery, pipeline: Pipeline, name: str) -> None:
    fresh = defined(query, name, "tumbling", "append", "last")
    with planned_records(spark, fresh) as (plan, records):
        execute(spark, fresh, plan, NoProgress(), records=records)
    assert tables_of(spark, pipeline) == tables_of(spark, fresh)


LIVES = {"smaller": ([12] * 6 + [40] * 4, [12] * 20), "larger": ([12] * 20, [12] * 6 + [20] * 8)}


@one_of(2, 0)
@pytest.mark.parametrize("new", ["smaller", pytest.param("larger", marks=pytest.mark.long)])
def test_batches_of_the_life_that_was_given_up_never_count(spark: SparkSession, tmp_path: Path, new: str) -> None:
    query, pipeline = started(spark, tmp_path, f"restored_{new}", *LIVES[new])
    night = reconcile(spark, pipeline, NoProgress())
    assert "a full run" in night.note
    as_a_fresh_run(spark, query, pipeline, f"restored_{new}_not_started")
    for until in (8, 12):
        query.go_on(until, pending=False, ahead=0)
        reconcile(spark, pipeline, NoProgress())
        as_a_fresh_run(spark, query, pipeline, f"restored_{new}_{until}")
    query.forget(2)
    query.go_on(14, pending=False, ahead=0)
    night = reconcile(spark, pipeline, NoProgress())
    assert "full" not in night.note, "the archive has the new life now: the night goes on"
    query.remember()
    as_a_fresh_run(spark, query, pipeline, f"restored_{new}_purged")


@one_of(2, 1)
def test_archived_batches_that_nobody_can_prove_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    query, pipeline = started(spark, tmp_path, "restored_unproven", *LIVES["smaller"])
    query.go_on(12, pending=False, ahead=0)
    query.forget(4)
    archive = spark.table(Tables.of(pipeline).checkpoint)
    kept = archive.count()
    for refused in (lambda: keep_batches(spark, pipeline), lambda: reconcile(spark, pipeline, NoProgress())):
        with pytest.raises(HistoryError, match="before batch 8 are its own: batch 8 is another one"):
            refused()
    with pytest.raises(HistoryError, match="before batch 8"), planned_records(spark, pipeline):
        pass
    assert archive.count() == kept


def test_with_gaps_their_records_are_placed_by_their_append_time(spark: SparkSession, tmp_path: Path) -> None:
    query, pipeline = started(spark, tmp_path, "restored_gap", *LIVES["smaller"])
    query.go_on(12, pending=False, ahead=0)
    query.forget(4)
    watermark = {"delay": "10 s", "checkpoint": str(query.checkpoint), "gaps": "approximate", "trigger": "10 s"}
    pipeline = defined(query, "restored_gap", "tumbling", "append", "last", watermark=watermark)
    with planned_records(spark, pipeline) as (plan, records):
        assert plan.fidelity == "approximate"
        assert any("batches of the query are missing" in reason for reason in plan.fidelity_reasons)
        execute(spark, pipeline, plan, NoProgress(), records=records)
    queries = {row["query"] for row in spark.table(Tables.of(pipeline).checkpoint).select("query").collect()}
    assert len(queries) == 2, "the batches of the other life stay in the table under another name"
    night = reconcile(spark, pipeline, NoProgress())
    assert "nothing has arrived" in night.note or "full" in night.note
