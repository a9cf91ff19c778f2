"""A year of nights: reconciliations of small arrivals, some days late, with weekly maintenance; then one full run.

`python -m tests.bench.nights --nights 365` prints a line a night and a table of months. It ends with exit code
1 where the tables are not those of the full run, or where nights get slower or leave more and more files.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.eventtime.durations import DAY
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.gateway import java_context
from tests.bench.measure import input_read

START = 1_700_006_400_000
"""Midnight, UTC."""
MONTH = 30
WEEK = 7
LATE_DAYS = 20
RECORDS = 100
SHARE_LATE = 0.05
FLAT = 1.2
"""Processor seconds of a night in the last month, against those in the first one after its first week, at most."""
_OF_A_RUN = ("run_id", "revision", "cause", "as_of", "valid_from", "valid_to")

_YAML = """
name: {name}
history:
  kind: files
  path: {folder}/data/*.json
  format: json
  position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
value: {{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}}
keys: {{k: k}}
event_time: {{expression: t, unit: ms}}
watermark: {{generator: bounded_out_of_orderness, bound: 1 h, partitions: [0, 1]}}
window: {{type: tumbling, size: 1 h}}
aggregates: {{n: count(*), total: sum(v)}}
output: {{namespace: {namespace}}}
"""


@dataclass(frozen=True, slots=True)
class Night:
    """A night: its number from 1, its seconds, and what lies in the warehouse and in the run store afterwards.

    `processor`: seconds of all cores, by Python and Spark; `jobs`: Spark jobs; `read`: bytes that they read; `commits`:
    to the tables that stay. Other work on the machine hardly moves these.
    """

    number: int
    seconds: float
    processor: float
    continued: bool
    jobs: int
    read: int
    commits: int
    files: int
    bytes: int
    run_files: int
    is_maintained: bool


def arrivals(count: int, seed: int = 7) -> Iterator[list[dict[str, object]]]:
    """The records of each night: 5 % of them late by up to 20 days, over two partitions and five keys."""
    draw = random.Random(seed)
    offsets = [0, 0]
    for night in range(count):
        records = []
        for arrival in sorted(START + night * DAY + draw.randrange(DAY) for _ in range(RECORDS)):
            partition = draw.randrange(2)
            behind = draw.randrange(LATE_DAYS * DAY) if draw.random() < SHARE_LATE else draw.randrange(DAY // 24)
            event_time = max(START, arrival - behind)
            key, value = draw.choice("abcde"), draw.randrange(1000)
            records.append(
                {"p": partition, "o": offsets[partition], "a": arrival, "k": key, "t": event_time, "v": value}
            )
            offsets[partition] += 1
        yield records


def run_nights(
    spark: SparkSession, folder: Path, home: Path, count: int, log: Callable[[str], None], *, namespace: str = "nights"
) -> list[Night]:
    """Carry out the nights in `folder`; the warehouse lies in `home`. A week's maintenance keeps a week's snapshots."""
    pipeline, warehouse = _pipeline(folder, "nightly", namespace), home / "warehouse" / namespace
    done: list[Night] = []
    for number, records in enumerate(arrivals(count), 1):
        _write(folder / "data", number, records)
        jobs, commits, processor, began = _jobs(spark), _commits(warehouse), processor_seconds(), time.perf_counter()
        with input_read(spark) as read:
            result = reconcile(spark, pipeline, NoProgress())
            seconds, processor = time.perf_counter() - began, processor_seconds() - processor
        jobs, commits = _jobs(spark) - jobs, _commits(warehouse) - commits
        is_maintained = number % WEEK == 0
        if is_maintained:  # a night lasts seconds here, so that a snapshot is never a week old
            now = datetime.now(UTC) + timedelta(seconds=1)
            maintain(spark, pipeline, NoProgress(), now=now, keep_snapshots=timedelta(0))
        files = [file.stat().st_size for file in warehouse.rglob("*") if file.is_file()]
        run_files = sum(file.is_file() for file in (home / "runs").glob(f"{pipeline.name}-*/*"))
        night = Night(
            number,
            seconds,
            processor,
            bool(result.continued_from),
            jobs,
            read.bytes,
            commits,
            len(files),
            sum(files),
            run_files,
            is_maintained,
        )
        log(
            f"night {number}: {seconds:.1f} s ({processor:.1f} s of processors), {jobs} jobs, "
            f"{read.bytes / 1e3:.0f} kB read, {commits} commits, {night.files} files, "
            f"{night.bytes / 1e6:.1f} MB, {run_files} documents, {result.note or 'ok'}"
        )
        done.append(night)
    return done


def differs_from_full_run(spark: SparkSession, folder: Path, *, namespace: str = "nights") -> str:
    """What one full run over all the records gives otherwise, in words; empty where it gives the same."""
    nightly, whole = (_pipeline(folder, name, namespace) for name in ("nightly", "whole"))
    execute(spark, whole, make_plan(spark, whole), NoProgress())
    problems = []
    for kind in ("windows", "late"):
        found, expected = (spark.table(getattr(Tables.of(one), kind)).drop(*_OF_A_RUN) for one in (nightly, whole))
        counts = _missing(expected, found), _missing(found, expected)
        if any(counts):
            problems.append(f"{kind}: {counts[0]} rows of the full run are not there, {counts[1]} others are")
    return "; ".join(problems)


def by_month(nights: Sequence[Night]) -> list[dict[str, float]]:
    """Seconds (lower quartile, median, of processors), files and bytes after a maintenance, by 30 nights."""
    months = []
    for first in range(0, len(nights) - len(nights) % MONTH, MONTH):
        month = nights[first : first + MONTH]
        settled = [night for night in month if night.number > WEEK]
        seconds = [night.seconds for night in settled]
        kept = [night for night in month if night.is_maintained]
        months.append(
            {
                "month": first // MONTH + 1,
                "lower_quartile": statistics.quantiles(seconds, n=4)[0],
                "median": statistics.median(seconds),
                "processor": statistics.quantiles([night.processor for night in settled], n=4)[0],
                "jobs": statistics.median(night.jobs for night in month),
                "kilobytes_read": statistics.median(night.read for night in month) / 1e3,
                "commits": statistics.median(night.commits for night in month),
                "files": max(night.files for night in kept),
                "most_files": max(night.files for night in month),
                "megabytes": max(night.bytes for night in kept) / 1e6,
            }
        )
    return months


def slower(months: Sequence[dict[str, float]]) -> float:
    """The processors' seconds of a night in the last month, against the first one: other work moves them least."""
    return months[-1]["processor"] / months[0]["processor"]


def _jobs(spark: SparkSession) -> int:
    """The Spark jobs so far."""
    return java_context(spark).dagScheduler().numTotalJobs()


def processor_seconds() -> float:
    """The seconds that this process and its children, Spark's JVM among them, have had a core."""
    here = psutil.Process()
    times = [process.cpu_times() for process in (here, *here.children(recursive=True))]
    return sum(time.user + time.system for time in times)


def _commits(warehouse: Path) -> int:
    """The commits so far to the tables that are there: each has written metadata with a number."""
    numbers: dict[Path, int] = {}
    for file in warehouse.glob("*/metadata/*.metadata.json"):
        if "__staging" not in str(file):
            numbers[file.parent] = max(numbers.get(file.parent, 0), int(file.name.partition("-")[0]) + 1)
    return sum(numbers.values())


def _missing(these: DataFrame, those: DataFrame) -> int:
    return these.exceptAll(those.select(*these.columns)).count()


def _pipeline(folder: Path, name: str, namespace: str) -> Pipeline:
    text = _YAML.format(name=f"{namespace}_{name}", folder=folder, namespace=namespace)
    path = folder / f"{name}.yaml"
    path.write_text(text)
    return load_pipeline(path)


def _write(folder: Path, number: int, records: Sequence[dict[str, object]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"night-{number:04}.json").write_text("".join(json.dumps(record) + "\n" for record in records))


def main() -> int:
    """The command; its exit code."""
    from spark_jobs.settings import settings
    from spark_jobs.spark.session import spark_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nights", type=int, default=365)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = spark_session("rewindow nights")
        nights = run_nights(spark, Path(folder), settings().home, given.nights, lambda line: print(line, flush=True))
        problem = differs_from_full_run(spark, Path(folder))
    months = by_month(nights)
    for month in months:
        print(json.dumps({name: round(value, 2) for name, value in month.items()}))
    if problem:
        print(f"the nights differ from one full run: {problem}")
    if len(months) > 1:
        print(f"the last month's nights take {slower(months):.2f} of the first month's processor seconds")
    return int(bool(problem) or (len(months) > 1 and slower(months) > FLAT))


if __name__ == "__main__":
    sys.exit(main())
