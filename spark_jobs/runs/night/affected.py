"""The windows that new records can have changed.

A run has published up to its end offsets, and has saved its timeline. The records that arrived since belong to certain
windows. Only those windows can have changed, and the ones that were not closed for good then: the decision on an
earlier record stays, because a close that is known does not move. So a reconciliation reads the new records, and of the
earlier ones only those of the affected windows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables, starts_within
from spark_jobs.pins import ClockBound
from spark_jobs.positions import largest
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.windows import windows_of_records
from spark_jobs.runs.life.start import ANOTHER_PROGRAM, check_owner, foreign_change
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.night.stored import reading_in
from spark_jobs.runs.night.taken import ReadBefore
from spark_jobs.sources import Inspection, PartitionRange
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.joins import matching


@dataclass(frozen=True)
class PreviousRun:
    """The published run to go on from: its end offsets, timer (epoch ms), timeline and its state.

    `records`: how many records it and the runs before it have read. `reading`: what its results stand on.
    """

    run_id: str
    as_of: dict[int, int]
    processing_time_end: int
    state: dict[str, Any]
    steps: InMemoryTimeline
    records: int
    reading: Reading

    @property
    def clocks(self) -> tuple[ClockBound, ...]:
        """The arrivals that were ahead of records behind them, under a union's partition numbers."""
        return tuple(ClockBound(*bound) for bound in self.state["clocks"])

    @property
    def last_arrivals(self) -> dict[int, int]:
        """The last arrival of each partition."""
        return {int(partition): at for partition, at in self.state["last_arrivals"].items()}

    @property
    def read(self) -> ReadBefore:
        """The reading with the run's id."""
        return ReadBefore(self.run_id, self.reading)


def run_before(spark: SparkSession, tables: Tables, pipeline: Pipeline) -> tuple[PreviousRun | None, str]:
    """The published run that a reconciliation can go on from; None, and why a full run is due.

    It stands for all windows up to its end offsets. Later runs of a part of the range do no harm: what arrived before
    them counts as new once more, and what comes out the same changes nothing. Raises DefinitionError where the table is
    another pipeline's.
    """
    is_same = (
        F.col("definition_hash").eqNullSafe(pipeline.definition_hash)
        & F.col("mode").eqNullSafe(pipeline.mode.value)
        & F.coalesce(F.col("panes") == pipeline.panes, F.lit(True))
    )
    last = run = None
    if spark.catalog.tableExists(tables.runs):
        last, run = Ledger(spark, tables).latest_published(~is_same | F.coalesce("whole", F.lit(False)))
    if last is None:
        return None, "nothing has been published yet"
    check_owner(pipeline, tables, last)
    changed = foreign_change(spark, tables, last)
    if changed is not None:
        return None, f"{ANOTHER_PROGRAM}: {changed}"
    if run is not None and (
        run["definition_hash"] != pipeline.definition_hash
        or run["mode"] != pipeline.mode
        or run["panes"] not in (None, pipeline.panes)
    ):
        return None, f"run {run['run_id']} was of another definition, mode or choice of panes"
    if run is None or not run["whole"] or run["table_id"] not in (None, last["table_id"]):
        return None, "no run has covered the whole history"
    rows = (
        spark.table(tables.timeline_state)
        .where((F.col("pipeline") == pipeline.name) & (F.col("run_id") == run["run_id"]))
        .select("*", F.unix_millis("processing_time_end").alias("until"))
        .collect()
    )
    if not rows or rows[0]["steps"] is None:
        return None, f"run {run['run_id']} kept no timeline"
    row = rows[0]
    steps = InMemoryTimeline.from_bytes(bytes(row["steps"]))
    state = json.loads(row["state"])
    as_of = dict(row["as_of"])
    return PreviousRun(row["run_id"], as_of, row["until"], state, steps, state["records"], reading_in(state)), ""


@dataclass(frozen=True)
class AffectedWindows:
    """What new records can have changed: all windows with a start in `recent`, and before it the windows of `pairs`.

    `older` spans the starts of the pairs before `recent`; None: there are none, and `pairs` may be None. Windows behind
    `recent` are left alone: another run may publish them meanwhile.
    """

    recent: TimeRange
    older: TimeRange | None
    pairs: DataFrame | None

    def in_scope(self, windows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        """The published windows that are recomputed."""
        recent = windows.where(starts_within(self.recent))
        if self.older is None or self.pairs is None:
            return recent
        older = windows.where(starts_within(TimeRange(self.older.start, self.recent.start)))
        wanted = self.pairs.withColumns({c: F.timestamp_millis(c) for c in (START, END)})
        return recent.unionByName(matching(older, wanted, (*keys, START, END)))


def affected_windows(
    new: DataFrame,
    spec: ReplaySpec,
    before: PreviousRun,
    published: TimeRange,
    cache: CachedFrames,
    changed: Sequence[DataFrame] = (),
) -> AffectedWindows:
    """The windows that the `new` records can have changed; `published` spans the starts that are published.

    `changed`: records that were read before and are others now, as they were and as they are.
    """
    found = (windows_of_records(records, spec) for records in (new, *changed))
    pairs = cache.keep_keys(reduce(lambda some, more: some.unionByName(more).distinct(), found))
    first, last = pairs.agg(F.min(START), F.max(START)).collect()[0]
    first, last = (published.start, published.end) if first is None else (first, last)
    lowest, end = min(first, published.start), max(last + 1, published.end)
    undecided = before.steps.never_from
    closed = spec.windows.closed_until(undecided - spec.allowed_lateness) if undecided != MIN_TIMESTAMP else undecided
    low = lowest if undecided == MIN_TIMESTAMP else closed - spec.aligned_windows.longest
    low = min(max(low, lowest), end)
    older_pairs = pairs.where(F.col(START) < F.lit(low))
    bounds = older_pairs.agg(F.min(START), F.max(START)).collect()[0]
    older = None if bounds[0] is None else TimeRange(bounds[0], bounds[1] + 1)
    return AffectedWindows(TimeRange(low, end), older, older_pairs)


def merged(before: PreviousRun, seen: Inspection) -> tuple[PartitionRange, ...]:
    """The end offsets after the new records. The ranges of offsets, and the counts, are those of the new records."""
    now = {p.partition: p for p in seen.partitions}
    known = {
        partition: PartitionRange(partition, end, end, None, before.last_arrivals.get(partition), 0)
        for partition, end in before.as_of.items()
    }
    joined = {
        partition: now[partition] if partition not in known else _with_news(known[partition], now.get(partition))
        for partition in sorted(known.keys() | now.keys())
    }
    return tuple(joined.values())


def _with_news(known: PartitionRange, seen: PartitionRange | None) -> PartitionRange:
    """A partition that is silent keeps its last arrival: processing time never falls back."""
    if seen is None:
        return known
    last = largest(known.last_arrival, seen.last_arrival)
    return replace(known, end_offset=seen.end_offset, last_arrival=last, records=seen.records)
