"""A nightly reconciliation against a full run, and what it costs to compare windows with what is published."""

from __future__ import annotations

import os
import secrets
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.bench.data import BOUND, DAY_MS, MIDNIGHT, PARTITIONS, Dataset, dataset
from spark_jobs.bench.measure import Row, alternate, to_nowhere
from spark_jobs.bench.workload import AGGREGATES, MINUTE, Bench
from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.facts import Cause, Facts, Publication
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.plan import make_plan
from spark_jobs.progress import NoProgress
from spark_jobs.reconcile_run import reconcile as reconcile_night
from spark_jobs.replay.assign import Span
from spark_jobs.run import execute

NEW_SHARE = 0.01
"""Of all records, those that a night brings."""
NIGHT_TARGET = "<= 0.2"
KEYS = (100, 10_000)

_NAMESPACE = "rewindow.bench"
_CHANGED = 100
"""One window in so many is another than the published one."""


@dataclass(frozen=True, slots=True)
class _Log:
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


def reconcile(bench: Bench) -> Iterator[Row]:
    """One night with 1 % new records behind a full run of the rest, against a full run of everything."""
    data = dataset(bench.spark, bench.home, bench.records)
    log = _split(bench, data)
    try:
        for keys in KEYS:
            nights, wholes = [], []
            for number in range(min(bench.rounds, 3) + 1):
                night, whole = _one_night(bench, log, keys)
                bench.log(f"{f'round {number}' if number else 'warm-up'}: night {night:.2f} s, full run {whole:.2f} s")
                if number:
                    nights.append(night)
                    wholes.append(whole)
            yield Row(
                "reconcile", f"{data.records / 1e6:g}M records, 1 % of them new, {keys:,} keys",
                statistics.median(nights), statistics.median(wholes), NIGHT_TARGET,
                "a nightly reconciliation, published, against a full run of everything, published",
            )  # fmt: skip
    finally:
        shutil.rmtree(log.folder, ignore_errors=True)


def _split(bench: Bench, data: Dataset) -> _Log:
    """The data set cut at an offset of each partition; made once."""
    folder = bench.home / "bench" / f"nights_{data.records}"
    log = _Log(folder / "log", folder / "before", folder / "news")
    cut = int(data.records // PARTITIONS * (1 - NEW_SHARE))
    frame = bench.spark.read.parquet(str(data.path))
    for path, chosen in ((log.before, frame.where(F.col("offset") < cut)), (log.news, frame.where(f"offset >= {cut}"))):
        if not (path / "_SUCCESS").exists():
            chosen.write.mode("overwrite").parquet(str(path))
    return log


def _one_night(bench: Bench, log: _Log, keys: int) -> tuple[float, float]:
    """Seconds of the night, and of a full run at the same as-of vector; tables of their own, dropped in the end."""
    spark, token = bench.spark, secrets.token_hex(4)
    nightly, whole = (_pipeline(log, keys, f"{name}_{keys}_{token}") for name in ("nightly", "whole"))
    try:
        log.lay_out(log.before)
        execute(spark, nightly, make_plan(spark, nightly), NoProgress())
        log.lay_out(log.before, log.news)
        night = _seconds(lambda: reconcile_night(spark, nightly, NoProgress()))
        full = _seconds(lambda: execute(spark, whole, make_plan(spark, whole), NoProgress()))
        counts = {spark.table(Tables.of(p).windows).count() for p in (nightly, whole)}
        if len(counts) != 1:
            raise AssertionError(f"the night and the full run disagree: {counts} windows")
    finally:
        for pipeline in (nightly, whole):
            tables = Tables.of(pipeline)
            for table in (tables.windows, tables.late, tables.quarantine):
                spark.sql(f"DROP TABLE IF EXISTS {table} PURGE")
    return night, full


def _seconds(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _pipeline(log: _Log, keys: int, table: str) -> Pipeline:
    position = {"partition": "partition", "offset": "offset", "arrival": "arrival", "arrival_unit": "ms"}
    return Pipeline.model_validate(
        {
            "name": table,
            "history": {"kind": "files", "path": f"{log.folder}/*.parquet", "format": "parquet", "position": position},
            "keys": {"key": f"key_{keys}"},
            "event_time": {"expression": "event_time", "unit": "ms", "missing": "quarantine"},
            "watermark": {
                "generator": "bounded_out_of_orderness", "bound": BOUND, "emission": "per_event",
                "partitions": list(range(PARTITIONS)),
            },
            "window": {"type": "tumbling", "size": MINUTE},
            "aggregates": AGGREGATES,
            "output": {"namespace": "bench", "table": table},
        }
    )  # fmt: skip


def diff(bench: Bench) -> Iterator[Row]:
    """The changes of staged windows against as many published ones, against a plain join that counts the same."""
    windows = bench.records // 2
    spark, token = bench.spark, secrets.token_hex(4)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {_NAMESPACE}")
    facts, staging = Facts(spark, f"{_NAMESPACE}.diff_{token}"), Staging(spark, f"{_NAMESPACE}.diff_staged_{token}")
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
            "diff", f"{windows / 1e6:g}M windows, 1 in {_CHANGED} changed", median["diff"], median["plain"],
            note="the new revisions with cause and number, null-safe, against a plain outer join of the values",
        )  # fmt: skip
    finally:
        staging.drop()
        spark.sql(f"DROP TABLE IF EXISTS {facts.table} PURGE")


def _windows(bench: Bench, count: int) -> DataFrame:
    start = F.lit(MIDNIGHT) + F.expr(f"id div {max(KEYS)}") * F.lit(MINUTE)
    value = F.pmod(F.xxhash64("id"), F.lit(1_000_000))
    return bench.spark.range(count).select(
        F.pmod("id", F.lit(max(KEYS))).cast("int").alias("key"),
        F.timestamp_millis(start).alias("window_start"), F.timestamp_millis(start + MINUTE).alias("window_end"),
        (value % 100).alias("events"), value.alias("total"), value.alias("total__complete"),
        F.lit(0).cast("bigint").alias("records_dropped"), F.lit("closed").alias("state"),
    )  # fmt: skip


def _publication(staged: DataFrame, run_id: str) -> Publication:
    cause = F.lit(Cause.LATE_ARRIVALS.value)
    identity = ("key", "window_start", "window_end")
    span = Span(MIDNIGHT, MIDNIGHT + 1000 * DAY_MS)
    return Publication(run_id, span, staged, identity, lambda windows: windows, cause, {0: 1})


def _plain(published: DataFrame, staged: DataFrame) -> DataFrame:
    values = ("events", "total", "total__complete", "records_dropped", "state")
    old = published.select("key", "window_start", "window_end", F.struct(*values).alias("old"))
    new = staged.select("key", "window_start", "window_end", F.struct(*values).alias("new"))
    joined = new.join(old, ["key", "window_start", "window_end"], "full_outer")
    return joined.where("old IS NULL OR new IS NULL OR old <> new")
