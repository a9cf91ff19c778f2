"""A look-up of many values in a table of ranges, as one hash join against few rows.

Ranges are `[start, end)`, and of one group no two overlap. Each is entered into the cells of a regular grid that it
touches, so that a value meets only the ranges of its cell: as many rows as there are ranges and cells, and on average
one or two comparisons a value.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_KEY, _START, _END = "rw_cell", "rw_range_start", "rw_range_end"


def joined_to_ranges(
    frame: DataFrame,
    value: Column,
    start: np.ndarray,
    end: np.ndarray,
    payload: Mapping[str, np.ndarray],
    *,
    group: Column | None = None,
    groups: np.ndarray | None = None,
    fits: Column | None = None,
    how: str = "inner",
) -> DataFrame:
    """The rows of `frame` whose `value` (BIGINT) lies in a range, with that range's `payload` columns.

    `start`, `end` and `groups` are int64 of one length; `group` (BIGINT) says which group's ranges a row meets. With
    `fits`, a condition on payload and row, ranges may overlap. `how="left"` keeps the rows in no range.
    """
    keep = end > start
    start, end = start[keep], end[keep]
    of_range = np.zeros(len(start), dtype=np.int64) if groups is None else groups[keep]
    step = _step(start, end)
    first, last = start // step, (end - 1) // step
    repeats = (last - first + 1).astype(np.int64)
    which = np.repeat(np.arange(len(start)), repeats)
    offsets = np.arange(len(which)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    cell_of = first[which] + offsets
    # One number for group and cell: Spark finds a single BIGINT in an array, and hashes a row of two.
    lowest, cells_of_group = (int(cell_of.min()), int(np.ptp(cell_of)) + 1) if len(cell_of) else (0, 1)
    table = pa.table(
        {
            _KEY: of_range[which] * cells_of_group + cell_of - lowest,
            _START: start[which],
            _END: end[which],
            **{name: values[keep][which] for name, values in payload.items()},
        }
    )
    cells = F.broadcast(frame.sparkSession.createDataFrame(table))
    mine = F.lit(0).cast("bigint") if group is None else group.cast("bigint")
    placed = frame.withColumn("rw_value", value.cast("bigint"))
    cell = F.call_function("div", F.col("rw_value") - F.pmod(F.col("rw_value"), F.lit(step)), F.lit(step))
    cell = cell - F.lit(lowest)
    own = (cell >= 0) & (cell < F.lit(cells_of_group))  # beyond them lie the cells of another group
    placed = placed.withColumn("rw_key", F.when(own, mine * F.lit(cells_of_group) + cell))
    inside = (F.col("rw_value") >= F.col(_START)) & (F.col("rw_value") < F.col(_END))
    inside = inside if fits is None else inside & fits
    return placed.join(cells, (F.col(_KEY) == F.col("rw_key")) & inside, how).drop(
        _KEY, _START, _END, "rw_value", "rw_key"
    )


def _step(start: np.ndarray, end: np.ndarray) -> int:
    """The cell's length with which the ranges are entered about twice as often as there are ranges."""
    if not len(start):
        return 1
    return max(1, int((end - start).astype(np.float64).sum() / len(start)))
