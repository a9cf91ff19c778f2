"""A nightly reconciliation against a full run, and what it costs to compare windows with what is published."""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.publication import Cause, Publication
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import Tables, drop_table
from spark_jobs.runs.night.nightly import reconcile as reconcile_night
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from tests.bench.data import BOUND, MIDNIGHT, PARTITIONS, RECORDS_A_DAY, Dataset, dataset
from tests.bench.definition import read_sections
from tests.bench.measure import NAMESPACE, Row, alternate, input_read, to_nowhere
from tests.bench.workload import AGGREGATES, Bench

DAYS = 30
"""Over so many days the records are spread; the last of them is the night's."""
LATE_SHARES = (0.001, 0.01, 0.1)
"""The share of a reconciliation's records that belong to windows of the days before."""
OLDEST_MS = 7 * DAY
NIGHT_TARGET = {0.01: "<= 0.2"}
KEYS = 10_000

_OTHER_ROWS = "a lookup that gives other rows for 1% of the keys"
_CHANGED = 100
"""One window in so many is another than the published one."""


@dataclass(frozen=True, slots=True)
class Log:
    """The records in a folder: `before` lies there from the start, `news` are put there for the night."""

    folder: Path
    before: Path
    news: Path

    def lay_out(self, *parts: Path) -> None:
        """Have exactly these parts in the folder, by links: nothing is copied."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for part in parts:
            for file in sorted(part.glob("part-*.parquet")):
                os.link(file, self.folder / f"{part.name}-{file.name}")


@dataclass(frozen=True, slots=True)
class Cost:
    """What something took: seconds, and bytes and records of input, Rewindow's own tables included."""

    seconds: float
    bytes: int
    records: int


def reconcile(bench: Bench) -> Iterator[Row]:
    """The night of the last of thirty days, of whose records some are late, against a full run of everything."""
    data = dataset(bench.spark, bench.home, bench.records)
    for share in LATE_SHARES:
        log = split_log(bench, data, share)
        try:
            nights, wholes = [], []
            # The share that has a target is measured more often.
            for number in range(min(bench.rounds, 3) + 1 if share in NIGHT_TARGET else 2):
                night, whole = _one_night(bench, log)
                name = f"round {number}" if number else "warm-up"
                bench.log(f"{share:.1%} late, {name}: night {night.seconds:.2f} s, full run {whole.seconds:.2f} s")
                if number:
                    nights.append(night)
                    wholes.append(whole)
            yield Row(
                "reconcile",
                f"{data.records / 1e6:g}M records of {DAYS} days, {share:.1%} of the last day's late",
                statistics.median(n.seconds for n in nights),
                statistics.median(w.seconds for w in wholes),
                NIGHT_TARGET.get(share, ""),
                "the night against a full run, each publishing what changes; input read: "
                f"{nights[-1].records / 1e6:.1f}M of {wholes[-1].records / 1e6:.1f}M rows, "
                f"{nights[-1].bytes >> 20:,} of {wholes[-1].bytes >> 20:,} MiB",
            )
        finally:
            shutil.rmtree(log.folder, ignore_errors=True)


def shapes(bench: Bench) -> Iterator[Row]:
    """The same with 1 % late by up to thirty days, behind a deduplication, with lookups, of sessions and of tasks.

    Of the last two a tenth of the records: full runs of them take minutes.
    """
    spark = bench.spark
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    regions = f"{NAMESPACE}.regions"
    spark.range(KEYS).selectExpr("CAST(id AS INT) AS code", "id % 50 AS region").writeTo(regions).createOrReplace()
    others = f"UPDATE {regions} SET region = region + 50 WHERE code % 100 = 7"
    looked_up = {
        "lookup": {"table": regions, "on": {"code": f"CAST(key_{KEYS} AS INT)"}, "as_of": "run"},
        "keys": {"key": f"key_{KEYS}", "region": "region"},
    }
    forms: dict[str, Mapping[str, Any]] = {
        "duplicates by processing time": {
            "deduplicate": {"by": ["partition", "offset"], "kind": "processing_time", "within": DAY}
        },
        "a lookup": looked_up,
        _OTHER_ROWS: looked_up,
    }
    tenth = {
        "sessions": {"window": {"type": "session", "gap": "10 min"}},
        "Kafka Streams with the emit strategy": {
            "engine": "kafka_streams",
            "watermark": {"grace": BOUND},
            "emission": {"kind": "on_close", "strategy": "emit"},
        },
    }
    try:
        for chosen, records in ((forms, bench.records), (tenth, bench.records // 10)):
            data = dataset(spark, bench.home, records)
            log = split_log(bench, data, 0.01, DAYS * DAY)
            for name, more in chosen.items():
                try:
                    night, whole = _one_night(bench, log, more, others if name == _OTHER_ROWS else None)
                finally:
                    shutil.rmtree(log.folder, ignore_errors=True)
                bench.log(f"{name}: night {night.seconds:.2f} s, full run {whole.seconds:.2f} s")
                config = f"{data.records / 1e6:g}M records of {DAYS} days, 1% of the last day's late: {name}"
                note = f"the night against a full run, once; load {os.getloadavg()[0]:.1f}"
                yield Row("shapes", config, night.seconds, whole.seconds, "<= 0.3", note)
    finally:
        drop_table(spark, regions)


def split_log(bench: Bench, data: Dataset, share: float, oldest: int = OLDEST_MS) -> Log:
    """The data set spread over the days; of the last one `share` is up to `oldest` ms (a week) older. Made once."""
    folder = bench.home / "bench" / f"nights_{data.records}_{share:g}_{oldest // DAY}"
    log = Log(folder / "log", folder / "before", folder / "news")
    cut = data.records // PARTITIONS * (DAYS - 1) // DAYS
    frame = bench.spark.read.parquet(str(data.path))
    spread = DAYS * RECORDS_A_DAY // data.records
    arrival = F.lit(MIDNIGHT) + (F.col("arrival") - F.lit(MIDNIGHT)) * F.lit(spread)
    number = F.struct("partition", "offset")
    is_late = (F.col("offset") >= cut) & (F.pmod(F.xxhash64(number), F.lit(1_000)) < F.lit(round(share * 1_000)))
    age = F.when(is_late, F.pmod(F.xxhash64(number, F.lit(1)), F.lit(oldest))).otherwise(
        F.col("arrival") - F.col("event_time")
    )
    frame = frame.withColumns({"event_time": F.greatest(arrival - age, F.lit(MIDNIGHT)), "arrival": arrival})
    for path, chosen in ((log.before, frame.where(F.col("offset") < cut)), (log.news, frame.where(f"offset >= {cut}"))):
        if not (path / "_SUCCESS").exists():
            chosen.write.mode("overwrite").parquet(str(path))
    return log


def _one_night(
    bench: Bench, log: Log, more: Mapping[str, Any] | None = None, meanwhile: str | None = None
) -> tuple[Cost, Cost]:
    """The night, and a full run at the same end offsets. `meanwhile`: SQL that runs before both.

    Each brings a table of its own, in which the days before are published, to the same new state. Both are dropped in
    the end.
    """
    spark, token = bench.spark, secrets.token_hex(4)
    nightly, whole = (night_pipeline(log, f"{name}_{token}", more) for name in ("nightly", "whole"))
    try:
        log.lay_out(log.before)
        for pipeline in (nightly, whole):
            execute(spark, pipeline, make_plan(spark, pipeline), NoProgress())
        log.lay_out(log.before, log.news)
        if meanwhile is not None:
            spark.sql(meanwhile)
        notes: list[RunResult] = []
        night = cost_of(spark, lambda: notes.append(reconcile_night(spark, nightly, NoProgress())))
        if notes[0].continued_from is None:
            raise AssertionError(f"the night went on from no run: {notes[0].note}")
        full = cost_of(spark, lambda: execute(spark, whole, make_plan(spark, whole), NoProgress()))
        states = {_state(spark, pipeline) for pipeline in (nightly, whole)}
        if len(states) != 1:
            raise AssertionError(f"the night and the full run disagree (windows, sum of hashes): {states}")
    finally:
        drop_tables(spark, nightly, whole)
    return night, full


def drop_tables(spark: SparkSession, *pipelines: Pipeline) -> None:
    """Drop what the pipelines have published."""
    for pipeline in pipelines:
        tables = Tables.of(pipeline)
        for table in (
            tables.windows,
            tables.late,
            tables.quarantine,
            tables.verdicts,
            tables.comparisons,
            tables.emitted,
        ):
            if spark.catalog.tableExists(table):
                drop_table(spark, table)


def _state(spark: SparkSession, pipeline: Pipeline) -> tuple[int, int]:
    """How many windows are published, and what their keys and values add up to."""
    windows = spark.table(Tables.of(pipeline).windows).drop("run_id", "valid_from")
    counted = windows.agg(F.count("*"), F.sum(F.xxhash64("*").cast("decimal(38,0)")))
    return tuple(counted.collect()[0])


def cost_of(spark: SparkSession, action: Callable[[], object]) -> Cost:
    began = time.perf_counter()
    with input_read(spark) as read:
        action()
        seconds = time.perf_counter() - began
    return Cost(seconds, read.bytes, read.records)


def night_pipeline(log: Log, table: str, more: Mapping[str, Any] | None = None) -> Pipeline:
    """The pipeline `table` over the log, in windows of an hour; `more` adds or replaces sections."""
    return Pipeline.model_validate(
        {
            "name": table,
            **read_sections(str(log.folder)),
            "keys": {"key": f"key_{KEYS}"},
            "window": {"type": "tumbling", "size": HOUR},
            "aggregates": AGGREGATES,
            "output": {"namespace": "bench", "table": table},
            **(more or {}),
        }
    )


def diff(bench: Bench) -> Iterator[Row]:
    """The changes of staged windows against as many published ones, against a plain join that counts the same."""
    windows = bench.records // 2
    spark, token = bench.spark, secrets.token_hex(4)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    facts, staging = (
        PublishedTable(spark, f"{NAMESPACE}.diff_{token}"),
        Staging(spark, f"{NAMESPACE}.diff_staged_{token}"),
    )
    before = _windows(bench, windows)
    after = before.withColumn("total", F.col("total") + F.when(F.xxhash64("total") % _CHANGED == 0, 1).otherwise(0))
    at = datetime(2026, 1, 2, tzinfo=UTC)
    try:
        bench.log(f"publishing {windows:,} windows")
        facts.prepare(before.schema)
        facts.publish(_publication(before, "before"), facts.head(), at)
        staging.write(1, after)
        publication = _publication(staging.rows(), "after")
        median = alternate(
            {
                "diff": lambda: to_nowhere(facts.changes(publication, at)),
                "plain": lambda: to_nowhere(_plain(facts.current(), staging.rows())),
            },
            min(bench.rounds, 3),
            bench.log,
        )
        yield Row(
            "diff",
            f"{windows / 1e6:g}M windows, 1 in {_CHANGED} changed",
            median["diff"],
            median["plain"],
            "<= 2",
            note="the new revisions with cause and number, null-safe, against a plain outer join of the values",
        )
    finally:
        staging.drop()
        drop_table(spark, facts.table)


def _windows(bench: Bench, count: int) -> DataFrame:
    start = F.lit(MIDNIGHT) + F.expr(f"id div {KEYS}") * F.lit(MINUTE)
    value = F.pmod(F.xxhash64("id"), F.lit(1_000_000))
    return bench.spark.range(count).select(
        F.pmod("id", F.lit(KEYS)).cast("int").alias("key"),
        F.timestamp_millis(start).alias("window_start"),
        F.timestamp_millis(start + MINUTE).alias("window_end"),
        (value % 100).alias("events"),
        value.alias("total"),
        value.alias("total__complete"),
        F.lit(0).cast("bigint").alias("records_dropped"),
        F.lit("closed").alias("state"),
    )


def _publication(staged: DataFrame, run_id: str) -> Publication:
    identity = ("key", "window_start", "window_end")
    span = TimeRange(MIDNIGHT, MIDNIGHT + 1000 * DAY)
    return Publication(
        run_id, span, staged, identity, lambda windows: windows, _late_arrivals, {0: 1}, f"publishing_{run_id}", list
    )


def _late_arrivals() -> Column:
    return F.lit(Cause.LATE_ARRIVALS.value)


def _plain(published: DataFrame, staged: DataFrame) -> DataFrame:
    values = ("events", "total", "total__complete", "records_dropped", "state")
    old = published.select("key", "window_start", "window_end", F.struct(*values).alias("old"))
    new = staged.select("key", "window_start", "window_end", F.struct(*values).alias("new"))
    joined = new.join(old, ["key", "window_start", "window_end"], "full_outer")
    return joined.where("old IS NULL OR new IS NULL OR old <> new")
