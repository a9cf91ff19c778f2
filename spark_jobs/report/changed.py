"""What publishing would change: how many windows, where in time, and the windows with the largest changes."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DecimalType, NumericType

from spark_jobs.definition.mode import Mode
from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE
from spark_jobs.lakehouse.change import WindowChange
from spark_jobs.replay.aggregates import is_additive
from spark_jobs.replay.columns import DROPPED, LATE, ON_TIME, STATE
from spark_jobs.replay.spec import ReplaySpec, complete_name
from spark_jobs.runs.work.staged_run import BEFORE, StagedRun, with_before

TOP = 20
MAX_COLUMNS = 40
MAX_BUCKETS = 200
_WIDTHS = (MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, DAY, 7 * DAY, 28 * DAY)
_COUNTS = (ON_TIME, LATE, DROPPED)
_NULLS_AND_ALL = (("windows", "d"), ("from_null", "f"), ("to_null", "t"))


def changed_windows(evidence: StagedRun) -> dict[str, Any]:
    """`counts` by change, `causes`, `strip` (buckets of `width` ms of window start, sparse) and the `top` windows.

    Only what readers see counts here (`VISIBLE`). `columns`: see `_column_differences`.

    The `size` of a change is the average, over the numeric aggregates, of the change relative to the largest change of
    that aggregate in this run (of the faithful or the complete value, whichever changed more). Windows that were
    published before come first, by size. New windows follow, those with the most dropped records first. Ties are in the
    order of the identity columns.
    """
    compared = _with_before(evidence)
    moves = _moves(evidence, compared)
    width = bucket_width(*_reach(evidence))
    bucket = F.floor(F.unix_millis("window_start") / F.lit(width)).alias("bucket")
    largest = [F.max(move).alias(f"m{i}") for i, move in enumerate(moves.values())]
    columns = _compared_columns(evidence, compared)
    differences = [d for i, c in enumerate(columns) for d in _differences(compared, c, i)]
    found = (F.count(F.lit(1)).alias("n"), *largest, *differences)
    grouped = compared.groupBy(bucket, "rw_change", "cause").agg(*found).collect()
    counts, causes, strip = {}, {}, {}
    for row in grouped:
        counts[row["rw_change"]] = counts.get(row["rw_change"], 0) + row["n"]
        causes[row["cause"]] = causes.get(row["cause"], 0) + row["n"]
        cell = strip.setdefault(row["bucket"], {})
        cell[row["rw_change"]] = cell.get(row["rw_change"], 0) + row["n"]
    top = _top(evidence, compared, moves, grouped) if grouped else []
    return {
        "counts": dict(sorted(counts.items())),
        "causes": dict(sorted(causes.items())),
        "strip": {
            "width": width,
            "buckets": [{"start": b * width, **dict(sorted(strip[b].items()))} for b in sorted(strip)],
        },
        "keys": list(evidence.spec.keys),
        "aggregates": list(evidence.spec.aggregates),
        "columns": _column_differences(evidence, compared, columns, grouped),
        "top": top,
    }


def bucket_width(start: int, end: int) -> int:
    """The smallest round width (ms) that divides `[start, end)` into at most `MAX_BUCKETS` buckets."""
    for width in _WIDTHS:
        if (end - start) / width <= MAX_BUCKETS:
            return width
    return -(-(end - start) // MAX_BUCKETS // DAY) * DAY + DAY


def _reach(evidence: StagedRun) -> tuple[int, int]:
    span, times = evidence.plan.span, evidence.plan.event_times
    return max(span.start, times.start), max(min(span.end, times.end), max(span.start, times.start) + 1)


def _columns_of(spec: ReplaySpec) -> tuple[str, ...]:
    """The columns of windows that people compare. Of complete values alone no record is on time or late."""
    return (*spec.output_columns, *(() if spec.mode is Mode.COMPLETE else _COUNTS), STATE)


def _with_before(evidence: StagedRun) -> DataFrame:
    """The changes that readers see, joined with the values before as `rw_before_<column>`."""
    wanted = [c for c in _columns_of(evidence.spec) if c in evidence.before.columns]
    seen = evidence.changes.where(F.col("rw_change") != WindowChange.BOOKKEEPING.value)
    return with_before(evidence, seen, wanted)


def _compared_columns(evidence: StagedRun, compared: DataFrame) -> list[str]:
    """The columns whose values before and after are both there, at most `MAX_COLUMNS`."""
    named = _columns_of(evidence.spec)
    both = [c for c in dict.fromkeys(named) if {c, f"{BEFORE}{c}"} <= set(compared.columns)]
    return [c for c in both if c not in evidence.identity][:MAX_COLUMNS]


def _is_number(frame: DataFrame, column: str) -> bool:
    return isinstance(frame.schema[column].dataType, NumericType)


def _differences(compared: DataFrame, column: str, number: int) -> list[Column]:
    """For one column of the updated windows: how many differ, how many of these were or become null, and, of numbers,
    the sum and the bounds of the differences between values that are there.
    """
    now, before = F.col(f"`{column}`"), F.col(f"`{BEFORE}{column}`")
    differs = (F.col("rw_change") == WindowChange.UPDATED.value) & ~now.eqNullSafe(before)
    from_null, to_null = (F.count_if(differs & one.isNull()) for one in (before, now))
    found = [F.count_if(differs).alias(f"d{number}"), from_null.alias(f"f{number}"), to_null.alias(f"t{number}")]
    if _is_number(compared, column):
        are_there = differs & now.isNotNull() & before.isNotNull()
        step = F.when(are_there, _number(column) - _number(f"{BEFORE}{column}"))
        found += [f(step).alias(f"{name}{number}") for name, f in (("s", F.sum), ("l", F.min), ("h", F.max))]
    return found


def _column_differences(
    evidence: StagedRun, compared: DataFrame, columns: list[str], grouped: list[Row]
) -> list[dict[str, Any]]:
    """One entry for each column: `name`; `windows` in which it differs; of these `from_null` had no value before and
    `to_null` have none any more. Of the others, for numbers, the `least` and the `most` difference (after - before),
    and their `total` where the column is one that adds up over windows: a count or a sum, not a minimum or an average.
    """
    additive = {c for name, text in evidence.spec.aggregates.items() if is_additive(evidence.spark, text)
                for c in (name, complete_name(name))} | set(_COUNTS)  # fmt: skip
    found = []
    for i, column in enumerate(columns):
        entry: dict[str, Any] = {
            "name": column,
            **{name: sum(row[f"{short}{i}"] for row in grouped) for name, short in _NULLS_AND_ALL},
        }
        entry |= dict.fromkeys(("total", "least", "most"))
        if _is_number(compared, column):
            for name, short, reduced in (("total", "s", sum), ("least", "l", min), ("most", "h", max)):
                if name == "total" and column not in additive:
                    continue
                steps = [row[f"{short}{i}"] for row in grouped if row[f"{short}{i}"] is not None]
                entry[name] = json_value(reduced(steps)) if steps else None
        found.append(entry)
    return found


def _moves(evidence: StagedRun, compared: DataFrame) -> dict[str, Column]:
    """For each numeric aggregate the absolute change of a window (DOUBLE)."""
    kinds = {field.name: field.dataType for field in compared.schema}
    moves = {}
    for name in evidence.spec.aggregates:
        columns = [c for c in (name, complete_name(name)) if c in kinds]
        if not columns or not all(isinstance(kinds[c], NumericType) for c in columns):
            continue
        steps = [F.abs(_number(c) - _number(f"{BEFORE}{c}")) for c in columns if f"{BEFORE}{c}" in kinds]
        moved = (F.greatest(*steps) if len(steps) > 1 else steps[0]) if steps else F.lit(0.0)
        moves[name] = F.when(F.col("rw_change") == WindowChange.INSERTED.value, F.lit(0.0)).otherwise(moved)
    return moves


def _number(column: str) -> Column:
    return F.nanvl(F.coalesce(F.col(f"`{column}`").cast("double"), F.lit(0.0)), F.lit(0.0))


def _top(
    evidence: StagedRun, compared: DataFrame, moves: dict[str, Column], grouped: list[Row]
) -> list[dict[str, Any]]:
    is_new = F.col("rw_change") == WindowChange.INSERTED.value
    shares = []
    for i, move in enumerate(moves.values()):
        largest = max((row[f"m{i}"] or 0.0 for row in grouped), default=0.0)
        shares.append(move / F.lit(largest) if largest > 0 else F.lit(0.0))
    size = reduce(add, shares) / F.lit(float(len(shares))) if shares else F.lit(0.0)
    dropped = F.col(DROPPED) if DROPPED in compared.columns else F.lit(0)
    columns = [c for c in _columns_of(evidence.spec) if c in compared.columns]
    kept = [c for c in columns if f"{BEFORE}{c}" in compared.columns]
    keys = list(evidence.spec.keys)
    by_identity = [F.col(f"`{c}`") for c in evidence.identity]
    pane = [c for c in evidence.identity if c not in (*keys, "window_start", "window_end")]
    rows = (
        compared.withColumn("rw_size", F.round(size, 6))
        .orderBy(is_new, F.desc("rw_size"), F.when(is_new, dropped).desc(), *by_identity)
        .limit(TOP)
        .select(
            "rw_change",
            "cause",
            "rw_size",
            "revision",
            F.unix_millis("window_start").alias("start"),
            F.unix_millis("window_end").alias("end"),
            *(json_column(compared, c).alias(f"k{i}") for i, c in enumerate(keys)),
            *(json_column(compared, c).alias(f"p{i}") for i, c in enumerate(pane)),
            *(json_column(compared, c).alias(f"a{i}") for i, c in enumerate(columns)),
            *(json_column(compared, f"{BEFORE}{c}").alias(f"b{i}") for i, c in enumerate(kept)),
        )
        .collect()
    )
    return [
        {
            "change": row["rw_change"],
            "cause": row["cause"],
            "size": row["rw_size"],
            "revision": row["revision"],
            "start": row["start"],
            "end": row["end"],
            "key": {c: json_value(row[f"k{i}"]) for i, c in enumerate(keys)},
            "pane": {c: json_value(row[f"p{i}"]) for i, c in enumerate(pane)},
            "after": {c: json_value(row[f"a{i}"]) for i, c in enumerate(columns)},
            "before": None
            if row["rw_change"] == WindowChange.INSERTED
            else {c: json_value(row[f"b{i}"]) for i, c in enumerate(kept)},
        }
        for row in rows
    ]


LONGEST = 200
"""Characters of a text that are kept."""


def json_column(frame: DataFrame, name: str) -> Column:
    """Numbers and truth values as they are, everything else as text, cut after `LONGEST` characters and a mark."""
    kind, column = frame.schema[name].dataType, F.col(f"`{name}`")
    if isinstance(kind, NumericType) and not isinstance(kind, DecimalType):
        return column
    if isinstance(kind, BooleanType):
        return column
    text = F.hex(column) if isinstance(kind, BinaryType) else column.cast("string")
    return F.when(F.length(text) > LONGEST, F.concat(F.substring(text, 1, LONGEST), F.lit("…"))).otherwise(text)


def json_value(value: Any) -> Any:
    """The value itself; what JSON has no number for becomes text."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
