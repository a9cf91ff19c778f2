"""What writing everything to Iceberg costs, against plain Spark writing its result into a table of the same catalog."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

from spark_jobs.bench.data import BOUND, KEYS, PARTITIONS, Dataset, dataset
from spark_jobs.bench.measure import Row, alternate
from spark_jobs.bench.workload import AGGREGATES, MINUTE, Bench, plain
from spark_jobs.definition import load_pipeline
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.plan import make_plan
from spark_jobs.progress import NoProgress
from spark_jobs.run import execute

NAMESPACE = "rewindow.bench"

_DEFINITION = """\
name: bench_{keys}
history:
  kind: files
  path: {path}/*.parquet
  format: parquet
  position: {{partition: partition, offset: offset, arrival: arrival, arrival_unit: ms}}
value: {{format: columns}}
keys: {{key: key_{keys}}}
event_time: {{expression: event_time, unit: ms, missing: quarantine}}
watermark:
  generator: bounded_out_of_orderness
  bound: {bound} ms
  emission: per_event
  partitions: {partitions}
window: {{type: tumbling, size: {size} ms}}
allowed_lateness: 0
aggregates:
{aggregates}
end_of_input: flush
output: {{namespace: bench, table: {table}}}
"""


def write(bench: Bench) -> Iterator[Row]:
    """A whole run (plan, timeline, windows, late records, quarantine, counts) against CREATE OR REPLACE TABLE."""
    data = dataset(bench.spark, bench.home, bench.records)
    for keys in KEYS:
        median = alternate(
            {
                "run": lambda keys=keys: _run(bench, data, keys),
                "plain": lambda keys=keys: _plain(bench, data, keys),
            },
            min(bench.rounds, 3),
            bench.log,
        )
        yield Row(
            "write", f"{data.records / 1e6:g}M records, {keys:,} keys, to Iceberg",
            median["run"], median["plain"],
            note="plan, windows, late records, quarantine and counts against the complete values alone",
        )  # fmt: skip


def _run(bench: Bench, data: Dataset, keys: int) -> None:
    """Into a new table each time: one that holds the windows already would have nothing to write."""
    pipeline = load_pipeline(_definition(data, keys, bench.home / "bench"))
    execute(bench.spark, pipeline, make_plan(bench.spark, pipeline), NoProgress())


def _plain(bench: Bench, data: Dataset, keys: int) -> None:
    bench.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    plain(bench.spark, data, keys, TumblingWindows(MINUTE)).writeTo(f"{NAMESPACE}.plain_{keys}").createOrReplace()


def _definition(data: Dataset, keys: int, folder: Path) -> Path:
    aggregates = "\n".join(f"  {name}: {text}" for name, text in AGGREGATES.items())
    path = folder / f"bench_{keys}.yaml"
    path.write_text(
        _DEFINITION.format(
            keys=keys, path=data.path, table=f"bench_{keys}_{secrets.token_hex(4)}", bound=BOUND, size=MINUTE,
            partitions=list(range(PARTITIONS)), aggregates=aggregates,
        )
    )  # fmt: skip
    return path
