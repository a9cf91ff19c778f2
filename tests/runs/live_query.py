"""A real Structured Streaming query whose rows go to files, and what a backfill gives in place of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from enum import Enum
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.kafka import Sent

SCHEMA = "k STRING, ts BIGINT, v BIGINT"
"""The fields of each record: key, event time in ms, value."""


START = 1_700_000_040_000  # on a minute

STEPS: list[list[tuple[int, str, int]]] = [
    [(0, "a", 5), (0, "a", 30), (1, "b", 20)],
    [(0, "a", 70), (1, "b", 65)],
    [(0, "b", 10), (1, "a", 50), (0, "a", 130)],
    [(1, "b", 15), (0, "a", 66), (1, "b", 118)],
    [(1, "a", 119), (0, "b", 200)],
    [(0, "a", 61), (1, "b", 150), (1, "a", 125)],
]
"""Records by step: partition, key, seconds after START. Some are late: the watermark is 10 s behind the latest."""


def sent(step: list[tuple[int, str, int]]) -> list[Sent]:
    return [
        Sent(json.dumps({"k": key, "ts": START + seconds * 1000, "v": seconds}), partition)
        for partition, key, seconds in step
    ]


def topic_stream(spark: SparkSession, servers: str, topic: str, delay: str, **options: str) -> DataFrame:
    """The records of a topic from its beginning, with their watermark."""
    rows = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest", **options})
        .load()
        .select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("r"))
        .select("r.*")
    )
    return _watched(rows, delay)


def files_stream(spark: SparkSession, path: Path, kind: str, delay: str, **options: str) -> DataFrame:
    """The records of the files that come to a folder, with their watermark."""
    return _watched(spark.readStream.schema(SCHEMA).format(kind).options(**options).load(str(path)), delay)


def _watched(rows: DataFrame, delay: str) -> DataFrame:
    return rows.withColumn("at", F.timestamp_millis("ts")).withWatermark("at", delay)


class Trigger(Enum):
    """When a query begins a batch, as `DataStreamWriter.trigger` takes it."""

    AS_SOON_AS_POSSIBLE = ("processingTime", "0 seconds")
    EACH_300_MS = ("processingTime", "300 milliseconds")
    AVAILABLE_NOW = ("availableNow", True)


class LiveQuery:
    """A query that runs while it is needed, and appends its rows to JSON files. Several streams are one."""

    def __init__(
        self,
        streams: list[DataFrame],
        folder: Path,
        mode: str,
        window: str,
        *,
        ids: tuple[str, ...] = (),
        gap: str = "20 seconds",
    ) -> None:
        self.mode = mode
        self.checkpoint, self.rows = folder / "checkpoint", folder / "rows"
        self.rows.mkdir(parents=True, exist_ok=True)
        by = F.session_window("at", gap) if window == "session" else F.window("at", "1 minute")
        watched = reduce(DataFrame.union, streams)
        self.frame = (
            (watched.dropDuplicatesWithinWatermark(list(ids)) if ids else watched)
            .groupBy("k", by.alias("w"))
            .agg(F.count("*").alias("n"), F.sum("v").alias("total"))
            .select("k", F.unix_millis("w.start").alias("s"), F.unix_millis("w.end").alias("e"), "n", "total")
        )

    def run(
        self,
        steps: Sequence[Callable[[], object]],
        trigger: Trigger = Trigger.AS_SOON_AS_POSSIBLE,
        *,
        before: Callable[[], None] = lambda: None,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """One start of the query: each step, then wait until everything is processed.

        `before` and `after` are called in each batch, before its rows are out and after it.
        """
        rows = self.rows

        def write(batch: DataFrame, number: int) -> None:
            before()
            found = [{**row.asDict(), "batch": number} for row in batch.collect()]
            (rows / f"{number:05}.json").write_text("".join(json.dumps(row) + "\n" for row in found))
            after()

        query = (
            self.frame.writeStream.outputMode(self.mode)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(**dict([trigger.value]))
            .foreachBatch(write)
            .start()
        )
        try:
            for step in steps:
                step()
                query.processAllAvailable()
        finally:
            query.stop()

    def emitted(self) -> list[dict]:
        return [json.loads(line) for file in sorted(self.rows.iterdir()) for line in file.read_text().splitlines()]


WINDOWS = {"tumbling": {"type": "tumbling", "size": "1 min"}, "session": {"type": "session", "gap": "20 s"}}
"""The windows of `LiveQuery` as a definition has them."""


def live_section(live: LiveQuery) -> dict:
    return {
        "source": {
            "kind": "files",
            "path": str(live.rows),
            "format": "json",
            "schema": "k STRING, s BIGINT, e BIGINT, n BIGINT, total BIGINT, batch BIGINT",
        },
        "window": {"start": "s", "end": "e", "unit": "ms"},
    }


def defined(live: LiveQuery, history: dict, values: str, name: str, window: dict, /, **more: object) -> Pipeline:
    """The definition of a query over a history whose values have this format, with a delay of 10 seconds."""
    return Pipeline.model_validate(
        {
            "name": name,
            "history": history,
            "value": {"format": values, "schema": SCHEMA},
            "keys": {"k": "k"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "engine": "spark",
            "watermark": {"delay": "10 seconds", "checkpoint": str(live.checkpoint)},
            "output_mode": live.mode,
            "window": window,
            "aggregates": {"n": "count(*)", "total": "sum(v)"},
            "output": {"namespace": name},
            **more,
        }
    )


def over_files(live: LiveQuery, path: Path, kind: str, name: str, window: dict, /, **more: object) -> Pipeline:
    """The definition of a query whose files are these."""
    history = {"kind": "files", "path": str(path), "format": kind}
    return defined(live, history, "columns", name, window, **{"live": live_section(live), **more})


def backfilled(spark: SparkSession, pipeline: Pipeline) -> tuple[set[tuple], int, str]:
    """The faithful windows that came out, the number of late rows, the fidelity."""
    with planned_records(spark, pipeline) as (plan, records):
        result = execute(spark, pipeline, plan, NoProgress(), records=records)
    rows = spark.table(result.tables.windows).where("pane IS NOT NULL").collect()
    found = {
        (row["k"], *(int(row[c].timestamp() * 1000) for c in ("window_start", "window_end")), row["n"], row["total"])
        for row in rows
    }
    return found, spark.table(result.tables.late).count(), plan.fidelity


def as_rows(emitted: list[dict]) -> set[tuple]:
    return {(row["k"], row["s"], row["e"], row["n"], row["total"]) for row in emitted}
