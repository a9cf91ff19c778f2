"""What a run will cost: records and bytes to read, and seconds by stage, as the pipeline's own runs have taken them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.filesize import decimal

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.planning.plan_document import Cost
from spark_jobs.sources import OpenHistory, snapshot_size

_RUNS = 20
"""The latest runs that an estimate rests on."""


@dataclass(frozen=True, slots=True)
class Size:
    """The records and bytes of a history, as its metadata has them; None where that does not say it."""

    records: int | None = None
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What an earlier run has read and taken."""

    records: int
    seconds: Mapping[str, float]


def size_of(spark: SparkSession, opened: OpenHistory) -> Size:
    """The size of an open history, from offsets, file sizes or the snapshot's summary. No record is read."""
    if opened.inputs:
        sizes = [size_of(spark, one) for one in opened.inputs]
        return Size(_sum([size.records for size in sizes]), _sum([size.bytes for size in sizes]))
    if opened.snapshot is not None:
        return Size(*snapshot_size(spark, opened.snapshot))
    records = None if opened.topic is None else sum(max(0, r.end - r.start) for r in opened.topic.ranges)
    return Size(records, None if opened.files is None else sum(file.size for file in opened.files))


def _sum(known: Sequence[int | None]) -> int | None:
    return sum(one or 0 for one in known) if None not in known else None


def estimated(records: int, size: int | None, runs: Sequence[Taken]) -> Cost:
    """The cost of a run over so many records.

    Between two runs of other sizes, the seconds of a stage lie on the line between theirs; above the largest they grow
    with the records; below the smallest they are at most its seconds.
    """
    by_stage: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for stage, seconds in run.seconds.items():
            by_stage[stage][run.records].append(seconds)
    found = {}
    for stage, by_records in by_stage.items():
        sizes = sorted(by_records)
        seconds = [median(by_records[n]) for n in sizes]
        beyond = records / sizes[-1] if 0 < sizes[-1] < records else 1.0
        found[stage] = round(float(np.interp(records, sizes, seconds)) * beyond, 3)
    return Cost(records, size, found, len(runs))


def runs_taken(spark: SparkSession, pipeline: Pipeline, mode: str) -> list[Taken]:
    """The latest published runs of this pipeline over a whole history, with the same values; the latest one first."""
    tables = Tables.of(pipeline)
    if not spark.catalog.tableExists(tables.runs):
        return []
    rows = (
        Ledger(spark, tables)
        .published_runs()
        .where((F.col("kind") == RunKind.BACKFILL.value) & (F.col("mode") == mode))
        .where("records_read > 0 AND timings IS NOT NULL")
        .orderBy("finished_at", ascending=False)
        .select("records_read", "timings")
        .limit(_RUNS)
        .collect()
    )
    return [Taken(row[0], row[1]) for row in rows]


def check_size(pipeline: Pipeline, size: Size) -> None:
    """Raises DefinitionError where a history is larger than `limits` allow, before a record of it is read."""
    limits = pipeline.limits
    if limits.records is not None and size.records is not None and size.records > limits.records:
        raise _beyond(pipeline, "records", f"{size.records:,} records", f"{limits.records:,}")
    if limits.bytes is not None and size.bytes is not None and size.bytes > limits.bytes:
        raise _beyond(pipeline, "bytes", decimal(size.bytes), decimal(limits.bytes))


def check_cost(pipeline: Pipeline, cost: Cost) -> None:
    """Raises DefinitionError where a run costs more than `limits` allow."""
    check_size(pipeline, Size(cost.records, cost.bytes))
    limit = pipeline.limits.duration
    if limit is not None and cost.total is not None and cost.total * 1000 > limit:
        about = format_duration(round(cost.total) * 1000)
        raise _beyond(pipeline, "duration", f"about {about}", format_duration(limit))


def _beyond(pipeline: Pipeline, name: str, found: str, limit: str) -> DefinitionError:
    verb = "would take" if name == "duration" else "would read"
    return DefinitionError(
        f"the run {verb} {found}, and the definition allows {limit}",
        pipeline.source_of(("limits", name)) or pipeline.name,
        f"If that is meant, allow it (--beyond-limits), or raise limits.{name}.",
    )
