"""Recompute what new records have touched, and nothing else.

A run has published up to an as-of vector and kept its timeline. Of what arrived since, each record names the windows
that it belongs to. Those, and the windows that were not closed for good then, are all that can have changed: a record
that was there before keeps the decision that was made on it, since a close that is known does not move. So the input is
the new records, and of the old ones only those of touched windows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.assign import END, START, Span, longest
from spark_jobs.replay.columns import OFFSET, PARTITION, Held
from spark_jobs.replay.engine import EarlierSteps
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.steps import Steps
from spark_jobs.replay.windows import windows_of_records
from spark_jobs.sources import Inspection, PartitionRange


@dataclass(frozen=True)
class Before:
    """The published run to go on from: its as-of vector (end offsets), timer (epoch ms), timeline and its state."""

    run_id: str
    as_of: dict[int, int]
    processing_time_end: int
    state: dict[str, Any]
    steps: EarlierSteps


def run_before(spark: SparkSession, tables: Tables, pipeline: Pipeline) -> tuple[Before | None, str]:
    """The latest published run that a reconciliation can go on from; None, and why a full run is due."""
    if not spark.catalog.tableExists(tables.runs):
        return None, "nothing has been published yet"
    published = Ledger(spark, tables).published()
    if not published:
        return None, "nothing has been published yet"
    latest = published[0]
    if latest["definition_hash"] != pipeline.definition_hash:
        return None, f"the definition has changed since run {latest['run_id']}"
    whole = _covers_everything(published, latest)
    if not whole:
        return None, f"run {latest['run_id']} covers a part of the history only"
    rows = (
        spark.table(tables.timeline_state)
        .where((F.col("pipeline") == pipeline.name) & (F.col("run_id") == latest["run_id"]))
        .select("*", F.unix_millis("processing_time_end").alias("until"))
        .collect()
    )
    if not rows or rows[0]["steps"] is None:
        return None, f"run {latest['run_id']} kept no timeline that fits memory"
    row = rows[0]
    earlier = EarlierSteps(Steps.from_bytes(bytes(row["steps"])), row["watermark_below"] + 1)
    return Before(row["run_id"], dict(row["as_of"]), row["until"], json.loads(row["state"]), earlier), ""


def _covers_everything(published: list[Row], latest: Row) -> bool:
    """Whether the latest run and those it goes on from stand for all windows, not a part that a person chose."""
    return latest["kind"] == "reconcile" or bool(latest["whole"])


def arrived_since(records: DataFrame, as_of: Mapping[int, int]) -> DataFrame:
    """Records at or above the end offset of their partition; plain comparisons, which file formats can prune by."""
    partition, offset = F.col(PARTITION), F.col(OFFSET)
    new = ~partition.isin(*as_of) if as_of else F.lit(True)
    for known, end in sorted(as_of.items()):
        new = new | ((partition == known) & (offset >= F.lit(end)))
    return records.where(new)


@dataclass(frozen=True)
class Touched:
    """What new records can have changed: all windows with a start in `recent`, and before it the windows of `pairs`.

    `older` spans the starts of the pairs before `recent`; None: there are none.
    """

    recent: Span
    older: Span | None
    pairs: DataFrame

    def in_scope(self, windows: DataFrame, keys: tuple[str, ...]) -> DataFrame:
        """Of published windows those that are recomputed."""
        start = F.unix_millis("window_start")
        recent = windows.where(start >= F.lit(self.recent.start))
        if self.older is None:
            return recent
        older = windows.where((start >= F.lit(self.older.start)) & (start < F.lit(self.recent.start)))
        wanted = self.pairs.select(
            *(F.col(f"`{c}`").alias(f"rw_only_{c}") for c in keys),
            F.timestamp_millis(START).alias("rw_only_start"), F.timestamp_millis(END).alias("rw_only_end"),
        )  # fmt: skip
        same = [F.col(f"`{c}`").eqNullSafe(F.col(f"rw_only_{c}")) for c in keys]
        same += [F.col("window_start") == F.col("rw_only_start"), F.col("window_end") == F.col("rw_only_end")]
        return recent.unionByName(older.join(wanted, same, "left_semi"))


def touched_windows(new: DataFrame, spec: ReplaySpec, before: Before, last_start: int, held: Held) -> Touched:
    """The windows that the `new` records can have changed; `last_start` is the latest start that is published."""
    pairs = held.keep(windows_of_records(new, spec))
    reach = longest(spec.windows)
    undecided = before.steps.undecided_from
    recent_from = MIN_TIMESTAMP if undecided == MIN_TIMESTAMP else undecided - spec.allowed_lateness - reach
    first, last = pairs.agg(F.min(START), F.max(START)).collect()[0]
    if first is None:
        first = last = last_start
    low = max(recent_from, min(first, last_start) - reach)
    recent = Span(low, max(last, last_start) + 1)
    older_pairs = pairs.where(F.col(START) < F.lit(low))
    bounds = older_pairs.agg(F.min(START), F.max(START)).collect()[0]
    older = None if bounds[0] is None else Span(bounds[0], bounds[1] + 1)
    return Touched(recent, older, older_pairs)


def merged(before: Before, seen: Inspection) -> tuple[PartitionRange, ...]:
    """The as-of vector after the new records: what was read before, and what is new."""
    now = {p.partition: p for p in seen.partitions}
    known = {
        partition: PartitionRange(partition, 0, end, None, before.processing_time_end, 0)
        for partition, end in before.as_of.items()
    }
    joined = {
        partition: now[partition] if partition not in known else replace(known[partition], **_news(now.get(partition)))
        for partition in sorted(known.keys() | now.keys())
    }
    return tuple(joined.values())


def _news(seen: PartitionRange | None) -> dict[str, Any]:
    if seen is None:
        return {}
    return {"end_offset": seen.end_offset, "last_arrival": seen.last_arrival, "records": seen.records}


def is_incremental(spec: ReplaySpec) -> bool:
    """Whether windows can be recomputed one by one; sessions are read as a whole."""
    return not isinstance(spec.windows, SessionWindows)
