"""Runs a case of Flink SQL through the Spark engine: the rows with the position of each."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import PANE, Position
from spark_jobs.replay.engine import FIRED_COLUMNS, Replay
from spark_jobs.replay.flink.rules import FlinkRules
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from tests.conformance.flink_sql_case import SqlCase, Version
from tests.conformance.spark import case_history, case_records, rank

_AGGREGATES = {
    "count": "count(*)",
    "sum": "sum(value)",
    "members": "sort_array(collect_list(rw_sequence))",
}


def replay_of(spark: SparkSession, case: SqlCase, version: Version, interval: int | None = None) -> Replay:
    """The replay of a case; `interval` is what the definition says of checkpoints (ms)."""
    history = case_history(case, case_records(spark, case))
    spec = ReplaySpec(
        rules=FlinkRules(case.slices(version), interval, case.losing(version)),
        strategy=case.sql_strategy(version),
        windows=case.windows,
        allowed_lateness=case.allowed_lateness,
        keys=("key",),
        aggregates=_AGGREGATES,
        mode=Mode.FAITHFUL,
        panes=Panes.ALL,
        flush=case.flush,
    )
    return Replay(history, spec, exact_positions=True)


def span_of(replay: Replay) -> TimeRange:
    """A range that holds every window of a replay."""
    windows = replay.spec.windows
    span = windows.covering(replay.history.event_times)
    if isinstance(windows, AlignedWindows):
        return TimeRange(span.start - windows.longest, span.end + windows.longest)
    return span


def run_spark(spark: SparkSession, case: SqlCase, version: Version) -> list[list[Any]]:
    """The rows that the live job gives, in the columns of the format."""
    with replay_of(spark, case, version) as replay:
        span = span_of(replay)
        fired = replay.sessions(span).windows if replay.merges else replay.windows(span)
        columns = ["key", START, END, PANE, *_AGGREGATES, *FIRED_COLUMNS]
        found = fired.where(f"{PANE} IS NOT NULL").select(*columns).collect()
    return case.changelog(
        [
            (
                rank(case, Position(*(row[c] for c in FIRED_COLUMNS))),
                row[PANE],
                [row["key"], row[START], row[END], row["count"], row["sum"], list(row["members"])],
            )
            for row in found
        ]
    )
