"""Runs a case of Kafka Streams through the Spark engine: every row with its contents, and what was dropped."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.replay.kafka_streams.tasks import KEY, Kind, Restarts, TaskRestart, run_tasks
from tests.conformance.compare import CHECKSUM_MODULUS
from tests.conformance.kstreams_case import StreamsCase, StreamsOutcome

_X = f"(({PARTITION} + 1L) * 1000003L + {OFFSET}) % {CHECKSUM_MODULUS}L"
_AGGREGATES = {
    "count": "count(*)",
    "sum": "sum(value)",
    "min": "min(value)",
    "max": "max(value)",
    "checksum": f"coalesce(sum(({_X}) * ({_X}) % {CHECKSUM_MODULUS}L) FILTER (WHERE value IS NOT NULL), 0L) "
    f"% {CHECKSUM_MODULUS}L",
    "elements": f"sort_array(collect_list({OFFSET}) FILTER (WHERE value IS NOT NULL))",
}
_IDENTITY = ("kind", "number", "trigger", PARTITION, KEY, START, END, "timestamp")


def case_records(spark: SparkSession, case: StreamsCase) -> DataFrame:
    """The case's records as canonical records."""
    rows = [
        (r.partition, r.offset, r.append, r.timestamp, r.key, r.value, None if r.key is None else r.key.encode())
        for r in case.records
    ]
    schema = (
        "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT, key STRING, value BIGINT, "
        "rw_key BINARY"
    )
    return spark.createDataFrame(rows, schema).withColumn("rw_has_value", F.col("value").isNotNull())


def case_restarts(case: StreamsCase) -> Restarts:
    """The restarts of each task, by the offset of the first record that it read after each."""
    restarts: dict[int, list[TaskRestart]] = {partition: [] for partition in case.partitions}
    for restart in case.restarts:
        for partition in restart.partitions:
            mine = [(n, r.offset) for n, r in enumerate(case.records) if r.partition == partition]
            after = [offset for n, offset in mine if n >= restart.before]
            first = after[0] if after else (mine[-1][1] + 1 if mine else 0)
            restarts[partition].append(TaskRestart(restart.state, offset=first))
    return restarts


def run_spark(spark: SparkSession, case: StreamsCase) -> StreamsOutcome:
    """Run the case through the tasks on Spark, and its aggregates through Spark SQL."""
    records = case_records(spark, case)
    found = run_tasks(records, case.topology, case_restarts(case)).cache()
    try:
        with_members = found.withColumnRenamed(OFFSET, "trigger").where(F.col("members").isNotNull())
        exploded = with_members.select(*_IDENTITY, F.explode("members").alias(OFFSET))
        values = [F.expr(text).alias(name) for name, text in _AGGREGATES.items()]
        rows = exploded.join(records.drop(KEY), [PARTITION, OFFSET]).groupBy(*_IDENTITY).agg(*values).collect()
        others = found.where(F.col("members").isNull()).collect()
    finally:
        found.unpersist()
    at = {(r.partition, r.offset): number for number, r in enumerate(case.records)}
    outcome = StreamsOutcome(note="tasks by partition")
    emitted = [(_record(at, row, "trigger", case), row) for row in rows]
    emitted += [(_record(at, row, OFFSET, case), row) for row in others]
    for record, row in sorted(emitted, key=lambda pair: (pair[0], pair[1][PARTITION], pair[1]["number"])):
        match Kind(row["kind"]):
            case Kind.EMITTED:
                outcome.rows.append(_row(record, row))
            case Kind.WAITING:
                outcome.waiting.append(_row(record, row))
            case Kind.WITHDRAWN:
                outcome.rows.append([*_row_identity(record, row), *[None] * 6])
            case Kind.LATE:
                outcome.skipped.append([record, row[START], row[END], row["close_time"], row["stream_time"]])
            case Kind.IGNORED:
                outcome.ignored.append([record, row["reason"]])
    return outcome


def _record(at: dict[tuple[int, int], int], row: Any, trigger: str, case: StreamsCase) -> int:
    """The number of the record that gave the row; what still waits at the end comes after all records."""
    return len(case.records) if row["kind"] == Kind.WAITING else at[row[PARTITION], row[trigger]]


def _row_identity(record: int, row: Any) -> list[Any]:
    return [record, row[PARTITION], bytes(row[KEY]).decode(), row[START], row[END], row["timestamp"]]


def _row(record: int, row: Any) -> list[Any]:
    elements = row["elements"] + [None] * (row["count"] - len(row["elements"]))
    return [*_row_identity(record, row), *(row[name] for name in ("count", "sum", "min", "max", "checksum")), elements]
