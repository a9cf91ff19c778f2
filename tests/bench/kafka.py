"""A replay from a topic, against what a plain Spark user writes: read, `from_json`, `groupBy`."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import good
from tests.bench.data import BOUND, PARTITIONS, dataset
from tests.bench.measure import Row, alternate, to_nowhere, to_table
from tests.bench.workload import AGGREGATES, Bench

RECORDS = 4_000_000
"""Most records of the topic; it takes about 170 bytes each on the broker's disk."""
KEYS = 100
TARGET = "<= 1.5"

_TOPIC = "bench"
_SCHEMA = "key INT, event_time BIGINT, value BIGINT"


def kafka(bench: Bench) -> Iterator[Row]:
    """JSON records in 8 partitions of a broker on this machine, which works on the same cores."""
    records = min(bench.records, RECORDS)
    folder = bench.home / "bench" / "kafka"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with KafkaBroker(folder) as broker:
            broker.create_topic(_TOPIC, PARTITIONS, APPEND_TIME)
            bench.log(f"loading {records:,} records")
            _load(bench, broker, records)
            median = alternate(
                {
                    "replay": lambda: _replay(bench, broker),
                    "plain": lambda: to_nowhere(_plain(bench, broker)),
                    "run": lambda: _run(bench, broker),
                    "plain table": lambda: to_table(_plain(bench, broker), "plain_kafka"),
                },
                min(bench.rounds, 3),
                bench.log,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    what = f"{records / 1e6:g}M JSON records, {KEYS} keys"
    yield Row(
        "kafka",
        what,
        median["replay"],
        median["plain"],
        TARGET,
        f"{records / median['replay']:,.0f} records/s: plan, timeline, faithful and complete windows, late records",
    )
    yield Row(
        "kafka",
        f"{what}, to Iceberg",
        median["run"],
        median["plain table"],
        note="the same, quarantine and counts, staged and published, against the complete values alone",
    )


def _load(bench: Bench, broker: KafkaBroker, records: int) -> None:
    """One task, so that the records arrive in the order of their numbers, as from a live producer."""
    data = dataset(bench.spark, bench.home, bench.records).read(bench.spark, KEYS)
    fields = F.to_json(F.struct("key", "event_time", "value")).alias("value")
    chosen = data.where(F.col("offset") < records // PARTITIONS).coalesce(1).sortWithinPartitions("arrival")
    rows = chosen.select("partition", fields)
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    writer.option("topic", _TOPIC).option("kafka.linger.ms", "20").save()


def _replay(bench: Bench, broker: KafkaBroker) -> None:
    pipeline = _pipeline(broker, "kafka")
    with planned_records(bench.spark, pipeline) as (plan, records):
        history = History(good(records), plan.event_times, plan.processing_time_end)
        spec = spec_of(pipeline, [p.partition for p in plan.partitions])
        with Replay(history, spec) as replay:
            for chunk in plan.chunks:
                to_nowhere(replay.windows(chunk))
                to_nowhere(replay.late(chunk))


def _run(bench: Bench, broker: KafkaBroker) -> None:
    """Into a new table each time: one that holds the windows already would have nothing to write."""
    pipeline = _pipeline(broker, f"kafka_{secrets.token_hex(4)}")
    with planned_records(bench.spark, pipeline) as (plan, records):
        execute(bench.spark, pipeline, plan, NoProgress(), records=records)


def _plain(bench: Bench, broker: KafkaBroker) -> DataFrame:
    topic = bench.spark.read.format("kafka").option("kafka.bootstrap.servers", broker.servers)
    topic = topic.option("subscribe", _TOPIC).option("startingOffsets", "earliest").load()
    fields = topic.select(F.from_json(F.col("value").cast("string"), _SCHEMA).alias("fields")).select("fields.*")
    time = F.col("event_time")
    values = [F.expr(text).alias(name) for name, text in AGGREGATES.items()]
    return fields.groupBy("key", (time - F.pmod(time, F.lit(MINUTE))).alias("window_start")).agg(*values)


def _pipeline(broker: KafkaBroker, table: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "bench_kafka",
            "history": {"kind": "kafka", "servers": broker.servers, "topic": _TOPIC},
            "value": {"format": "json", "schema": _SCHEMA},
            "keys": {"key": "key"},
            "event_time": {"expression": "event_time", "unit": "ms", "missing": "quarantine"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": BOUND},
            "window": {"type": "tumbling", "size": MINUTE},
            "aggregates": AGGREGATES,
            "output": {"namespace": "bench", "table": table},
        }
    )
