"""Small pipelines that are reconciled night after night, their random records, and what their tables must be."""

from __future__ import annotations

import random
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.accounts import check_account
from tests.runs.small_runs import BOUNDED, MINUTE, T0, write
from tests.runs.small_runs import pipeline as small_pipeline

AHEAD = "the saved watermark state is ahead of new records"
"""Why a night may compute everything: a tick has come between records that arrived at one time."""
TICKS = "emission: periodic, interval: 5 s, timer_start: '2020-09-13T12:27:00Z'"

CASES = {
    "tumbling, per event": ("{type: tumbling, size: 1 min}", "0 s", "emission: per_event", "flush"),
    "sliding, lateness, frozen": ("{type: sliding, size: 2 min, slide: 30 s}", "45 s", "emission: per_event", "freeze"),
    "cumulative, periodic": ("{type: cumulative, size: 3 min, step: 1 min}", "20 s", TICKS, "flush"),
}


def log_of(seed: int, count: int = 500) -> list[dict]:
    """Records one to three seconds apart; most within the bound, some minutes late, a few keys, null among them."""
    draw = random.Random(seed)
    rows, arrival, offsets = [], T0, [0, 0]
    for number in range(count):
        arrival += draw.choice((0, 700, 1000, 2500))
        partition = draw.randrange(2)
        behind = draw.randrange(120_000, 900_000) if draw.random() < 0.04 else draw.randrange(0, 12_000)
        time = max(T0, arrival - behind)
        key = draw.choice(("a", "b", None))
        rows.append({"p": partition, "o": offsets[partition], "a": arrival, "k": key, "t": time, "v": number})
        offsets[partition] += 1
    return rows


def between_arrivals(records: list[dict], cut: int) -> int:
    """The first place from `cut` on between two arrivals: a night that begins within one reads all anew."""
    return next(n for n in range(cut, len(records) + 1) if n == len(records) or records[n]["a"] > records[n - 1]["a"])


def a_week_later(records: list[dict]) -> list[dict]:
    week = 7 * 24 * 60 * MINUTE
    return [r | {"a": r["a"] + week, "t": r["t"] + week} for r in records]


def pipeline(tmp_path: Path, name: str, case: str) -> Pipeline:
    window, lateness, emission, end = CASES[case]
    return small_pipeline(
        tmp_path,
        name,
        end=end,
        window=f"window: {window}\nallowed_lateness: {lateness}",
        watermark=f"{BOUNDED}, {emission}",
        aggregates="n: count(*), total: sum(v), top: max(v)",
        namespace="nightly_tests",
    )


def reconciled_in_parts(
    spark: SparkSession, folder: Path, defined: Pipeline, records: list[dict], cuts: list[int]
) -> list[RunResult]:
    """The nights of a pipeline whose records come in parts, up to each of `cuts`; the account of each is right."""
    done, results = 0, list[RunResult]()
    for night, cut in enumerate(cuts):
        write(folder / "data", records[done:cut], f"part-{night}.json")
        done = cut
        results.append(reconcile(spark, defined, LogProgress()))
        check_account(results[-1])
    return results


def rows(frame: DataFrame) -> list[str]:
    of_the_run = ("run_id", "revision", "cause", "as_of", "valid_from", "valid_to")
    return sorted(map(repr, frame.drop(*of_the_run).collect()))


def tables_of(spark: SparkSession, defined: Pipeline) -> list[list[str]]:
    tables = Tables.of(defined)
    return [rows(spark.table(name)) for name in (tables.windows, tables.late)]


def assert_history_is_whole(spark: SparkSession, defined: Pipeline, by: tuple[str, ...] = ()) -> None:
    """Revisions count from 1 without a hole, one follows the other in time, and the last one is what readers see.

    `by`: more columns that tell one window from another, such as the pane.
    """
    facts, identity = PublishedTable(spark, Tables.of(defined).windows), ("k", "window_start", "window_end", *by)
    lives: dict[tuple, list] = {}
    for row in facts.revisions().collect():
        lives.setdefault(tuple(row[name] for name in identity), []).append(row)
    current = {tuple(r[name] for name in identity): r for r in facts.current().collect()}
    for window, life in lives.items():
        life.sort(key=lambda row: row["revision"])
        assert [row["revision"] for row in life] == list(range(1, len(life) + 1))
        assert [row["valid_to"] for row in life] == [row["valid_from"] for row in life[1:]] + [None]
        if life[-1]["cause"] == "retraction":
            assert window not in current
        else:
            assert current.pop(window) == life[-1]
    assert not current
