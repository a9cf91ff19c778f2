"""Ranges of event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class TimeRange:
    """Event times `[start, end)` in epoch ms. A range of windows is chosen by their start."""

    start: int
    end: int


def ranges_of(starts: Sequence[int], step: int, most: int) -> tuple[TimeRange, ...]:
    """At most `most` ranges that hold all `starts` (ascending, epoch ms); `step` is the least gap that counts."""
    if not starts:
        return ()
    gaps = sorted((b - a for a, b in pairwise(starts)), reverse=True)
    least = max(gaps[most - 1] + 1 if len(gaps) >= most else 0, step + 1)
    found = [[starts[0], starts[0]]]
    for before, start in pairwise(starts):
        if start - before >= least:
            found.append([start, start])
        found[-1][1] = start
    return tuple(TimeRange(first, last + 1) for first, last in found)
