"""Deduplication in front of the window, batch by batch (Spark rules 33 to 37).

Late is by the event time here, not by the window's end. Times are in the unit of the query's event times.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import StrEnum


class DeduplicationKind(StrEnum):
    """Which of Spark's operators drops duplicates, and for how long it remembers an id.

    `within_watermark`: `dropDuplicatesWithinWatermark`, until the watermark has passed event time + delay.
    `id_and_time`:
    `dropDuplicates` with the event time among its columns, until the watermark has passed it. `id`: `dropDuplicates`
    without it, for ever.
    """

    WITHIN_WATERMARK = "within_watermark"
    ID_AND_TIME = "id_and_time"
    ID = "id"


class Deduplication:
    """The ids that a query remembers. Call `takes` for each record of a batch in order, then `end_batch`."""

    def __init__(self, kind: DeduplicationKind) -> None:
        self._kind = kind
        self._expiry: dict[Hashable, int | None] = {}

    def takes(self, id: Hashable, timestamp: int | None, *, late: int, delay: int) -> bool:
        """Whether a record goes on: neither late (`ts <= W`) nor a duplicate.

        One without event time is not late, and takes its id as if its time were 0. `delay` is that of the first input,
        at this start: an id keeps the one that it came with.
        """
        if timestamp is not None and timestamp <= late:
            return False
        key, expiry = self._held(id, timestamp, delay)
        if key in self._expiry:
            return False
        self._expiry[key] = expiry
        return True

    def _held(self, id: Hashable, timestamp: int | None, delay: int) -> tuple[Hashable, int | None]:
        match self._kind:
            case DeduplicationKind.WITHIN_WATERMARK:
                return id, (timestamp or 0) + delay
            case DeduplicationKind.ID_AND_TIME:
                return (id, timestamp), timestamp
            case DeduplicationKind.ID:
                return id, None

    def end_batch(self, *, out: int) -> None:
        """Forget the ids whose time the batch's watermark has reached."""
        self._expiry = {key: expiry for key, expiry in self._expiry.items() if expiry is None or expiry > out}
