"""The late records that changed a window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import OFFSETS
from spark_jobs.comparison.recount import RecountContext, close_position, ends_of, records_in, taken_by_offsets
from spark_jobs.comparison.verdicts import BASIS, EvidenceKind
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, record_position


def late_records_of(context: RecountContext, windows: DataFrame, limit: int) -> DataFrame:
    """The records that the live job left out of `windows`; at most `limit`, ordered by position.

    `windows` are few rows of a comparison.

    Columns: keys, `window_start`, `window_end`, `partition`, `offset`, `arrival`, `event_time` (epoch ms) and
    `late_by`: ms of processing time from the window's final close to the record's arrival (negative where evidence says
    that the record was late, although it arrived before the close).
    """
    bounds = windows.select(START, END).collect()
    ends = ends_of(context, windows, {row[1] for row in bounds})
    records = records_in(context, windows, ends, OFFSETS, BASIS, starts=[row[0] for row in bounds], are_few=True)
    close = ends.select(END, *(f"rw_close_{p}" for p in ("arrival", "major", "minor")))
    records = records.join(close, END)
    recorded = (F.col(f"rw_d_{BASIS}") == EvidenceKind.RECORDED) & F.col(f"rw_d_{OFFSETS}").isNotNull()
    in_log = record_position(records).not_after(close_position())
    left_out: Column = ~F.when(recorded, taken_by_offsets()).otherwise(in_log)
    return (
        records.where(left_out)
        .select(
            *context.keys,
            START,
            END,
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            F.col(ARRIVAL).alias("arrival"),
            F.col(EVENT_TIME).alias("event_time"),
            (F.col(ARRIVAL) - F.col("rw_close_arrival")).alias("late_by"),
        )
        .orderBy(START, "arrival", "partition", "offset")
        .limit(limit)
    )
