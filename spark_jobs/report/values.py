"""Values of any column as JSON holds them, with limits."""

from __future__ import annotations

import math
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, BooleanType, DecimalType, NumericType

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
