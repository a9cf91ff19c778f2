"""The toy engine, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def counts(records: Iterable[tuple[int, int, str]], size: int, behind: int) -> Counter[tuple[str, int]]:
    """How many records are in time in each window, by key and start, given arrival, event time and key of each (ms).

    The windows are tumbling. Records come in the order of their arrival.
    """
    found: Counter[tuple[str, int]] = Counter()
    latest = None
    for arrival, time, key in records:
        start = time - time % size
        if latest is None or latest - behind < start + size - 1:
            found[key, start] += 1
        latest = arrival if latest is None else max(latest, arrival)
    return found
