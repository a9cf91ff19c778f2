"""What new records change of the windows of an application whose tasks need the order of the log.

The tasks go on from where the run before has left them (`task_states`). They decide the windows that could still
change. What the others have given stays: new records can only be late for them, and change their complete values.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.eventtime.kafka_streams.task import Emission, Topology
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents, HoppingWindows, Sessions
from spark_jobs.eventtime.ranges import TimeRange
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
    end_offset,
    is_within,
    position_names,
)
from spark_jobs.replay.kafka_streams.replay import (
    PASSED,
    Application,
    TaskReplay,
    in_all_windows,
)
from spark_jobs.replay.kafka_streams.task_states import TaskState
from spark_jobs.replay.kafka_streams.tasks import HAS_VALUE, KEY, Kind, Resumed
from spark_jobs.replay.rule_book import IS_TOUCHED, GoneOn
from spark_jobs.replay.spec import Mode, ReplaySpec, complete_name
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.joins import others, same

_LOW, _HIGH, _CELL = "rw_low", "rw_high", "rw_cell"
_BEFORE, _NOW, _WHOLE, _MISSED = "rw_before", "rw_now", "rw_whole", "rw_missed"


def why_not_gone_on(application: Application, state: Mapping[str, Any]) -> str:
    """Why no night can go on from this state of the tasks; empty: it can."""
    topology = application.topology
    if topology.emission is Emission.ON_WINDOW_CLOSE and not isinstance(topology.windows, HoppingWindows):
        return "which sessions and sliding windows the emit strategy has lost is found in the whole history"
    if not all(task.is_past_restarts for task in _tasks(state).values()):
        return "a restart lies behind what was read: the tasks begin anew there"
    return ""


def reached(
    windows: DataFrame, new: DataFrame, spec: ReplaySpec, application: Application, state: Mapping[str, Any]
) -> DataFrame:
    """See `RuleBook.reached`: the windows that could still change, and those that new records come near."""
    topology = application.topology
    read = admitted(new, None).where(F.col(EVENT_TIME).isNotNull())
    found = _meeting(windows, (F.col(START), F.col(END)), _reach(read, spec, topology), spec, topology)
    touched = found.select(*(f"`{key}`" for key in spec.keys), START, END).distinct()
    joined = windows.join(
        touched.select(*others([*spec.keys, START, END]), F.lit(True).alias(IS_TOUCHED)),
        same([*spec.keys, START, END]),
        "left",
    )
    flagged = joined.select(
        *(f"`{c}`" for c in windows.columns), F.coalesce(IS_TOUCHED, F.lit(False)).alias(IS_TOUCHED)
    )
    return flagged.where(F.col(IS_TOUCHED) | (F.col(END) >= F.lit(_undecided_from(_tasks(state)))))


class TaskNight(TaskReplay):
    """The replay of a night, which goes on from the run `before`."""

    def __init__(
        self, records: DataFrame, spec: ReplaySpec, application: Application, cache: CachedFrames, before: GoneOn
    ) -> None:
        super().__init__(records, spec, application, cache)
        self._before = before
        self._tasks = _tasks(before.state)
        self._end = _undecided_from(self._tasks)
        self._points = {p: task.point(self._end, application.topology) for p, task in self._tasks.items()}

    def _behind(self, records: DataFrame, offsets: Mapping[int, int]) -> DataFrame:
        """The records with these offsets or later ones; of a partition without one all."""
        return records.where(F.coalesce(F.col(OFFSET) >= end_offset(offsets), F.lit(True)))

    def _again(self, records: DataFrame) -> DataFrame:
        return self._behind(records, {p: point.offset for p, point in self._points.items()})

    @cached_property
    def _rows(self) -> DataFrame:
        return self._cache.keep(self._run(self._again(self._records), Resumed(self._points, self._end)))

    def state(self) -> dict[str, Any]:
        return {**self._before.state, **super().state()}

    def windows(self, span: TimeRange) -> DataFrame:
        return self._all.where(is_within(F.col(START), span))

    def _late_pairs(self) -> DataFrame:
        return self._behind(super()._late_pairs(), self._before.as_of)

    @cached_property
    def _new(self) -> DataFrame:
        new = self._behind(self._kept, self._before.as_of)
        return new.where(F.col(KEY).isNotNull() & F.col(EVENT_TIME).isNotNull())

    @cached_property
    def _all(self) -> DataFrame:
        """The windows that may be others now, as they are."""
        spec, keys = self._spec, [f"`{key}`" for key in self._spec.keys]
        finals = self._rows.where(F.col("kind") == F.lit(Kind.FINAL.value))
        now = self._aggregated(finals, self._again(self._kept))
        missed = self._late_pairs().join(self._behind(self._kept, self._before.as_of).drop(KEY), [PARTITION, OFFSET])
        parts = [
            _packed(self._before.windows, spec, _BEFORE),
            _packed(now, spec, _NOW),
            missed.groupBy(*keys, START, END).agg(F.count("*").alias(_MISSED)),
        ]
        if spec.mode is Mode.BOTH:
            parts.append(_packed(self._completed(self._placed_near()), spec, _WHOLE))
        together = parts[0]
        for part in parts[1:]:
            together = together.unionByName(part, allowMissingColumns=True)
        sides = [side for side in (_BEFORE, _NOW, _WHOLE) if side in together.columns]
        found = together.groupBy(*keys, START, END).agg(
            *(F.first(side, ignorenulls=True).alias(side) for side in sides),
            F.coalesce(F.sum(_MISSED), F.lit(0)).alias(_MISSED),
        )
        return self._cache.keep(self._merged(found))

    def _merged(self, found: DataFrame) -> DataFrame:
        """One row of each window from the published one, what its tasks gave now, and its complete values."""
        spec = self._spec
        was, zero = F.col(_BEFORE).isNotNull(), F.lit(0).cast("long")
        is_decided = F.col(END) < F.lit(self._end)
        is_out = F.when(is_decided, was & ~F.col(f"{_BEFORE}.{STATE}").isin("all_late", "not_emitted"))
        dropped = F.coalesce(f"{_BEFORE}.{DROPPED}", zero) + F.col(_MISSED)

        def decided(name: str) -> Column:
            return F.when(is_decided, F.col(f"{_BEFORE}.{name}")).otherwise(F.col(f"{_NOW}.{name}"))

        # Of other windows this is one that only the complete values have.
        was_lost = F.lit(False)
        if isinstance(self._application.topology.windows, HoppingWindows):
            was_lost = was & F.coalesce(F.col(f"{_BEFORE}.{STATE}") == "not_emitted", F.lit(False))
        without_row = F.when((dropped > 0) & ~was_lost, "all_late").otherwise("not_emitted")
        state = (
            F.when(is_decided, F.when(is_out, F.col(f"{_BEFORE}.{STATE}")).otherwise(without_row))
            .when(F.col(_NOW).isNotNull(), F.col(f"{_NOW}.{STATE}"))
            .otherwise(F.when(dropped > 0, "all_late").otherwise("not_emitted"))
        )
        stays = F.when(is_decided, was).otherwise(F.col(_NOW).isNotNull()) | (dropped > 0)
        names = [complete_name(name) for name in spec.aggregates] if spec.mode is Mode.BOTH else []
        complete = []
        if names:
            is_touched = F.coalesce(F.col(f"{_BEFORE}.{IS_TOUCHED}"), F.lit(True))
            has_final = F.when(is_decided, is_out | was_lost).otherwise(F.col(_NOW).isNotNull())
            is_complete = F.when(is_touched, F.col(_WHOLE).isNotNull()).otherwise(was)
            stays = F.coalesce(has_final, F.lit(False)) | (dropped > 0) | is_complete
            complete = [
                F.when(is_touched, F.col(f"{_WHOLE}.`{name}`")).otherwise(F.col(f"{_BEFORE}.`{name}`")).alias(name)
                for name in names
            ]
        return found.where(stays).select(
            *(f"`{key}`" for key in spec.keys),
            START,
            END,
            *(decided(f"`{name}`").alias(name) for name in spec.aggregates),
            *complete,
            F.coalesce(decided(ON_TIME), zero).alias(ON_TIME),
            F.coalesce(decided(LATE), zero).alias(LATE),
            dropped.alias(DROPPED),
            decided(PANE).alias(PANE),
            state.alias(STATE),
            *(decided(name).alias(name) for name in position_names(FIRED)),
        )

    def _placed_near(self) -> DataFrame:
        """The records in each window whose complete values may be others now, with it."""
        spec, topology = self._spec, self._application.topology
        by = [*spec.keys, START, END]
        records, time = self._kept.where(F.col(KEY).isNotNull() & F.col(EVENT_TIME).isNotNull()), F.col(EVENT_TIME)
        reach = _reach(self._new, spec, topology)
        match topology.windows:
            case HoppingWindows():
                placed, touched = in_all_windows(records, topology), in_all_windows(self._new, topology)
                return placed.join(touched.select(*others(by)).distinct(), same(by), "left_semi")
            case BetweenEvents(time_difference=difference):
                far = F.lit(3 * difference)
                around = reach.withColumns({_LOW: F.col(_LOW) - far, _HIGH: F.col(_HIGH) + far})
            case Sessions():
                was = self._before.windows.where(IS_TOUCHED)
                keys = [f"`{key}`" for key in spec.keys]
                around = reach.unionByName(was.select(*keys, F.col(START).alias(_LOW), F.col(END).alias(_HIGH)))
        near = _meeting(records, (time, time), around, spec, topology)
        placed = self._cache.keep(in_all_windows(near, topology))
        there = placed.select(*(f"`{name}`" for name in by)).distinct()
        touched = _meeting(there, (F.col(START), F.col(END)), reach, spec, topology)
        return placed.join(touched.select(*others(by)).distinct(), same(by), "left_semi")

    def _with_passed(self, late: DataFrame) -> DataFrame:
        topology = self._application.topology
        wait = topology.wait + (0 if isinstance(topology.windows, HoppingWindows) else 1)
        passed = (F.col("rw_last")[END] + F.lit(wait)).alias("rw_x")
        asked = self._cache.keep(late.where(F.col("rw_last.missed_by").isNull()).select(PARTITION, passed).distinct())
        if asked.isEmpty():
            return super()._with_passed(late)
        found = self._first_passing(asked).select(F.col(PARTITION).alias("rw_p"), "rw_x", PASSED)
        beside = (F.col(PARTITION) == F.col("rw_p")) & (F.col("rw_last")[END] + F.lit(wait) == F.col("rw_x"))
        return late.join(found, beside, "left").drop("rw_p", "rw_x")

    def _first_passing(self, asked: DataFrame) -> DataFrame:
        """When a task's stream time first came to each time `rw_x`, before its point: partition, `rw_x`, `PASSED`."""
        cell = self._application.topology.store_retention.segment
        records = self._records.where(F.col(KEY).isNotNull())
        if isinstance(self._application.topology.windows, BetweenEvents):
            records = records.where(HAS_VALUE)
        records = records.where(
            (F.col(OFFSET) >= end_offset({p: point.life_from for p, point in self._points.items()}))
            & (F.col(OFFSET) < end_offset({p: point.offset for p, point in self._points.items()}))
        ).select(PARTITION, EVENT_TIME, F.struct(OFFSET, ARRIVAL).alias("rw_at"))
        records = records.withColumn(_CELL, _divided(F.col(EVENT_TIME), cell))
        asked = asked.withColumn(_CELL, _divided(F.col("rw_x"), cell))
        inside = (
            records.join(asked, [PARTITION, _CELL])
            .where(F.col(EVENT_TIME) >= F.col("rw_x"))
            .groupBy(PARTITION, "rw_x")
            .agg(F.min("rw_at").alias("rw_at"))
        )
        by_cell = records.groupBy(PARTITION, _CELL).agg(F.min("rw_at").alias("rw_at"))
        later = Window.partitionBy(PARTITION).orderBy(F.desc(_CELL)).rangeBetween(Window.unboundedPreceding, -1)
        behind = (
            by_cell.unionByName(asked, allowMissingColumns=True)
            .withColumn("rw_at", F.min("rw_at").over(later))
            .where(F.col("rw_x").isNotNull())
            .select(PARTITION, "rw_x", "rw_at")
        )
        both = inside.unionByName(behind).groupBy(PARTITION, "rw_x").agg(F.min("rw_at").alias("rw_at"))
        return both.select(PARTITION, "rw_x", F.col("rw_at")[ARRIVAL].alias(PASSED))


def _tasks(state: Mapping[str, Any]) -> dict[int, TaskState]:
    return {int(partition): TaskState.from_json(task) for partition, task in state.items()}


def _undecided_from(tasks: Mapping[int, TaskState]) -> int:
    """No window that ends before can change in any task: a key may be in several partitions."""
    return min((task.undecided_from for task in tasks.values()), default=0)


def _packed(windows: DataFrame, spec: ReplaySpec, name: str) -> DataFrame:
    """Keys and bounds, and all other columns as one."""
    by = {*spec.keys, START, END}
    rest = [f"`{c}`" for c in windows.columns if c not in by]
    return windows.select(*(f"`{key}`" for key in spec.keys), START, END, F.struct(*rest).alias(name))


def _reach(records: DataFrame, spec: ReplaySpec, topology: Topology) -> DataFrame:
    """Which windows these records can change: those of their keys that meet a time from `_LOW` to `_HIGH`."""
    match topology.windows:
        case HoppingWindows():
            below, above = -1, 0  # an end does not belong to its window: it lies behind the record
        case BetweenEvents():
            below, above = 0, 1  # a window begins behind a record
        case Sessions(gap):
            below = above = gap
    time = F.col(EVENT_TIME)
    bounds = ((time - F.lit(below)).alias(_LOW), (time + F.lit(above)).alias(_HIGH))
    return records.select(*(f"`{key}`" for key in spec.keys), *bounds).distinct()


def _meeting(
    rows: DataFrame, bounds: tuple[Column, Column], those: DataFrame, spec: ReplaySpec, topology: Topology
) -> DataFrame:
    """The rows, in no less than one copy, whose time meets one of `those` of their key."""
    cell = topology.store_retention.segment
    spread = those.select(
        *others(spec.keys), _LOW, _HIGH, F.explode(_cells(F.col(_LOW), F.col(_HIGH), cell)).alias("rw_their_cell")
    )
    meets = (bounds[0] <= F.col(_HIGH)) & (bounds[1] >= F.col(_LOW)) & (F.col(_CELL) == F.col("rw_their_cell"))
    celled = rows.withColumn(_CELL, F.explode(_cells(*bounds, cell)))
    return celled.join(spread, [*same(spec.keys), meets], "left_semi").drop(_CELL)


def _cells(low: Column, high: Column, cell: int) -> Column:
    return F.sequence(_divided(low, cell), _divided(high, cell))


def _divided(time: Column, by: int) -> Column:
    return F.floor(time / F.lit(by)).cast("long")
