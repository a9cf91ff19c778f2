"""The first offset of each partition that a window from the cutover on, or its watermark, needs.

A record belongs to a window that starts at or after T only if its event time is T or later; and only such a record
can raise a partition's watermark past the end of such a window. So the first record of a partition with an event time
of T or later is the first that is needed. Where there is none yet, that is the next record to come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.cutover.document import StartOffset
from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.union import BLOCK, of_union
from spark_jobs.errors import HistoryError
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.sources import source_of
from spark_jobs.sources.kafka.admin import TopicState, topic_admin

_FOREVER = 250_000_000_000_000
"""Beyond the year 9000: an instant that nobody writes down (epoch ms)."""


@dataclass(frozen=True, slots=True)
class Log:
    """A topic as it is now, under the partition numbers of the history. `number`: which input of a union reads it."""

    number: int
    name: str
    state: TopicState | None

    def bounds(self) -> dict[int, tuple[int, int]]:
        """The first offset that is there, and the next one to come, by partition."""
        if self.state is None:
            return {}
        own = {p: (b.earliest, b.latest) for p, b in self.state.partitions.items()}
        return of_union(own, self.number)


def logs_of(spark: SparkSession, pipeline: Pipeline) -> list[Log]:
    """The topics that the history reads. Raises SourceError where a broker does not answer."""
    return [_log(spark, one, number) for number, one in enumerate(pipeline.inputs or (pipeline,))]


def _log(spark: SparkSession, pipeline: Pipeline, number: int) -> Log:
    topic = source_of(spark, pipeline).topic()
    if topic is None:
        return Log(number, "", None)
    with topic_admin(spark, topic) as admin:
        return Log(number, topic.topic, admin.state())


def first_offsets(records: DataFrame, plan: Plan, logs: list[Log], at: int) -> dict[int, int]:
    """The first offset that windows from `at` on (epoch ms) need, by partition. `records`: good canonical ones.

    A partition without such a record has the offset of the next record that comes.
    """
    needed = records.where(F.col(EVENT_TIME) >= F.lit(at)).groupBy(PARTITION).agg(F.min(OFFSET).alias(OFFSET))
    first = {row[PARTITION]: row[OFFSET] for row in needed.collect()}
    nothing_read = {p: bounds[0] for log in logs for p, bounds in log.bounds().items()}
    return dict(sorted((nothing_read | plan.as_of | first).items()))


def from_offsets(records: DataFrame, offsets: Mapping[int, int]) -> DataFrame:
    """The records that the new job reads."""
    return records.where(F.col(OFFSET) >= offset_of(offsets))


def offset_of(offsets: Mapping[int, int]) -> Column:
    """The offset that a record's partition begins at."""
    pairs = [F.lit(number).cast("bigint") for pair in sorted(offsets.items()) for number in pair]
    return F.create_map(*pairs)[F.col(PARTITION).cast("bigint")] if pairs else F.lit(0).cast("bigint")


def refuse_removed(logs: list[Log], offsets: Mapping[int, int], at: int) -> None:
    """Raises HistoryError where a topic does not have an offset any more: the new job could not begin there."""
    for log in logs:
        for partition, (earliest, _) in log.bounds().items():
            if offsets[partition] < earliest:
                raise HistoryError(
                    f"the topic begins at offset {earliest} of partition {partition % BLOCK}, and windows from "
                    f"{format_instant(at)} on need its records from offset {offsets[partition]} on",
                    log.name,
                    "Choose a later --at, or let the backfill give the windows up to one.",
                )


def described(records: DataFrame, logs: list[Log], offsets: Mapping[int, int], at: int) -> tuple[StartOffset, ...]:
    """The offsets, and what the new job reads again from each."""
    rows = (
        from_offsets(records, offsets)
        .groupBy(PARTITION)
        .agg(
            F.min_by(ARRIVAL, OFFSET).alias("arrival"),
            F.count(F.lit(1)).alias("again"),
            F.count_if(F.col(EVENT_TIME) < F.lit(at)).alias("earlier"),
        )
    )
    found = {row[PARTITION]: row for row in rows.collect()}
    by_number = {log.number: log for log in logs}

    def one(partition: int, offset: int) -> StartOffset:
        log, row = by_number[partition // BLOCK if len(logs) > 1 else 0], found.get(partition)
        number = partition % BLOCK if len(logs) > 1 else partition
        arrival = None if row is None else row["arrival"]
        if row is None or arrival is None:
            return StartOffset(topic=log.name, partition=number, offset=offset)
        return StartOffset(
            topic=log.name, partition=number, offset=offset, arrival=format_instant(arrival),
            kept_until=_kept_until(log.state, arrival), read_again=row["again"], earlier=row["earlier"],
        )  # fmt: skip

    return tuple(one(partition, offset) for partition, offset in offsets.items())


def _kept_until(state: TopicState | None, arrival: int) -> str | None:
    if state is None or state.retention is None or state.retention + arrival >= _FOREVER:
        return None
    return format_instant(arrival + state.retention)
