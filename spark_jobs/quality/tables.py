"""Small tables of plain values as pandas frames, which Great Expectations can check."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


def table_of(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> pd.DataFrame:
    """The rows as a pandas frame: numbers as numbers, missing values as NaN."""
    import pandas as pd

    frame = pd.DataFrame([{c: row.get(c) for c in columns} for row in rows], columns=pd.Index(list(columns)))
    for column in frame.columns:
        values = [row.get(column) for row in rows]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values if v is not None):
            numbers = [math.nan if v is None else v for v in values]
            frame[column] = pd.Series(numbers, dtype="float64" if None in values else None)
    return frame
