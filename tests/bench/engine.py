"""The engine against plain Spark batch, which computes the complete values alone, and no lateness."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from spark_jobs.eventtime.durations import HOUR, MINUTE
from spark_jobs.eventtime.windows import AnyWindows, SessionWindows, SlidingWindows, TumblingWindows
from tests.bench.data import KEYS, dataset
from tests.bench.measure import Row, alternate, to_nowhere
from tests.bench.workload import Bench, plain, replayed, timeline_only

TARGETS = {100: "<= 2.6", 10_000: "<= 1.6"}
SLOW_RECORDS = 5_000_000
"""Each record is in twelve sliding windows, and sessions are sorted: these sections use fewer records."""


def engine(bench: Bench) -> Iterator[Row]:
    """One-minute windows, 100 and 10,000 keys."""
    windows = TumblingWindows(MINUTE)
    data = dataset(bench.spark, bench.home, bench.records)
    for keys in KEYS:
        groups = plain(bench.spark, data, keys, windows).count()
        bench.log(f"{keys:,} keys, {groups:,} groups")
        median = alternate(
            {
                "replay": lambda keys=keys: replayed(bench.spark, data, keys, windows, to_nowhere),
                "plain": lambda keys=keys: to_nowhere(plain(bench.spark, data, keys, windows)),
                "timeline": lambda keys=keys: timeline_only(bench.spark, data, keys, windows),
            },
            bench.rounds,
            bench.log,
        )
        yield Row(
            "engine",
            f"{_millions(data.records)} records, {_millions(groups)} groups",
            median["replay"],
            median["plain"],
            TARGETS[keys],
            f"faithful + complete against complete alone; the timeline is {median['timeline']:.1f} s of it",
        )


def sliding(bench: Bench) -> Iterator[Row]:
    """Windows of one hour, every five minutes, 100 keys."""
    yield _against_plain(bench, "sliding", "1 h every 5 min", 100, SlidingWindows(HOUR, 5 * MINUTE))


def sessions(bench: Bench) -> Iterator[Row]:
    """Sessions of 10,000 keys, each with a record every 43 s in the mean; the gap is one minute."""
    yield _against_plain(bench, "sessions", "gap 1 min", 10_000, SessionWindows(MINUTE))


def _against_plain(bench: Bench, section: str, what: str, keys: int, windows: AnyWindows) -> Row:
    fewer = replace(bench, records=min(bench.records, SLOW_RECORDS), rounds=min(bench.rounds, 3))
    data = dataset(bench.spark, bench.home, fewer.records)
    median = alternate(
        {
            "replay": lambda: replayed(bench.spark, data, keys, windows, to_nowhere),
            "plain": lambda: to_nowhere(plain(bench.spark, data, keys, windows)),
        },
        fewer.rounds,
        bench.log,
    )
    described = f"{what}, {_millions(data.records)} records, {keys:,} keys"
    return Row(section, described, median["replay"], median["plain"], note="against window() or session_window()")


def _millions(count: int) -> str:
    return f"{count / 1e6:.3g}M"
