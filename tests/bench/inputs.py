"""Whole runs in the shapes that jobs have, against the batch into Iceberg that a plain Spark user would write."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE
from spark_jobs.lakehouse.tables import drop_table
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.bench.data import PARTITIONS, Dataset, dataset
from tests.bench.definition import read_sections
from tests.bench.measure import NAMESPACE, Row, alternate, to_table
from tests.bench.reconcile import drop_tables
from tests.bench.workload import AGGREGATES, Bench

KEYS = 100
TARGET = "<= 2"
_REGIONS = f"{NAMESPACE}.input_regions"
_VERSIONS = f"{NAMESPACE}.input_versions"
_ID = ["partition", "offset"]
_REGION = {"key": f"key_{KEYS}", "region": "region"}


@dataclass(frozen=True, slots=True)
class _Shape:
    """Sections of a definition, and how a plain Spark user prepares the records and groups them."""

    more: Mapping[str, Any] = field(default_factory=dict)
    prepared: Callable[[DataFrame], DataFrame] = lambda records: records
    keys: tuple[str, ...] = (f"key_{KEYS}",)
    is_union: bool = False


def inputs(bench: Bench) -> Iterator[Row]:
    """One-minute windows, 100 keys: plan and run of each shape, faithful and complete, as a multiple of the batch."""
    data = dataset(bench.spark, bench.home, bench.records)
    _make_tables(bench)
    halves = bench.home / "bench" / f"halves_{data.records}"
    try:
        for what, shape in _shapes().items():
            if shape.is_union:
                _split(bench, data, halves)
            contenders = {
                "run": lambda shape=shape: _run(bench, data, str(halves), shape),
                "plain": lambda shape=shape: _plain(bench, data, shape),
            }
            median = alternate(contenders, min(bench.rounds, 3), lambda line, what=what: bench.log(f"{what}: {line}"))
            config = f"{what}, {data.records / 1e6:g}M records"
            yield Row("inputs", config, median["run"], median["plain"], TARGET)
    finally:
        shutil.rmtree(halves, ignore_errors=True)
        drop_table(bench.spark, _REGIONS)
        drop_table(bench.spark, _VERSIONS)


def _shapes() -> dict[str, _Shape]:
    on = {"code": f"CAST(key_{KEYS} AS INT)"}
    by_time = {"table": _VERSIONS, "on": on, "as_of": "event_time", "valid_from": "valid_from", "valid_to": "valid_to"}
    return {
        "one input": _Shape(),
        "a union of two inputs": _Shape(is_union=True),
        "duplicates by processing time": _Shape(
            {"deduplicate": {"by": _ID, "kind": "processing_time", "within": DAY}}, lambda r: r.dropDuplicates(_ID)
        ),
        "duplicates by row time": _Shape({"deduplicate": {"by": _ID}}, lambda r: r.dropDuplicates(_ID)),
        "a lookup, as of the run": _Shape(
            {"lookup": {"table": _REGIONS, "on": on, "as_of": "run"}, "keys": _REGION},
            lambda r: r.join(
                F.broadcast(r.sparkSession.table(_REGIONS)), F.col(f"key_{KEYS}") == F.col("code"), "left"
            ),
            (f"key_{KEYS}", "region"),
        ),
        "a lookup, by event time": _Shape(
            {"lookup": by_time, "keys": _REGION}, _with_version, (f"key_{KEYS}", "region")
        ),
        "cumulative windows": _Shape(
            {"window": {"type": "cumulative", "size": HOUR, "step": 10 * MINUTE}},
            _with_cumulative,
            (f"key_{KEYS}", "end"),
        ),
        "all firings, an hour of lateness": _Shape({"panes": "all", "allowed_lateness": HOUR}),
    }


def _with_version(records: DataFrame) -> DataFrame:
    versions, at = F.broadcast(records.sparkSession.table(_VERSIONS)), F.timestamp_millis("event_time")
    is_valid = (F.col("valid_from") <= at) & (F.col("valid_to").isNull() | (at < F.col("valid_to")))
    return records.join(versions, (F.col(f"key_{KEYS}") == F.col("code")) & is_valid, "left")


def _with_cumulative(records: DataFrame) -> DataFrame:
    into = F.pmod(F.col("event_time"), F.lit(HOUR))
    first = F.col("event_time") - F.pmod(into, F.lit(10 * MINUTE)) + F.lit(10 * MINUTE)
    last = F.col("event_time") - into + F.lit(HOUR)
    return records.withColumn("end", F.explode(F.sequence(first, last, F.lit(10 * MINUTE))))


def _make_tables(bench: Bench) -> None:
    """Regions of the keys, and two versions of each, of which the second is valid from the sixth hour on."""
    bench.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    codes = bench.spark.range(KEYS).selectExpr("CAST(id AS INT) AS code", "id % 50 AS region")
    codes.writeTo(_REGIONS).createOrReplace()
    day, noon = "TIMESTAMP '2026-01-01 00:00:00'", "TIMESTAMP '2026-01-01 06:00:00'"
    first = codes.selectExpr("code", "region", f"{day} AS valid_from", f"{noon} AS valid_to")
    second = codes.selectExpr(
        "code", "region + 50 AS region", f"{noon} AS valid_from", "CAST(NULL AS TIMESTAMP) AS valid_to"
    )
    first.unionByName(second).writeTo(_VERSIONS).createOrReplace()


def _split(bench: Bench, data: Dataset, halves: Any) -> None:
    """Half of the partitions in a folder of their own each, numbered from 0."""
    frame, half = bench.spark.read.parquet(str(data.path)), PARTITIONS // 2
    for name, first in (("low", 0), ("high", half)):
        own = frame.where((F.col("partition") >= first) & (F.col("partition") < first + half))
        own.withColumn("partition", F.col("partition") - F.lit(first)).write.mode("overwrite").parquet(
            f"{halves}/{name}"
        )


def _run(bench: Bench, data: Dataset, halves: str, shape: _Shape) -> None:
    pipeline = _pipeline(data, halves, shape)
    try:
        execute(bench.spark, pipeline, make_plan(bench.spark, pipeline), NoProgress())
    finally:
        drop_tables(bench.spark, pipeline)


def _plain(bench: Bench, data: Dataset, shape: _Shape) -> None:
    records = shape.prepared(bench.spark.read.parquet(str(data.path)))
    start = F.col("event_time") - F.pmod(F.col("event_time"), F.lit(HOUR if "end" in shape.keys else MINUTE))
    values = [F.expr(text).alias(name) for name, text in AGGREGATES.items()]
    to_table(records.groupBy(*shape.keys, start.alias("start")).agg(*values), "inputs_plain")


def _pipeline(data: Dataset, halves: str, shape: _Shape) -> Pipeline:
    table = f"inputs_{secrets.token_hex(4)}"
    keys = {"keys": shape.more.get("keys", {"key": f"key_{KEYS}"})}
    read = {**read_sections(str(data.path)), **keys}
    if shape.is_union:
        of = [{"name": n, **read_sections(f"{halves}/{n}", PARTITIONS // 2), **keys} for n in ("low", "high")]
        read = {"history": {"kind": "union", "of": of}}
    sections = {
        "name": table,
        "window": {"type": "tumbling", "size": MINUTE},
        "aggregates": AGGREGATES,
        "output": {"namespace": "bench", "table": table},
    }
    return Pipeline.model_validate({**sections, **read, **shape.more})
