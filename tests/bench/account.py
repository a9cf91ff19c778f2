"""What it costs to keep a reading by bucket and an account of every record, beside the same runs without both."""

from __future__ import annotations

import secrets
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from spark_jobs.positions import Known
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.computing import FullWork, IncrementalWork
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import inspection, scan
from tests.bench.data import dataset
from tests.bench.definition import bench_pipeline
from tests.bench.measure import Row
from tests.bench.nights import processor_seconds
from tests.bench.reconcile import Log, drop_tables, night_pipeline, split_log
from tests.bench.workload import Bench

KEYS = 10_000
SHARE_LATE = 0.01
TARGETS = {"full run": "<= 1.1", "night": "<= 1.05"}


def account(bench: Bench) -> Iterator[Row]:
    """A full run and a night, with and without, in turns."""
    data = dataset(bench.spark, bench.home, bench.records)
    log = split_log(bench, data, SHARE_LATE)
    took: dict[tuple[str, bool], list[float]] = {(what, counts): [] for what in TARGETS for counts in (True, False)}
    try:
        for number in range(min(bench.rounds, 4) + 1):
            for counts in (True, False) if number % 2 else (False, True):  # the JVM still gets faster
                seconds = {"full run": _full(bench, counts), "night": _night(bench, log, counts)}
                said = ", ".join(f"{what} {one:.2f} s" for what, one in seconds.items())
                bench.log(f"{f'round {number}' if number else 'warm-up'}, {'with' if counts else 'without'}: {said}")
                if number:
                    for what, one in seconds.items():
                        took[what, counts].append(one)
    finally:
        shutil.rmtree(log.folder, ignore_errors=True)
    for what, target in TARGETS.items():
        ours, theirs = (statistics.median(took[what, counts]) for counts in (True, False))
        yield Row(
            "account",
            f"{data.records / 1e6:g}M records: {what}",
            ours,
            theirs,
            target,
            "seconds of processors, with against without",
        )


def _seconds(action: Callable[[], object]) -> float:
    """Seconds of processors: other work on the machine hardly moves them."""
    began = processor_seconds()
    action()
    return processor_seconds() - began


def _full(bench: Bench, counts: bool) -> float:
    spark = bench.spark
    data = dataset(spark, bench.home, bench.records)
    pipeline = bench_pipeline(data, KEYS, bench.home / "bench", f"account_{secrets.token_hex(4)}")
    try:
        with _counting(counts):
            return _seconds(lambda: execute(spark, pipeline, make_plan(spark, pipeline), NoProgress()))
    finally:
        drop_tables(spark, pipeline)


def _night(bench: Bench, log: Log, counts: bool) -> float:
    spark, pipeline = bench.spark, night_pipeline(log, f"account_night_{secrets.token_hex(4)}")
    try:
        with _counting(counts):
            log.lay_out(log.before)
            execute(spark, pipeline, make_plan(spark, pipeline), NoProgress())
            log.lay_out(log.before, log.news)
            return _seconds(lambda: reconcile(spark, pipeline, NoProgress()))
    finally:
        drop_tables(spark, pipeline)


@contextmanager
def _counting(counts: bool) -> Iterator[None]:
    """Runs as they are; or, without `counts`, with an empty account and a reading without buckets."""
    if counts:
        yield
        return
    with (
        patch.object(FullWork, "account", lambda *_: Account()),
        patch.object(IncrementalWork, "account", lambda *_: Account()),
        patch.object(inspection, "scan_task", _scan_without_buckets),
        patch.object(scan, "position_hash", _no_hash),
    ):
        yield


def _no_hash() -> Any:
    from pyspark.sql import functions as F

    return F.lit(0).cast("long")


class _NoPositions(scan.Positions):
    def add(self, offsets: np.ndarray, arrivals: Any, hashes: np.ndarray, times: np.ndarray) -> None:
        """Nothing is kept of them."""


class _NoPositionsYet(dict[int, scan.Positions]):
    def setdefault(self, key: int, default: Any = None) -> Any:
        return super().setdefault(key, _NoPositions(default.known))


def _scan_without_buckets(has_arrival: bool, has_sequence: bool, known: Mapping[int, Known] | None = None) -> Any:
    def found(batches: Any) -> Any:
        seen = scan._Scan(has_arrival, has_sequence, known or {})  # pyright: ignore[reportPrivateUsage]
        seen._positions = _NoPositionsYet()  # pyright: ignore[reportPrivateUsage]
        for batch in batches:
            seen.add(batch)
        rows = list(seen.rows())
        columns = [pa.array([getattr(row, name) for row in rows], pa.int64()) for name in scan.FIELDS]
        yield pa.RecordBatch.from_arrays(columns, schema=scan.SCHEMA)

    return found
