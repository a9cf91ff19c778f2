"""DataFrames that are computed once and used several times, and those that SQL names."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame

FEW = 100_000
"""So many rows of keys and instants go to every task within the plan."""


def as_values(frame: DataFrame, most: int = FEW) -> DataFrame | None:
    """The rows of `frame` (of types that Arrow has) as values; None where there are more than `most`.

    A frame of values forgets how it was made. A cached one does not: its plan is looked at and written out again
    with each use, and a hundredfold where cached frames are made of cached frames.
    """
    few = frame.limit(most + 1).toArrow()
    return frame.sparkSession.createDataFrame(few, frame.schema) if few.num_rows <= most else None


class CachedFrames:
    """The cached DataFrames of one replay. `release`, or the end of the context, frees all of them together."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cache `frame` (memory, then disk) until `release`."""
        self._frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def keep_keys(self, frame: DataFrame) -> DataFrame:
        """`frame`, computed now: as values where its rows are few, else cached."""
        values = as_values(self.keep(frame))
        if values is None:
            return frame
        frame.unpersist()
        return values

    def release(self) -> None:
        """Free all cached frames; harmless twice."""
        while self._frames:
            self._frames.pop().unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def viewed(frame: DataFrame) -> Iterator[str]:
    """The name of a view of the frame, for SQL within the block."""
    name = f"rw_view_{secrets.token_hex(8)}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)
