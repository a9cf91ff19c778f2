"""Windows and late records of a Kafka Streams application whose tasks need the order of the log.

The tasks say which records each window holds; Spark aggregates them, and sets the complete values beside them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.kafka_streams.task import Emission, Topology
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents, HoppingWindows, Sessions
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.aggregates import conditional
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import (
    ARRIVAL,
    DROPPED,
    EVENT_TIME,
    FIRED,
    LATE,
    OFFSET,
    ON_TIME,
    PANE,
    PARTITION,
    STATE,
    admitted,
    identity_columns,
    is_within,
    position_names,
)
from spark_jobs.replay.kafka_streams.tasks import HAS_VALUE, KEY, Kind, Order, Restarts, Resumed, TaskRestart, run_tasks
from spark_jobs.replay.spec import Mode, ReplaySpec, complete_name
from spark_jobs.replay.windows import counted_alone, no_state
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.joins import OTHER, others, same
from spark_jobs.spark.texts import as_text

PASSED = "rw_passed"
_HELD = "rw_rows > 0"
"""The record is in the contents of a row that came out."""


@dataclass(frozen=True, slots=True)
class Application:
    """A Kafka Streams application: its aggregation, and when its tasks began anew.

    `restarts`: of single tasks. `of_all`: of all tasks at once.
    """

    topology: Topology
    restarts: Restarts = field(default_factory=dict)
    of_all: tuple[TaskRestart, ...] = ()

    @property
    def needs_tasks(self) -> bool:
        """Whether the order of a whole partition decides; else a look-up of closes does (`streams_timeline`)."""
        topology = self.topology
        is_looked_up = (
            isinstance(topology.windows, HoppingWindows) and topology.emission is not Emission.ON_WINDOW_CLOSE
        )
        return not is_looked_up or bool(self.of_all) or any(self.restarts.values())


def has_key(keys: Sequence[str]) -> Column:
    """Whether a record has a key: not all of its key columns are null."""
    return reduce(or_, (F.col(f"`{key}`").isNotNull() for key in keys))


def with_streams_columns(records: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Add the key in bytes, and whether there is a value. Without key columns all records have the same key."""
    if KEY in records.columns:
        return records
    if not keys:
        return records.withColumns({KEY: F.lit(b""), HAS_VALUE: F.lit(True)})
    whole = as_text(*(f"`{key}`" for key in keys))
    return records.withColumns({KEY: F.when(has_key(keys), F.encode(whole, "UTF-8")), HAS_VALUE: F.lit(True)})


class TaskReplay:
    """The replay of one history through the tasks; what it computes once serves all ranges."""

    def __init__(self, records: DataFrame, spec: ReplaySpec, application: Application, cache: CachedFrames) -> None:
        self._records = with_streams_columns(records.where(F.col(EVENT_TIME) >= 0), spec.keys)
        self._kept = admitted(self._records, None)  # the erased move stream time, and are in no window
        self._spec = spec
        self._application = application
        self._cache = cache

    @cached_property
    def _rows(self) -> DataFrame:
        return self._cache.keep(self._run(self._records))

    def _run(self, records: DataFrame, resumed: Resumed | None = None) -> DataFrame:
        one = self._application
        return run_tasks(records, one.topology, one.restarts, of_all=one.of_all, finals=True, resumed=resumed)

    def state(self) -> dict[str, Any]:
        """By partition, what its task has come to: `TaskState`."""
        rows = self._rows.where(F.col("kind") == F.lit(Kind.STATE.value)).select(PARTITION, "reason").collect()
        return {str(row[0]): json.loads(row[1]) for row in rows}

    def windows(self, span: TimeRange) -> DataFrame:
        """The windows with a start in `span`, in the columns of `replay_windows`: the last row of each."""
        spec = self._spec
        if spec.mode is Mode.COMPLETE:
            return self._complete(span)
        faithful = self._faithful(span)
        if spec.mode is Mode.FAITHFUL:
            return faithful
        complete = self._complete(span)
        by = [*spec.keys, START, END]
        names = [complete_name(name) for name in spec.aggregates]
        joined = faithful.join(complete.select(*others(by), *names), same(by), "full")
        zero = F.lit(0).cast("long")
        values = {c: F.col(f"`{c}`") for c in faithful.columns}
        values |= {c: F.coalesce(f"`{c}`", f"`{OTHER}{c}`") for c in by}
        values |= {c: F.coalesce(c, zero) for c in (ON_TIME, LATE, DROPPED)}
        values[STATE] = F.coalesce(STATE, F.lit("not_emitted"))
        columns = [c for c in faithful.columns if c not in spec.aggregates]
        return joined.select(
            *(values[c].alias(c) for c in by),
            *(values[name].alias(name) for name in spec.aggregates),
            *names,
            *(values[c].alias(c) for c in columns if c not in by),
        )

    def late(self, span: TimeRange, chosen: TimeRange) -> DataFrame:
        """The records that a window with a start in `chosen` dropped, in the columns of `late_records`.

        A record belongs to the chunk `span` that holds the start of the last window that it missed.
        """
        spec = self._spec
        rows = _chosen(self._late_pairs(), chosen)
        last = F.max(F.struct(F.col(END), F.col(START), F.col("missed_by"))).alias("rw_last")
        by_record = rows.groupBy(PARTITION, OFFSET).agg(
            F.count("*").alias("windows_missed"), (~F.bool_or("entered")).alias("side_output"), last
        )
        start = F.col(f"rw_last.{START}")
        own = self._with_passed(by_record.where(is_within(start, span)))
        joined = self._kept.join(own, [PARTITION, OFFSET])
        return joined.select(
            *spec.keys,
            *identity_columns(self._records),
            "windows_missed",
            "side_output",
            start.alias(START),
            F.col(f"rw_last.{END}").alias(END),
            F.coalesce("rw_last.missed_by", F.col(ARRIVAL) - F.col(PASSED)).alias("missed_by"),
        )

    def _late_pairs(self) -> DataFrame:
        """The pairs of a record and a window that were dropped."""
        return self._rows.where(F.col("kind") == F.lit(Kind.LATE.value))

    def _with_passed(self, late: DataFrame) -> DataFrame:
        """Add `PASSED`: when the last window that each late record missed closed, where its task did not see it."""
        return late.withColumn(PASSED, F.lit(None).cast("long"))

    def _faithful(self, span: TimeRange) -> DataFrame:
        """One row for each window that the application has made, or that only late records belong to."""
        rows = self._rows.where(F.col("kind").isin(Kind.FINAL.value, Kind.LATE.value))
        return self._aggregated(_chosen(rows, span), self._kept)

    def _aggregated(self, rows: DataFrame, records: DataFrame) -> DataFrame:
        """The windows of these rows of the tasks; `records` has all that they name."""
        spec, spark = self._spec, self._records.sparkSession
        pairs = rows.select(
            F.col(PARTITION).alias("rw_p"),
            START,
            END,
            (F.col("kind") == F.lit(Kind.LATE.value)).alias("rw_late"),
            F.coalesce("rows", F.lit(0)).alias("rw_rows"),
            (F.col("reason") == "lost").alias("rw_lost"),
            F.struct(
                F.col("arrival").alias("arrival"), F.col(PARTITION).cast("long").alias(PARTITION), F.col(OFFSET)
            ).alias("rw_place"),
            F.explode(F.coalesce("members", F.array(OFFSET))).alias("rw_member"),
        )
        same = (F.col("rw_p") == F.col(PARTITION)) & (F.col("rw_member") == F.col(OFFSET))
        values = [F.expr(conditional(spark, text, _HELD)).alias(name) for name, text in spec.aggregates.items()]
        place = F.max(F.when(F.expr(_HELD), F.col("rw_place")))
        # Sessions that are not out yet count no records; nor do sliding windows, which follow the records as they do.
        counted = "NOT rw_late" if isinstance(self._application.topology.windows, HoppingWindows) else _HELD
        grouped = (
            pairs.join(records.drop(KEY), same)
            .groupBy(*(f"`{key}`" for key in spec.keys), START, END)
            .agg(
                *values,
                F.expr(f"count(*) FILTER (WHERE {counted})").alias(ON_TIME),
                F.lit(0).cast("long").alias(LATE),
                F.count_if("rw_late").alias(DROPPED),
                F.max("rw_rows").alias("rw_rows"),
                F.coalesce(F.bool_or("rw_lost"), F.lit(False)).alias("rw_lost"),
                F.bool_and("rw_late").alias("rw_all_late"),
                place.alias("rw_place"),
            )
        )
        out = F.col("rw_rows") > 0
        state = (
            F.when(out, "closed")
            .when(F.col("rw_all_late"), "all_late")
            .when(F.col("rw_lost"), "not_emitted")
            .otherwise("open")
        )
        names = ("arrival", PARTITION, OFFSET)
        fired = (F.col("rw_place")[name].alias(part) for name, part in zip(names, position_names(FIRED), strict=True))
        return grouped.select(
            *(f"`{key}`" for key in spec.keys),
            START,
            END,
            *(F.when(out, F.col(f"`{name}`")).alias(name) for name in spec.aggregates),
            ON_TIME,
            LATE,
            DROPPED,
            F.when(out, F.lit(0)).cast("int").alias(PANE),
            state.alias(STATE),
            *fired,
        )

    def _complete(self, span: TimeRange) -> DataFrame:
        """The windows of all records, as if none had been late: keys, bounds, complete values."""
        placed = in_all_windows(self._kept.where(F.col(KEY).isNotNull()), self._application.topology)
        return self._completed(_chosen(placed, span)).select("*", no_state())

    def _completed(self, placed: DataFrame) -> DataFrame:
        """The complete values of the windows that records are placed in."""
        keys = (f"`{key}`" for key in self._spec.keys)
        values = [F.expr(text).alias(complete_name(name)) for name, text in self._spec.aggregates.items()]
        return placed.groupBy(*keys, START, END).agg(*values, counted_alone())


def in_all_windows(records: DataFrame, topology: Topology) -> DataFrame:
    """One row for each record with a key and each window that it would be in if none was late."""
    match topology.windows:
        case HoppingWindows() as windows:
            return _assigned(records, windows)
        case Sessions(gap):
            return _sessions(records, gap)
        case BetweenEvents():
            return _between_events(records, topology)


def _assigned(records: DataFrame, windows: HoppingWindows) -> DataFrame:
    """One row for each record and window; no window starts before 0."""
    ts, size, advance = F.col(EVENT_TIME), windows.size, windows.advance
    first = F.greatest(ts - F.lit(size - advance), F.lit(0))
    first = first - F.pmod(first, F.lit(advance))
    starts = F.sequence(first, ts - F.pmod(ts, F.lit(advance)), F.lit(advance).cast("long"))
    assigned = records.withColumn(START, F.explode(starts))
    return assigned.withColumn(END, F.col(START) + F.lit(size))


def _sessions(records: DataFrame, gap: int) -> DataFrame:
    """The records with the session that they would be in if none was late; both ends are inclusive."""
    order = f"PARTITION BY {KEY} ORDER BY {EVENT_TIME}"
    before = F.expr(f"lag({EVENT_TIME}) OVER ({order})")
    begins = F.when(before.isNull() | (F.col(EVENT_TIME) - before > F.lit(gap)), 1).otherwise(0)
    numbered = records.withColumn("rw_begins", begins).withColumn(
        "rw_session", F.expr(f"sum(rw_begins) OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)")
    )
    whole = f"OVER (PARTITION BY {KEY}, rw_session)"
    return numbered.withColumns(
        {START: F.expr(f"min({EVENT_TIME}) {whole}"), END: F.expr(f"max({EVENT_TIME}) {whole}")}
    )


def _chosen(rows: DataFrame, span: TimeRange) -> DataFrame:
    return rows.where(is_within(F.col(START), span))


def _between_events(records: DataFrame, topology: Topology) -> DataFrame:
    """The records with each sliding window that they would be in if none was late."""
    in_order = replace(topology, grace=0, emission=Emission.EACH_UPDATE, retention=None)
    rows = run_tasks(records, in_order, {}, finals=True, order=Order.TIME)
    members = rows.where(F.col("kind") == F.lit(Kind.FINAL.value)).select(
        F.col(PARTITION).alias("rw_p"), START, END, F.explode("members").alias("rw_member")
    )
    return members.join(records, (F.col("rw_p") == F.col(PARTITION)) & (F.col("rw_member") == F.col(OFFSET)))
