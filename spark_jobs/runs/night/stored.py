"""The reading of a pipeline as the saved states of its runs have it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.positions import largest
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.runs.night.final import final_until
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.night.taken import ReadBefore
from spark_jobs.sources import names_of

KEY = "reading"
"""Where the saved state of a run has it."""


def reading_in(state: Mapping[str, Any]) -> Reading:
    """The reading in a saved state."""
    return Reading.from_json(state[KEY])


def read_before(
    spark: SparkSession, tables: Tables, pipeline: Pipeline, *, but: str | None = None
) -> ReadBefore | None:
    """The pipeline's reading: that of the whole run or night that was published last. None: there is none.

    A run over a part of the range has a reading of its own, which never takes its place. `but`: the run that asks.
    """
    if not all(spark.catalog.tableExists(name) for name in (tables.windows, tables.runs, tables.timeline_state)):
        return None
    states = spark.table(tables.timeline_state).where(F.col("pipeline") == pipeline.name)
    known = {row["run_id"]: row["state"] for row in states.select("run_id", "state").collect()}
    known.pop(but, None)
    if not known:
        return None
    of_these = F.col("run_id").isin(list(known)) & F.coalesce(F.col("whole"), F.lit(False))
    _, last = Ledger(spark, tables).latest_published(of_these)
    if last is None:
        return None
    names, reading = names_of(pipeline), reading_in(json.loads(known[last["run_id"]]))
    moved = [name for number, name in enumerate(reading.inputs) if name in names and names.index(name) != number]
    return ReadBefore(last["run_id"], reading.numbered_as(names), tuple(moved))


def with_final(
    spark: SparkSession, tables: Tables, pipeline: Pipeline, before: ReadBefore, reading: Reading
) -> Reading:
    """The reading, with what was final before the first record that is still there, by the closes of the run before."""
    if not reading.has_gone:
        return reading
    states = spark.table(tables.timeline_state).where(F.col("run_id") == before.run_id)
    steps = next((row[0] for row in states.select("steps").collect()), None)
    until = None if steps is None else final_until(pipeline, reading, InMemoryTimeline.from_bytes(bytes(steps)))
    return replace(reading, final_until=largest(reading.final_until, until))
