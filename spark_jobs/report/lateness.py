"""How late the late records were: by partition, by hour of day, and when they came."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE, SECOND
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.report.classified_records import MAX_POINTS, ClassifiedRecords
from spark_jobs.report.lateness_probe import LatenessProbe

EDGES = (
    0,
    *(s * SECOND for s in (1, 10, 30)),
    *(m * MINUTE for m in (1, 2, 5, 10, 15, 30)),
    *(h * HOUR for h in (1, 2, 3, 6, 12)),
    *(d * DAY for d in (1, 2, 7, 28)),
)
"""Lower bounds (ms) of the bins of lateness; the last one has no upper bound."""

MAX_PARTITIONS = 200
_LEVELS = (0.5, 0.9, 0.99)


def seen_late(late: DataFrame) -> DataFrame:
    """The late table's rows as `partition, number, arrival, event_time, missed_by`, all BIGINT but the partition."""
    numbers = [F.col(c) for c in ("offset", "sequence") if c in late.columns]
    return late.select(
        "partition",
        F.coalesce(*numbers).alias("number"),
        F.unix_millis("arrival").alias("arrival"),
        F.unix_millis("event_time").alias("event_time"),
        "missed_by",
    )


def densest(late: DataFrame, length: int, default_end: int) -> TimeRange:
    """The `length` ms of arrivals with the most late records; the last ones before `default_end` if none is late."""
    cell = max(1, length // 4)
    rows = late.groupBy(F.floor(F.col("arrival") / F.lit(cell)).alias("cell")).count().collect()
    counts = {row["cell"]: row["count"] for row in rows}
    if not counts:
        return TimeRange(default_end - length, default_end)
    starts = sorted({c - k for c in counts for k in range(4)})
    # Of equal stretches the first; one that begins a cell early shows what led to it.
    best = max(starts, key=lambda c: (sum(counts.get(c + k, 0) for k in range(4)), -c))
    return TimeRange(best * cell, best * cell + length)


def late_points(late: DataFrame, zoom: TimeRange | None = None) -> list[tuple[int, int]]:
    """(arrival, event time) of up to `MAX_POINTS` late records, those with the smallest hashes of their positions."""
    chosen = late
    if zoom is not None:
        chosen = late.where((F.col("arrival") >= F.lit(zoom.start)) & (F.col("arrival") < F.lit(zoom.end)))
    rows = chosen.orderBy(F.xxhash64("partition", "number"), "partition", "number").limit(MAX_POINTS)
    return sorted((row["arrival"], row["event_time"]) for row in rows.select("arrival", "event_time").collect())


LATEST = 10
"""So many late records the report shows."""


def latest_rows(late: DataFrame) -> list[dict[str, Any]]:
    """The late records that missed their window by the most: `partition`, `number`, `arrival`, `event_time`."""
    rows = late.orderBy(F.desc_nulls_last("missed_by"), "partition", "number").limit(LATEST)
    return [row.asDict() for row in rows.collect()]


def late_facts(late: DataFrame, probe: LatenessProbe, classified: ClassifiedRecords) -> dict[str, Any]:
    """The late records (dropped by at least one window): how many, how late, where.

    `missed_by`: processing time from their window's close to their arrival; `delay`: arrival - event time. Quantiles
    are exact, null where nothing is known. `basis`: the records that the run read as new, of the probe's event times;
    `records` beside a partition or an hour counts those of it, `late_in_basis` the late ones among them.
    """
    times = probe.event_times
    inside = (F.col("event_time") >= F.lit(times.start)) & (F.col("event_time") < F.lit(times.end))
    delay = F.col("arrival") - F.col("event_time")
    cells = (
        late.groupBy("partition", _hour(), _bin(F.col("missed_by")).alias("bin"))
        .agg(F.count(F.lit(1)).alias("n"), F.count_if(inside).alias("inside"))
        .collect()
    )
    quantiles = (
        late.rollup("partition")
        .agg(
            F.grouping("partition").alias("all"),
            *(F.percentile(column, F.lit(list(_LEVELS))).alias(name) for name, column in _measures(delay)),
            *(F.max(column).alias(f"{name}_max") for name, column in _measures(delay)),
        )
        .collect()
    )
    by_partition = {None if row["all"] else ("p", row["partition"]): _quantiles(row) for row in quantiles}
    partitions = sorted(
        {p for p, _ in classified.by_place} | {c["partition"] for c in cells}, key=lambda p: (p is None, p)
    )
    totals = {p: sum(n for (q, _), n in classified.by_place.items() if q == p) for p in partitions}
    most_late = sorted(partitions, key=lambda p: -sum(c["n"] for c in cells if c["partition"] == p))
    shown = sorted(most_late[:MAX_PARTITIONS], key=lambda p: (p is None, p))
    return {
        "latest": latest_rows(late) if cells else [],
        "records": sum(c["n"] for c in cells),
        "basis": sum(classified.by_place.values()),
        "edges": list(EDGES),
        "quantiles": by_partition.get(None),
        "bins": _bins(cells),
        "partitions": len(partitions),
        "by_partition": [
            {
                "partition": p,
                "records": totals[p],
                "late": sum(c["n"] for c in cells if c["partition"] == p),
                "late_in_basis": sum(c["inside"] for c in cells if c["partition"] == p),
                "bins": _bins([c for c in cells if c["partition"] == p]),
                "quantiles": by_partition.get(("p", p)),
            }
            for p in shown
        ],
        "by_hour": [
            {
                "hour": hour,
                "records": sum(n for (_, h), n in classified.by_place.items() if h == hour),
                "late": sum(c["n"] for c in cells if c["hour"] == hour),
                "late_in_basis": sum(c["inside"] for c in cells if c["hour"] == hour),
                "bins": _bins([c for c in cells if c["hour"] == hour]),
            }
            for hour in range(24)
        ],
    }


def _measures(delay: Column) -> tuple[tuple[str, Column], ...]:
    return (("missed_by", F.col("missed_by")), ("delay", delay))


def _quantiles(row: Any) -> dict[str, dict[str, int | None]]:
    found = {}
    for name in ("missed_by", "delay"):
        values = row[name] or [None] * len(_LEVELS)
        whole = [None if v is None else round(v) for v in (*values, row[f"{name}_max"])]
        found[name] = dict(zip(("p50", "p90", "p99", "max"), whole, strict=True))
    return found


def _bins(cells: list[Any]) -> list[int]:
    """Late records by bin of `missed_by`."""
    return [sum(c["n"] for c in cells if c["bin"] == i) for i in range(len(EDGES))]


def _bin(value: Column) -> Column:
    column = F.when(value.isNull() | (value < F.lit(EDGES[1])), 0)
    for i, edge in enumerate(EDGES[2:], 1):
        column = column.when(value < F.lit(edge), i)
    return column.otherwise(len(EDGES) - 1)


def _hour() -> Column:
    ts = F.col("event_time")
    return F.pmod(F.floor(ts / F.lit(HOUR)), F.lit(24)).alias("hour")
