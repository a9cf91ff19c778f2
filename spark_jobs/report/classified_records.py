"""Counts the records by tolerance, partition and hour in one scan, and samples records for the charts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import HOUR
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import closing, in_instants, in_window_time, latest_end, session_gap
from spark_jobs.replay.columns import (
    ARRIVAL,
    EVENT_TIME,
    OFFSET,
    PARTITION,
    SEQUENCE,
    PositionColumns,
    admitted,
    long_arrays,
    record_position,
)
from spark_jobs.replay.grid import divided
from spark_jobs.report.lateness_probe import LatenessProbe, WatermarkSteps, estimated_records
from spark_jobs.runs.work.staged_run import StagedRun

MAX_POINTS = 1_500
"""The most points of one kind in one chart."""

_BUCKETS = 1 << 18


@dataclass(frozen=True, slots=True)
class Point:
    """A sampled record: its times (epoch ms), and its class at the definition's own bound and lateness."""

    arrival: int
    event_time: int
    behind: bool
    dropped: bool


@dataclass(frozen=True, slots=True)
class View:
    """The points of one chart: about one for each `one_in` records."""

    points: list[Point]
    one_in: int


@dataclass(frozen=True)
class ClassifiedRecords:
    """The result of the scan.

    `behind[i]`, `closed[i]`: records behind the watermark, and with their (last) window closed, under tolerance i.
    `by_place`: (partition, hour of the event time in UTC) -> records that the run read as new; all other counts are of
    those of earlier runs too. `arrivals`: of the records looked at (epoch ms, both included). `overview` and `zoomed`:
    points sampled by a hash of their position, so that every record has the same chance, and the same ones come out
    each time.
    """

    records: int
    behind: list[int]
    closed: list[int]
    by_place: dict[tuple[int | None, int], int]
    arrivals: TimeRange
    overview: View
    zoomed: View


def classify_records(evidence: StagedRun, probe: LatenessProbe, zoom: TimeRange | None) -> ClassifiedRecords:
    """Scan the records of the probe once. `zoom`: arrivals (epoch ms) from which more points are sampled."""
    times = probe.event_times
    total = estimated_records(evidence.plan, evidence.kind, times)
    one_in = max(1, total // (3 * MAX_POINTS))
    share = (zoom.end - zoom.start) / max(1, times.end - times.start) if zoom else 1.0
    # Keeps the sample small even if very many records arrive together.
    zoomed_one_in = max(1, int(one_in * min(1.0, share)), total // (50 * MAX_POINTS))
    records = evidence.at_windows.where(F.col(EVENT_TIME) >= F.lit(times.start))
    own = evidence.spec.rules.with_watermark(records, evidence.spec)
    records = records if own is None else own
    records = admitted(records.where(F.col(EVENT_TIME) < F.lit(times.end)), evidence.spec.after_watermark)
    number = F.col(OFFSET) if OFFSET in records.columns else F.lit(None).cast("bigint")
    if SEQUENCE in records.columns:
        number = F.coalesce(number, F.col(SEQUENCE))
    chance = F.xxhash64(PARTITION, number)
    wanted = F.pmod(chance, F.lit(one_in)) == 0
    if zoom:
        inside = (F.col(ARRIVAL) >= F.lit(zoom.start)) & (F.col(ARRIVAL) < F.lit(zoom.end))
        wanted = wanted | (inside & (F.pmod(chance, F.lit(zoomed_one_in)) == 0))
    seen = records if own is not None else with_watermark(records, probe.steps)
    windows = evidence.spec.windows
    placed = in_window_time(seen, windows)
    seen = in_instants(placed.withColumn("rw_closes", closing(windows, _end(evidence, placed))))
    behind = F.col("rw_watermark") - F.col(EVENT_TIME) + F.lit(probe.configured)
    closed = F.col("rw_watermark") - F.col("rw_closes") + F.lit(probe.configured)
    grouped = seen.groupBy(
        F.col(PARTITION).alias("partition"),
        F.pmod(_floor_divided(F.col(EVENT_TIME), HOUR), F.lit(24)).alias("hour"),
        _tolerances_failed(behind, probe.tolerances).alias("behind"),
        _tolerances_failed(closed, probe.tolerances).alias("closed"),
        F.when(wanted, number).alias("number"),  # a group of its own for each sampled record
    ).agg(
        F.count(F.lit(1)).alias("n"),
        F.count_if(evidence.is_new).alias("new"),
        F.min(ARRIVAL).alias("arrival"),
        F.max(ARRIVAL).alias("last"),
        F.min(EVENT_TIME).alias("event_time"),
    )
    # Grows with partitions, hours and tolerances, and with the sample.
    counted = grouped.withColumn("chance", F.xxhash64("partition", "number")).toArrow()
    places = counted.group_by(["partition", "hour"]).aggregate([("new", "sum")]).to_pylist()
    sampled = counted.filter(counted["number"].is_valid()).sort_by(
        [(name, "ascending") for name in ("chance", "partition", "number")]
    )
    inside = (
        (pc.field("arrival") >= zoom.start) & (pc.field("arrival") < zoom.end) if zoom is not None else pc.scalar(False)
    )
    return ClassifiedRecords(
        records=int(counted["n"].to_numpy().sum()),
        behind=_at_least(counted["behind"], counted["n"], len(probe.tolerances)),
        closed=_at_least(counted["closed"], counted["n"], len(probe.tolerances)),
        by_place={(row["partition"], row["hour"]): row["new_sum"] for row in places if row["new_sum"]},
        arrivals=TimeRange(
            times.start if not counted.num_rows else int(counted["arrival"].to_numpy().min()),
            times.end if not counted.num_rows else int(counted["last"].to_numpy().max()),
        ),
        overview=_view(sampled, probe, one_in),
        zoomed=_view(sampled.filter(inside), probe, zoomed_one_in),
    )


def _at_least(failed: pa.ChunkedArray, records: pa.ChunkedArray, count: int) -> list[int]:
    """For each tolerance the number of records that fail it. A record that fails one also fails all smaller ones."""
    by_number = np.bincount(failed.to_numpy(), weights=records.to_numpy(), minlength=count + 1).astype(np.int64)
    return by_number[::-1].cumsum()[::-1][1:].tolist()


def with_watermark(records: DataFrame, steps: WatermarkSteps) -> DataFrame:
    """Add `rw_watermark` (epoch ms): the watermark just before each record; null: there was none yet.

    The arrival gives a bucket, and the bucket a few steps. A binary search among these compares positions exactly; its
    depth depends on the fullest bucket.
    """
    if not len(steps.values):
        return records.withColumn("rw_watermark", F.lit(None).cast("bigint"))
    arrivals = np.ascontiguousarray(steps.positions[:, 0])
    real = arrivals[np.searchsorted(arrivals, 0) :] if arrivals[0] < 0 <= arrivals[-1] else arrivals
    first, reach = int(real[0]), int(real[-1]) - int(real[0]) + 1
    count = int(min(_BUCKETS, reach, 4 * len(arrivals) + 1))
    width = -(-reach // count)
    edges = np.searchsorted(arrivals, first + np.arange(count + 1, dtype=np.int64) * width, side="left")
    edges[0], edges[-1] = 0, len(arrivals)
    arrays = long_arrays(
        records,
        {
            "value": steps.values,
            **{part: np.ascontiguousarray(steps.positions[:, i]) for i, part in enumerate(("a", "b", "c"))},
            "edge": edges.astype(np.int64),
        },
    )
    bucket = _floor_divided(F.greatest(F.col(ARRIVAL) - F.lit(first), F.lit(0)), width)
    seen = records.withColumn("rw_bucket", F.least(bucket, F.lit(count - 1)).cast("int"))
    seen = seen.withColumns(
        {
            "rw_passed": F.get(arrays["edge"], F.col("rw_bucket")).cast("int"),
            "rw_most": F.get(arrays["edge"], F.col("rw_bucket") + F.lit(1)).cast("int"),
        }
    )
    position = record_position(records)
    fullest = int(np.diff(edges).max())
    for level in reversed(range(fullest.bit_length())):
        ahead = F.col("rw_passed") + F.lit(1 << level)
        step = PositionColumns(*(F.get(arrays[part], ahead - F.lit(1)) for part in ("a", "b", "c")))
        passes = (ahead <= F.col("rw_most")) & step.before(position)
        seen = seen.withColumn("rw_passed", F.when(passes, ahead).otherwise(F.col("rw_passed")))
    watermark = F.get(arrays["value"], F.col("rw_passed") - F.lit(1))
    return seen.withColumn("rw_watermark", watermark).drop("rw_bucket", "rw_passed", "rw_most")


def _floor_divided(value: Column, divisor: int) -> Column:
    return divided(value - F.pmod(value, F.lit(divisor)), divisor)


def _end(evidence: StagedRun, records: DataFrame) -> Column:
    """The end of the last window of a record; for sessions, of the session that the record would open alone."""
    spec = evidence.spec
    if spec.has_sessions:
        return F.col(EVENT_TIME) + session_gap(spec.session_windows, records).cast("bigint")
    return latest_end(spec.aligned_windows)


def _tolerances_failed(value: Column, tolerances: tuple[int, ...]) -> Column:
    """How many of the tolerances are too small: those at or below `value`; none where it is null."""
    failed = F.when(F.coalesce(value < F.lit(tolerances[0]), F.lit(True)), 0)
    for i, tolerance in enumerate(tolerances[1:], 1):
        failed = failed.when(value < F.lit(tolerance), i)
    return failed.otherwise(len(tolerances))


def _view(sampled: pa.Table, probe: LatenessProbe, one_in: int) -> View:
    """The points with the smallest hashes, among those that `one_in` selects."""
    chance = sampled["chance"].to_numpy()
    chosen = sampled.take(np.flatnonzero(chance % one_in == 0))
    own_behind = probe.tolerances.index(probe.configured)
    own_closed = len(probe.tolerances) if probe.dropped_at is None else probe.tolerances.index(probe.dropped_at)
    points = [
        Point(row["arrival"], row["event_time"], row["behind"] > own_behind, row["closed"] > own_closed)
        for row in chosen.slice(0, MAX_POINTS).to_pylist()
    ]
    return View(points, one_in * max(1, round(chosen.num_rows / max(1, len(points)))))
