"""The inversion where the generators that count change: each one's steps in the stretches of values it counts in."""

from __future__ import annotations

import numpy as np

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER


def steps_in_stretches(
    reached: np.ndarray, closes: np.ndarray, low: np.ndarray, high: np.ndarray, until: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Timeline rows of one generator: `x_from`, and positions of shape (n, 3).

    `reached` and `closes`: thresholds and the positions (arrival, major, minor) at which they were reached, any order,
    several for one threshold. `low`, `high` and `until`: its stretches, ascending (`combine.Stretches`).
    """
    if not len(reached) or not len(low):
        return np.empty(0, dtype=np.int64), np.empty((0, 3), dtype=np.int64)
    by_position = np.lexsort((closes[:, 2], closes[:, 1], closes[:, 0]))
    rank = np.empty(len(reached), dtype=np.int64)
    rank[by_position] = np.arange(len(reached))
    order = np.argsort(reached, kind="stable")
    thresholds, at = np.unique(reached[order], return_index=True)
    earliest = np.minimum.accumulate(rank[order][::-1])[::-1][at]
    x_from = np.concatenate(([MIN_TIMESTAMP], thresholds[:-1] + 1))
    begin = np.searchsorted(x_from, low, side="right") - 1
    count = np.searchsorted(x_from, high, side="right") - begin
    stretch = np.repeat(np.arange(len(low)), count)
    step = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) + begin[stretch]
    positions = closes[by_position[earliest[step]]]
    # A step that begins in the stretch and is reached after it holds no threshold of the stretch.
    arrival, end = positions[:, 0], until[stretch]
    inside = (arrival < end) | ((arrival == end) & ((positions[:, 1] < 0) | (end == NEVER)))
    return np.maximum(x_from[step], low[stretch])[inside], positions[inside]
