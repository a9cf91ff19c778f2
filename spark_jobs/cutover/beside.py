"""Two tables of windows side by side: which windows only one of them has, and whose values differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from spark_jobs.comparison.join_keys import hashed_columns, join_columns, with_join_keys, with_window_hash
from spark_jobs.comparison.verdicts import same
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.rounding import rounding_name

EXPECTED, FOUND, DIFFERS, APART = "rw_expected", "rw_found", "rw_differs", "rw_apart"
_THERE = "rw_there"
_ROWS_OF_A_HASH_TABLE = 500_000
"""A task's share of the memory holds several times as many windows."""


def beside(
    expected: DataFrame,
    found: DataFrame,
    keys: Sequence[str],
    values: Sequence[str],
    *,
    carried: Sequence[str] = (),
    rows: int | None = None,
) -> DataFrame:
    """The windows of either table, one row each.

    Both have the keys, `window_start`, `window_end` (epoch ms) and `values`; `expected` may have the bound of a value
    that is summed up in any order (`rw_rounding_<name>`). Columns: keys, `window_start`, `window_end`; `rw_expected`
    and `rw_found`, the values as a struct, null where the table has no such window; `rw_apart`: the names of the values
    that differ, where both have it; `rw_differs`: whether there are any; and of either table the columns `carried`, as
    `rw_expected_<name>` and `rw_found_<name>`, null where it has none.

    `rows`: how many `expected` has, where that is known. Nothing is sorted then: hash tables of a few of them are made.
    """
    on = hashed_columns(keys) if rows is None else join_columns(keys)
    placed = with_window_hash if rows is None else with_join_keys
    left, right = (placed(side, keys).withColumn(_THERE, F.lit(True)) for side in (expected, found))
    if rows is not None:
        tasks = 1 + rows // _ROWS_OF_A_HASH_TABLE
        left, right = left.repartition(tasks, *on).hint("shuffle_hash"), right.repartition(tasks, *on)
    types = {field.name: field.dataType for field in expected.schema}
    others = {field.name: field.dataType for field in found.schema}

    def equal(name: str) -> Column:
        bound = rounding_name(name)
        rounding = F.col(f"l.{bound}") if bound in types else None
        return same(F.col(f"l.`{name}`"), F.col(f"r.`{name}`"), types[name], others[name], None, rounding)

    of_both = F.col(f"l.{_THERE}").isNotNull() & F.col(f"r.{_THERE}").isNotNull()
    differ = [~equal(name) for name in values]
    # Most windows are the same. A filter by this column goes through to the join, and what follows is made of the rest.
    differs = of_both & reduce(Column.__or__, differ, F.lit(False))
    apart = F.array_compact(F.array(*(F.when(one, F.lit(name)) for name, one in zip(values, differ, strict=True))))
    nothing = F.array().cast("array<string>")
    return (
        left.alias("l")
        .join(right.alias("r"), on=on, how="full_outer")
        .withColumn(DIFFERS, differs)
        .select(
            *(F.coalesce(F.col(f"l.`{key}`"), F.col(f"r.`{key}`")).alias(key) for key in keys),
            START,
            END,
            _values("l", values).alias(EXPECTED),
            _values("r", values).alias(FOUND),
            *(_carried(left, "l", name, EXPECTED) for name in carried),
            *(_carried(right, "r", name, FOUND) for name in carried),
            (F.when(F.col(DIFFERS), apart).otherwise(nothing) if values else nothing).alias(APART),
            DIFFERS,
        )
    )


def as_texts(row: Row | Mapping[str, Any], names: Iterable[str]) -> dict[str, str | None]:
    """Columns of a row as documents show them."""
    return {name: None if row[name] is None else str(row[name]) for name in names}


def _carried(frame: DataFrame, side: str, name: str, prefix: str) -> Column:
    value = F.col(f"{side}.`{name}`") if name in frame.columns else F.lit(None).cast("string")
    return value.alias(f"{prefix}_{name}")


def _values(side: str, values: Sequence[str]) -> Column:
    """The values of a side as a struct; null where it has no such window."""
    there = F.col(f"{side}.{_THERE}")
    return F.when(there, F.struct(*(F.col(f"{side}.`{name}`") for name in values)) if values else F.struct(there))
