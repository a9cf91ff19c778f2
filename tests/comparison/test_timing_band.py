"""How wide the timing band of a window end is."""

from __future__ import annotations

import numpy as np

from spark_jobs.replay.band import Band
from spark_jobs.replay.columns import NEVER

MARGIN = 210


def bounds(band: Band, ends: list[int], closes: list[int]) -> list[tuple[int, int]]:
    low, high = band.bounds(np.array(ends, np.int64), np.array(closes, np.int64))
    return [(int(a), int(b)) for a, b in zip(low, high, strict=True)]


def test_the_delay_of_a_window_end_is_part_of_its_band_and_an_end_without_rows_has_its_neighbours() -> None:
    known = (np.array([1000, 3000, 4000], np.int64), np.array([5, 569, 100], np.int64))
    band = Band(MARGIN, slack=450, emissions=known)
    closes = [11_000, 12_000, 13_000, 14_000, 15_000, NEVER]
    assert bounds(band, [1000, 2000, 3000, 4000, 5000, 6000], closes) == [
        (10_790, 11_210),
        (12_000 - 569 - MARGIN, 12_569),
        (13_000 - 569 - MARGIN, 13_569),
        (13_790, 14_210),
        (14_790, 15_210),
        (NEVER, NEVER),
    ]
    ends, at = np.array([1000, 2000, 3000, 4000], np.int64), np.array(closes[:4], np.int64)
    assert band.lagging(ends, at).tolist() == [False, False, True, False]
    assert bounds(Band(MARGIN, slack=450), [1000], [11_000]) == [(10_790, 11_210)]
