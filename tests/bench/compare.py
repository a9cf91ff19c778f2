"""A night that also compares what the live job emitted, against the same night without that."""

from __future__ import annotations

import secrets
import shutil
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.comparison.stage import compare_run, has_live_news
from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import NoProgress
from tests.bench.data import dataset
from tests.bench.measure import Row
from tests.bench.reconcile import (
    DAYS,
    Cost,
    Log,
    cost_of,
    drop_tables,
    night_pipeline,
    reconcile_night,
    split_log,
)
from tests.bench.workload import AGGREGATES, Bench

LATE_SHARE = 0.01
"""The share of a reconciliation's records that belong to windows of the days before."""
COMPARING = EndPolicy(compare=compare_run, live_news=has_live_news)
EMISSION_MS = 5
"""The live job emits a window so long after its close."""

_FILES = 30
_WRONG = 1_000
"""One emitted window in so many has a wrong count."""


def compare(bench: Bench) -> Iterator[Row]:
    """The night of the last of thirty days, of whose records some are late, with the live job judged and without."""
    data = dataset(bench.spark, bench.home, bench.records)
    log = split_log(bench, data, LATE_SHARE)
    emitted = _emitted(bench, log)
    try:
        judged, plain, windows = [], [], 0
        for number in range(min(bench.rounds, 3) + 1):
            night, without, windows = _one_night(bench, log, emitted)
            name = f"round {number}" if number else "warm-up"
            bench.log(f"{name}: comparing {night.seconds:.2f} s, not comparing {without.seconds:.2f} s")
            if number:
                judged.append(night)
                plain.append(without)
        yield Row(
            "compare",
            f"{data.records / 1e6:g}M records of {DAYS} days, {LATE_SHARE:.0%} of the last day's late",
            statistics.median(cost.seconds for cost in judged),
            statistics.median(cost.seconds for cost in plain),
            "<= 1.5",
            f"a night that also compares {windows:,} windows, against one that does not; input read: "
            f"{judged[-1].records / 1e6:.1f}M and {plain[-1].records / 1e6:.1f}M rows",
        )
    finally:
        shutil.rmtree(log.folder, ignore_errors=True)


def _emitted(bench: Bench, log: Log) -> Log:
    """The rows of a live job that kept up, few of them wrong: those until the night, and those of the night."""
    folder = log.folder.parent / "emitted_in_order"
    rows = Log(folder / "rows", folder / "before", folder / "news")
    if (folder / "news" / "_SUCCESS").exists():
        return rows
    spark = bench.spark
    pipeline = night_pipeline(log, f"emitted_{secrets.token_hex(4)}", {"end_of_input": "freeze"})
    log.lay_out(log.before, log.news)
    try:
        execute(spark, pipeline, make_plan(spark, pipeline), NoProgress())
        until = spark.read.parquet(str(log.before)).agg(F.timestamp_millis(F.max("arrival"))).collect()[0][0]
        wrong = F.when(F.pmod(F.xxhash64("key", "window_start"), F.lit(_WRONG)) == 0, 1).otherwise(0)
        frame = (
            spark.table(Tables.of(pipeline).windows)
            .where("closed_at IS NOT NULL AND pane IS NOT NULL")
            .select("key", "window_start", *AGGREGATES, F.timestamp_millis(_at()).alias("emitted_at"))
            .withColumn("events", F.col("events") + wrong)
        )
        is_old = F.col("emitted_at") <= F.lit(until)
        for path, chosen in ((rows.before, frame.where(is_old)), (rows.news, frame.where(~is_old))):
            # A live job writes its rows as time goes on: each file has those of some hours.
            in_order = chosen.repartitionByRange(_FILES, "emitted_at").sortWithinPartitions("emitted_at")
            in_order.write.mode("overwrite").parquet(str(path))
    finally:
        drop_tables(spark, pipeline)
    return rows


def _at() -> Column:
    return F.unix_millis("closed_at") + F.lit(EMISSION_MS)


def _one_night(bench: Bench, log: Log, emitted: Log) -> tuple[Cost, Cost, int]:
    """The night with the comparison and without, each over a table of its own; and how many windows were compared."""
    spark, token = bench.spark, secrets.token_hex(4)
    judged, plain = (
        night_pipeline(log, f"{name}_{token}", {"end_of_input": "freeze", "live": _live(emitted.folder)})
        for name in ("judged", "plain")
    )
    try:
        log.lay_out(log.before)
        emitted.lay_out(emitted.before)
        execute(spark, judged, make_plan(spark, judged), NoProgress(), end_policy=COMPARING)
        execute(spark, plain, make_plan(spark, plain), NoProgress())
        log.lay_out(log.before, log.news)
        emitted.lay_out(emitted.before, emitted.news)
        found: list[str] = []

        def night() -> None:
            found.append(reconcile_night(spark, judged, NoProgress(), end_policy=COMPARING).run_id)

        with_verdicts = cost_of(spark, night)
        without = cost_of(
            spark, lambda: reconcile_night(spark, plain, NoProgress(), end_policy=replace(COMPARING, compare=None))
        )
        verdicts = Verdicts.read(RunStore.configured().folder(found[0]))
        if verdicts is None or verdicts.problem:
            raise RewindowError(
                "the night has compared nothing", judged.name, verdicts.problem or "" if verdicts else ""
            )
        return with_verdicts, without, verdicts.windows
    finally:
        drop_tables(spark, judged, plain)


def _live(folder: Path) -> dict[str, Any]:
    return {
        "source": {"kind": "files", "path": f"{folder}/*.parquet", "format": "parquet"},
        "window": {"start": "window_start"},
        "emitted_at": "emitted_at",
    }
