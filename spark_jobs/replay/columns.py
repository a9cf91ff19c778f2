"""The columns of canonical records and of windows, and positions as Spark columns.

A position is `(arrival, major, minor)`, compared in that order: `(arrival, partition, offset)`, or
`(arrival, sequence, 0)` where the history has a sequence column. A tick of the timer stands before every
record of its millisecond: `(tick, -1, -1)`. "Never" is `MAX_TIMESTAMP` in all three.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP

PARTITION = "rw_partition"
OFFSET = "rw_offset"
ARRIVAL = "rw_arrival"
EVENT_TIME = "rw_event_time"
MICROS = "rw_micros"
"""The microseconds of the event time behind its millisecond, 0 to 999; there only if the live job compares them."""
INSTANT = "rw_instant"
"""The event time, where the column of that name has what a wall clock showed then."""
MARKER = "rw_marker"
STREAM = "rw_stream"
SEQUENCE = "rw_sequence"
GAP = "rw_gap"
"""The record's own session gap (ms), where the definition has an expression for it."""
ADMITTED = "rw_admitted"
"""Whether the record may come to windows; there only if the filter behind the watermark can fail on a record, or if
records were erased."""
ERASED = "rw_erased"
"""Whether the record is of a person who was forgotten; there only if somebody was."""

ON_TIME = "records_on_time"
LATE = "records_late"
DROPPED = "records_dropped"
NOT_COUNTED = "records_not_counted"
"""Records that are in time for a window that keeps its value; there only once a window has kept its value."""
PANE = "pane"
STATE = "state"
CLOSED_AT = "closed_at"
HISTORY_GONE = "history_gone"
"""The state of a published window that keeps its value: records that it was made of are not in the history any more."""
HANDED = "rw_handed"
"""Prefix of the position at which a record comes to the windows, where a subtask holds it back before."""
FIRED = "fired"
"""Prefix of the position at which a pane fired; `NEVER` for the end of input."""

NEVER = MAX_TIMESTAMP


class Position(NamedTuple):
    """A position: of a record, of a tick, or `NEVER` in all three fields."""

    arrival: int
    major: int
    minor: int


def is_within(time: Column, span: TimeRange) -> Column:
    """Whether a time (epoch ms) is in the half-open range."""
    return (time >= F.lit(span.start)) & (time < F.lit(span.end))


def event_time_rounded_up(records: DataFrame) -> Column:
    """The first whole millisecond (epoch ms) that is not before the event time."""
    return (
        F.col(EVENT_TIME) + F.when(F.col(MICROS) > 0, 1).otherwise(0)
        if MICROS in records.columns
        else F.col(EVENT_TIME)
    )


def admitted(records: DataFrame, after_watermark: str | None) -> DataFrame:
    """The records that the filter behind the watermark admits (SQL; None: all of them)."""
    if ADMITTED in records.columns:
        return records.where(ADMITTED)
    return records if after_watermark is None else records.where(after_watermark)


@dataclass(frozen=True, slots=True)
class PositionColumns:
    """A position as three Spark columns of type BIGINT."""

    arrival: Column
    major: Column
    minor: Column

    def not_after(self, other: PositionColumns) -> Column:
        """`self <= other`; ties of the arrival, which are rare, are decided by the rest.

        A nested IF, not OR and AND: there Spark would evaluate what occurs twice before it compares anything.
        """
        rest = F.struct(self.major, self.minor) <= F.struct(other.major, other.minor)
        return F.call_function("if", self.arrival == other.arrival, rest, self.arrival < other.arrival)

    def before(self, other: PositionColumns) -> Column:
        """`self < other`."""
        return ~other.not_after(self)

    def as_struct(self) -> Column:
        """One struct (arrival, major, minor), which Spark compares in that order."""
        return F.struct(self.arrival.alias("arrival"), self.major.alias("major"), self.minor.alias("minor"))

    @classmethod
    def of_struct(cls, struct: Column) -> PositionColumns:
        """The position in a column that `as_struct` made."""
        return cls(struct["arrival"], struct["major"], struct["minor"])

    @classmethod
    def named(cls, prefix: str) -> PositionColumns:
        """The position in the columns `{prefix}_arrival`, `_major` and `_minor`."""
        return cls(*(F.col(name) for name in position_names(prefix)))

    @property
    def parts(self) -> tuple[Column, Column, Column]:
        """The three columns, in the order of comparison."""
        return self.arrival, self.major, self.minor

    def aliased(self, prefix: str) -> list[Column]:
        """The three columns under the names that `named` reads."""
        return [column.alias(name) for name, column in zip(position_names(prefix), self.parts, strict=True)]


def position_names(prefix: str) -> tuple[str, str, str]:
    """The names of a position's three columns."""
    return f"{prefix}_arrival", f"{prefix}_major", f"{prefix}_minor"


def record_position(records: DataFrame) -> PositionColumns:
    """The position of each canonical record."""
    if SEQUENCE in records.columns:
        return PositionColumns(F.col(ARRIVAL), F.col(SEQUENCE), F.lit(0).cast("long"))
    return PositionColumns(F.col(ARRIVAL), F.col(PARTITION).cast("long"), F.col(OFFSET))


def end_offset(as_of: Mapping[int, int], partition: str = PARTITION) -> Column:
    """The end offset (exclusive) of each record's partition; null for a partition that is not in the vector.

    One look-up in a map: with a condition for each partition, the generated code would be too long to be compiled.
    """
    if not as_of:
        return F.lit(None).cast("bigint")
    ends = [F.lit(v) for partition, end in sorted(as_of.items()) for v in (partition, F.lit(end).cast("bigint"))]
    return F.create_map(*ends)[F.col(partition)]


def records_in(windows: DataFrame) -> Column:
    """How many records a window has had: on time, late, dropped, not counted, as far as it has these columns."""
    return functools.reduce(operator.add, (F.coalesce(c, F.lit(0)) for c in counts_of(windows)), F.lit(0))


def counts_of(windows: DataFrame) -> list[str]:
    """The columns that count records, as far as the windows have them."""
    return [c for c in (ON_TIME, LATE, DROPPED, NOT_COUNTED) if c in windows.columns]


def identity_columns(records: DataFrame) -> list[str]:
    """The columns that identify a record, as far as the history has them."""
    return [c for c in (PARTITION, OFFSET, ARRIVAL, SEQUENCE, EVENT_TIME, INSTANT) if c in records.columns]


def long_arrays(frame: DataFrame, arrays: Mapping[str, np.ndarray]) -> dict[str, Column]:
    """Arrays of BIGINT that every row can index, each as a scalar subquery over a local relation: no Spark job.

    They are no literals, because the optimizer hashes and compares literals at every step: with ten thousand values
    that takes longer than the query. Nor are they fields of one struct: each access would first copy its array out.
    """
    columns = {
        name: pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pa.array(values, pa.int64()))
        for name, values in arrays.items()
    }
    table = frame.sparkSession.createDataFrame(pa.table(columns))
    return {name: table.select(name).scalar() for name in columns}
