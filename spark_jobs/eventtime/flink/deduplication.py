"""Duplicates in front of the windows, one record at a time, as Flink's operators drop them. Times are epoch ms.

By processing time: SQL's `ProcTimeDeduplicateKeepFirstRowFunction`, and keyed state with a time to live in a filter of
one's own. By row time: `RowTimeDeduplicateKeepFirstRowFunction`, insert-only, of Flink 2.1 and later.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

E = TypeVar("E")


class UpdateType(StrEnum):
    """What renews the time to live of state, as `StateTtlConfig.UpdateType`."""

    ON_CREATE_AND_WRITE = "on_create_and_write"
    ON_READ_AND_WRITE = "on_read_and_write"


class FirstByProcessingTime:
    """The first record of each id goes on. `within`: how long an id is remembered; None: for ever.

    State written at t is gone at t + within: `TtlUtils.expired`.
    """

    def __init__(self, within: int | None, update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE) -> None:
        self._within = within
        self._renews = update_type is UpdateType.ON_READ_AND_WRITE
        self._touched: dict[Hashable, int] = {}

    def takes(self, id: Hashable, now: int) -> bool:
        """Whether a record that is processed at `now` goes on."""
        touched = self._touched.get(id)
        is_held = touched is not None and (self._within is None or touched + self._within > now)
        if not is_held or self._renews:
            self._touched[id] = now
        return not is_held


@dataclass(slots=True)
class _Waiting(Generic[E]):
    timestamp: int
    element: E


class FirstByRowTime(Generic[E]):
    """The record of each id with the smallest row time goes on, when the watermark reaches that time.

    A record with a row time below the watermark is dropped as late. What comes after an id was given is a duplicate,
    whatever its time, until the state that says so has lived for `within` of processing time (None: for ever). A record
    that waits for its watermark does not expire. Of equal row times the first one stays.
    """

    def __init__(self, within: int | None) -> None:
        self._within = within
        self._waiting: dict[Hashable, _Waiting[E]] = {}
        self._given: dict[Hashable, int] = {}

    def is_late(self, timestamp: int, watermark: int | None) -> bool:
        """Whether a record comes after the watermark has passed its row time. `watermark` None: there is none yet."""
        return watermark is not None and timestamp < watermark

    def add(self, id: Hashable, timestamp: int, element: E, now: int) -> None:
        """Take a record that is not late."""
        given = self._given.get(id)
        if given is not None and (self._within is None or given + self._within > now):
            return
        waiting = self._waiting.get(id)
        if waiting is None or timestamp < waiting.timestamp:
            self._waiting[id] = _Waiting(timestamp, element)

    def advance(self, watermark: int, now: int) -> list[E]:
        """The records that go on as the watermark gets there, before it goes on itself; by row time."""
        due = sorted(
            ((one.timestamp, id) for id, one in self._waiting.items() if one.timestamp <= watermark),
            key=lambda one: one[0],
        )
        for _, id in due:
            self._given[id] = now
        return [self._waiting.pop(id).element for _, id in due]
