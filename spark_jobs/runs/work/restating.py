"""Counts what of the numbers that readers have seen a staged run changes (`spark_jobs.runs.life.restated`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, DoubleType, FloatType, NumericType

from spark_jobs.lakehouse.change import RESTATED
from spark_jobs.replay.aggregates import is_additive
from spark_jobs.replay.columns import STATE
from spark_jobs.replay.spec import complete_name
from spark_jobs.runs.life.restated import Move, Restated
from spark_jobs.runs.work.staged_run import BEFORE, StagedRun, with_before

_SOME_KEYS = 3
_MOST_DAYS = 1_000
"""Of more days the windows are counted from the first to the last."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def restated_by(evidence: StagedRun, published: DataFrame) -> Restated:
    """What the run restates. `published`: all windows that readers have now."""
    columns = [
        c for c in evidence.spec.output_columns if c in evidence.before.columns and c in evidence.changes.columns
    ]
    changes = evidence.changes.where(F.col("rw_change").isin(*RESTATED))
    compared = with_before(evidence, changes, columns)
    keys = F.struct(*(F.col(f"`{k}`").cast("string").alias(k) for k in evidence.spec.keys))
    by_day = compared.groupBy(_day().alias("day")).agg(
        F.count(F.lit(1)).alias("n"),
        F.min(F.unix_millis("window_start")).alias("start"),
        F.collect_set(keys).alias("keys") if evidence.spec.keys else F.array().alias("keys"),
        *(part for i, c in enumerate(columns) for part in _moved(evidence, compared, c, i)),
    )
    rows = by_day.orderBy("day").collect()
    if not rows:
        return Restated()
    had = _had(published, [row["day"] for row in rows], columns)
    last = published.agg(F.unix_millis(F.max("window_end"))).collect()[0][0]
    found = {tuple(key.asDict().items()) for row in rows for key in row["keys"]}
    start = min(row["start"] for row in rows)
    return Restated(
        windows=sum(row["n"] for row in rows),
        days=len(rows),
        first_day=_shown(rows[0]["day"]),
        last_day=_shown(rows[-1]["day"]),
        had=had["n"],
        back=None if last is None else last - start,
        keys=len(found),
        some_keys=tuple(dict(key) for key in sorted(found, key=str)[:_SOME_KEYS]),
        moves=tuple(_move(evidence, c, i, rows, had) for i, c in enumerate(columns)),
    )


def _day() -> Column:
    return F.unix_date(F.col("window_start").cast("date"))


def _shown(day: int) -> str:
    return (_EPOCH + timedelta(days=day)).date().isoformat()


def _moved(evidence: StagedRun, compared: DataFrame, column: str, number: int) -> list[Column]:
    """Of one column: in how many windows it differs, the sum of the differences, and that of their absolute values."""
    now, before = F.col(f"`{column}`"), F.col(f"`{BEFORE}{column}`")
    parts = [F.count_if(~now.eqNullSafe(before)).alias(f"d{number}")]
    kind = evidence.before.schema[column].dataType
    if isinstance(kind, NumericType):
        step = _number(now, kind) - _number(before, kind)
        parts += [F.sum(step).alias(f"s{number}"), F.sum(F.abs(step)).alias(f"a{number}")]
    return parts


def _number(value: Column, kind: DataType) -> Column:
    """The value, and 0 for none; whole numbers and decimals exactly."""
    if isinstance(kind, (DoubleType, FloatType)):
        return F.nanvl(F.coalesce(value.cast("double"), F.lit(0.0)), F.lit(0.0))
    wide = "decimal(38,0)" if not isinstance(kind, DecimalType) else f"decimal(38,{kind.scale})"
    return F.coalesce(value.cast(wide), F.lit(0).cast(wide))


def _had(published: DataFrame, days: list[int], columns: list[str]) -> Row:
    """The windows with a value that readers have on these days, and the sum of each column's absolute values."""
    chosen = _day().isin(days) if len(days) <= _MOST_DAYS else _day().between(days[0], days[-1])
    low, high = (F.timestamp_seconds(F.lit(day * 86_400)) for day in (days[0], days[-1] + 1))
    there = published.where((F.col("window_start") >= low) & (F.col("window_start") < high) & chosen)
    if STATE in published.columns:
        there = there.where(~F.col(STATE).eqNullSafe("open"))
    sums = [
        F.sum(F.abs(_number(F.col(f"`{c}`"), kind))).alias(f"o{i}")
        for i, c in enumerate(columns)
        if isinstance(kind := published.schema[c].dataType, NumericType)
    ]
    return there.agg(F.count(F.lit(1)).alias("n"), *sums).collect()[0]


def _move(evidence: StagedRun, column: str, number: int, rows: list[Row], had: Row) -> Move:
    aggregate = next(a for a in evidence.spec.aggregates if column in (a, complete_name(a)))
    adds_up = is_additive(evidence.spark, evidence.spec.aggregates[aggregate])
    is_number = f"o{number}" in had.asDict()
    of: Any = had[f"o{number}"] if is_number else None
    return Move(
        column=column,
        aggregate=aggregate,
        windows=sum(row[f"d{number}"] for row in rows),
        net=float(sum(row[f"s{number}"] for row in rows)) if is_number and adds_up else None,
        apart=float(sum(row[f"a{number}"] for row in rows)) if is_number else None,
        of=None if of is None else float(of),
    )
