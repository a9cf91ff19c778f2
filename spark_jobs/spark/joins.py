"""Joins on columns that may hold nulls: a null is the same as a null (`<=>`). Spark hashes and sorts by them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

OTHER = "rw_other_"


def others(columns: Sequence[str], prefix: str = OTHER) -> list[Column]:
    """The columns under other names, so that they can stand beside the columns of another frame."""
    return [F.col(f"`{c}`").alias(f"{prefix}{c}") for c in columns]


def same(columns: Iterable[str], prefix: str = OTHER) -> list[Column]:
    """The conditions of a join with a frame that has the columns as `others`."""
    return same_pairs((c, f"{prefix}{c}") for c in columns)


def same_pairs(pairs: Iterable[tuple[str, str]]) -> list[Column]:
    """The conditions of a join on pairs of columns: one of the left frame, one of the right frame."""
    return [F.col(f"`{left}`").eqNullSafe(F.col(f"`{right}`")) for left, right in pairs]


def matching(
    frame: DataFrame,
    those: DataFrame,
    columns: Sequence[str],
    how: Literal["left_semi", "left_anti"] = "left_semi",
) -> DataFrame:
    """The rows of `frame` that have the same values in `columns` as a row of `those`; `left_anti`: the other rows."""
    return frame.join(those.select(*others(columns)), same(columns), how)
