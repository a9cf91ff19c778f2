"""Two tables of windows side by side: which windows only one of them has, and whose values differ."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from spark_jobs.comparison.join_keys import hashed_columns, with_window_hash
from spark_jobs.comparison.verdicts import same
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.rounding import rounding_name

EXPECTED, FOUND, DIFFERS, APART = "rw_expected", "rw_found", "rw_differs", "rw_apart"


def beside(
    expected: DataFrame,
    found: DataFrame,
    keys: Sequence[str],
    values: Sequence[str],
    *,
    carried: Sequence[str] = (),
) -> DataFrame:
    """The windows of either table, one row each.

    Both have the keys, `window_start`, `window_end` (epoch ms) and `values`; `expected` may have the bound of a value
    that is summed up in any order (`rw_rounding_<name>`). Columns: keys, `window_start`, `window_end`; `rw_expected`
    and `rw_found`, the values as a struct, null where the table has no such window; `rw_apart`: the names of the values
    that differ, where both have it; `rw_differs`: whether there are any; and of either table the columns `carried`, as
    `rw_expected_<name>` and `rw_found_<name>`, null where it has none.
    """
    on = hashed_columns(keys)
    left = with_window_hash(expected, keys).withColumn(EXPECTED, _struct(values))
    right = with_window_hash(found, keys).withColumn(FOUND, _struct(values))
    types = {field.name: field.dataType for field in expected.schema}
    others = {field.name: field.dataType for field in found.schema}

    def equal(name: str) -> Column:
        bound = rounding_name(name)
        rounding = F.col(f"l.{bound}") if bound in types else None
        return same(F.col(f"l.`{name}`"), F.col(f"r.`{name}`"), types[name], others[name], None, rounding)

    apart = F.array_compact(F.array(F.lit(None).cast("string"), *(F.when(~equal(n), F.lit(n)) for n in values)))
    of_both = F.col(f"l.{EXPECTED}").isNotNull() & F.col(f"r.{FOUND}").isNotNull()
    joined = (
        left.alias("l")
        .join(right.alias("r"), on=on, how="full_outer")
        .select(
            *(F.coalesce(F.col(f"l.`{key}`"), F.col(f"r.`{key}`")).alias(key) for key in keys),
            START,
            END,
            f"l.{EXPECTED}",
            f"r.{FOUND}",
            *(_carried(left, "l", name, EXPECTED) for name in carried),
            *(_carried(right, "r", name, FOUND) for name in carried),
            F.when(of_both, apart).otherwise(F.array().cast("array<string>")).alias(APART),
        )
    )
    return joined.withColumn(DIFFERS, F.size(APART) > 0)


def as_texts(row: Row | Mapping[str, Any], names: Iterable[str]) -> dict[str, str | None]:
    """Columns of a row as documents show them."""
    return {name: None if row[name] is None else str(row[name]) for name in names}


def _carried(frame: DataFrame, side: str, name: str, prefix: str) -> Column:
    value = F.col(f"{side}.`{name}`") if name in frame.columns else F.lit(None).cast("string")
    return value.alias(f"{prefix}_{name}")


def _struct(values: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"`{name}`") for name in values)) if values else F.struct(F.lit(True).alias("there"))
