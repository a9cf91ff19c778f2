"""Values as text."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

_INSTANTS = {
    # Without a format, Spark writes milliseconds.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    # Two instants may have one local time.
    "timeZone": "UTC",
}


def as_text(*columns: Column | str) -> Column:
    """These columns as one text (JSON), which differs where a value does: instants with microseconds, nulls named."""
    return F.to_json(F.struct(*columns), {**_INSTANTS, "ignoreNullFields": "false"})
