"""The session's time zone of a Flink SQL script: `table.local-time-zone`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

_FIRST, _LAST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
"""Records of a job that runs today lie between them."""


def phases_of(zone: str, step: int) -> set[int]:
    """How far the zone's clock is ahead of windows of `step` ms that begin in UTC: one number if it never changes (ms).

    None at all for a zone that is not known.
    """
    try:
        return {offset % step for offset in _offsets(zone)}
    except (KeyError, ValueError, OSError):
        return set()


@lru_cache
def _offsets(zone: str) -> frozenset[int]:
    """The distances of the zone's clock from UTC (ms) since the year 2000."""
    return frozenset(_each_week(ZoneInfo(zone)))


def _each_week(zone: ZoneInfo) -> Iterator[int]:
    moment = _FIRST
    while moment < _LAST:
        offset = moment.astimezone(zone).utcoffset() or timedelta()
        yield int(offset.total_seconds() * 1000)
        moment += timedelta(days=7)
