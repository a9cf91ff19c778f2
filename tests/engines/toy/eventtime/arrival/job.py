"""The toy engine, record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def counts(records: Iterable[tuple[int, int, str]], size: int, behind: int) -> Counter[tuple[str, int]]:
    """How many records are in time in each window that has closed, by key and start (ms).

    Of each record its arrival, event time (ms) and key, in the order of the arrivals. The windows are tumbling.
    """
    found: Counter[tuple[str, int]] = Counter()
    latest = None
    for arrival, time, key in records:
        start = time - time % size
        if latest is None or latest - behind < start + size - 1:
            found[key, start] += 1
        latest = arrival if latest is None else max(latest, arrival)
    return Counter({at: n for at, n in found.items() if latest is not None and latest - behind >= at[1] + size - 1})
