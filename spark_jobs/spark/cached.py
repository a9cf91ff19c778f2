"""DataFrames that are computed once and used several times."""

from __future__ import annotations

from typing import Self

from pyspark import StorageLevel
from pyspark.sql import DataFrame


class CachedFrames:
    """The cached DataFrames of one replay. `release`, or the end of the context, frees all of them together."""

    def __init__(self) -> None:
        self._frames: list[DataFrame] = []

    def keep(self, frame: DataFrame) -> DataFrame:
        """Cache `frame` (memory, then disk) until `release`."""
        self._frames.append(frame.persist(StorageLevel.MEMORY_AND_DISK))
        return frame

    def release(self) -> None:
        """Free all cached frames; harmless twice."""
        while self._frames:
            self._frames.pop().unpersist()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
