"""Searches, for each window end, one cut of the log that explains the emitted rows of all keys together.

Around a close some records are undecided (`spark_jobs.replay.band`). A cut says which of them came in time. It is a cut
of the log, so it is the same for every key. There are two kinds; the simpler one is tried first:

- `one_cut`: a single position; the records at or before it came in time. It explains a job with one source subtask
  that keeps up.
- `partition_cut`: one offset for each partition. The records of a partition come in offset order, but partitions do
  not wait for each other. It is tried only where several subtasks read the log, or where the job lagged and a fetch
  brought seconds of one partition at a time.

The search uses the additive aggregates (counts and sums of whole numbers). All aggregates are then recomputed under the
cut that was found (`spark_jobs.comparison.recount`). A cut for each key would explain anything, so there is none. A key
that no cut explains even alone says nothing about the cut; of the other keys, a fit may leave out at most one in four.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class CutKind(StrEnum):
    """The kind of a cut; the module describes them. `NONE`: no cut was found."""

    ONE_CUT = "one_cut"
    PARTITION_CUT = "partition_cut"
    NONE = ""


MAX_COMBINATIONS = 4_000_000
"""The most combinations of cuts that one half of the partitions may have; beyond that there is no search."""

_MAX_LEFT_OUT = 4
_MAX_SINGLED_OUT = 64
"""The most keys that are also searched one by one."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a search.

    `cuts`: for each partition the last offset, among the undecided records, that came in time (-1: none). `keys`: the
    number of keys with undecided records that the cut explains; `left_out`: the number that it does not explain.
    `searched` is false where the search would take too long.
    """

    kind: CutKind
    cuts: dict[int, int]
    keys: int
    left_out: int
    searched: bool = True


@dataclass(frozen=True, slots=True)
class Doubt:
    """All keys of one window end that have undecided records.

    `wanted`: int64 (keys, columns), what the undecided records in time must add up to: the emitted values less those
    of the certain records. The undecided records, in position order: `key` (index into `wanted`), `partition` and
    `offset` (int64 each), and `adds` (int64, records by columns). `nominal`: how many of them come in time if the close
    is exactly where the replay has it.
    """

    wanted: np.ndarray
    key: np.ndarray
    partition: np.ndarray
    offset: np.ndarray
    adds: np.ndarray
    nominal: int


def fit(doubt: Doubt, *, by_partition: bool) -> Fit:
    """The simplest cut that explains the most keys. `by_partition`: each partition may have its own cut."""
    keys = len(doubt.wanted)
    cut, explained, possible = _best_single_cut(doubt)
    if explained == keys:
        return Fit(CutKind.ONE_CUT, _last_offsets(doubt, cut), keys, 0)
    searched = True
    if by_partition:
        found, searched = _partition_cut(doubt)
        if found is not None:
            return Fit(CutKind.PARTITION_CUT, found, keys, 0)
        if searched and keys <= _MAX_SINGLED_OUT:
            alone = np.array([_partition_cut(doubt, np.arange(keys) == k)[0] is not None for k in range(keys)])
            found = _partition_cut(doubt, alone)[0] if alone.any() and not alone.all() else None
            if found is not None:
                return Fit(CutKind.PARTITION_CUT, found, int(alone.sum()), int(keys - alone.sum()))
            possible = int(alone.sum())
    if explained and possible - explained <= possible // _MAX_LEFT_OUT:
        return Fit(CutKind.ONE_CUT, _last_offsets(doubt, cut), explained, keys - explained)
    if by_partition and searched and _MAX_LEFT_OUT <= keys <= _MAX_SINGLED_OUT:
        for left_out in range(keys):
            found, _ = _partition_cut(doubt, np.arange(keys) != left_out)
            if found is not None:
                return Fit(CutKind.PARTITION_CUT, found, keys - 1, 1)
    return Fit(CutKind.NONE, {}, 0, keys, searched)


def _last_offsets(doubt: Doubt, cut: int) -> dict[int, int]:
    """Per partition the last offset among the first `cut` records; -1 where there is none."""
    last = {int(p): -1 for p in np.unique(doubt.partition)}
    for partition, offset in zip(doubt.partition[:cut].tolist(), doubt.offset[:cut].tolist(), strict=True):
        last[partition] = max(last[partition], offset)
    return last


def _best_single_cut(doubt: Doubt) -> tuple[int, int, int]:
    """The single cut that explains the most keys; of several, the one nearest to the replay's close.

    Returns (records taken, keys that it explains, keys that some single cut explains). Each key agrees with some ranges
    of cuts. A running sum over the edges of these ranges gives the number of keys at every cut.
    """
    total, keys = len(doubt.key), len(doubt.wanted)
    # Range j of a key begins after its j-th record; range 0 before its first.
    order = np.argsort(doubt.key, kind="stable")
    key = doubt.key[order]
    sums = _sums_within(key, doubt.adds[order], keys)
    first = np.zeros(keys, np.int64)
    none = (doubt.wanted == 0).all(axis=1)
    agrees = (sums == doubt.wanted[key]).all(axis=1)
    begins = order + 1
    ends = np.full(total, total + 1, np.int64)
    same = key[1:] == key[:-1]
    ends[:-1][same] = begins[1:][same]
    first_of = np.full(keys, total + 1, np.int64)
    starts = np.flatnonzero(np.r_[True, ~same]) if total else np.empty(0, np.int64)
    first_of[key[starts]] = begins[starts]
    edges = np.zeros(total + 2, np.int64)
    np.add.at(edges, first[none], 1)
    np.add.at(edges, first_of[none], -1)
    np.add.at(edges, begins[agrees], 1)
    np.add.at(edges, ends[agrees], -1)
    explained = np.cumsum(edges[: total + 1])
    best = np.flatnonzero(explained == explained.max())
    cut = int(best[np.argmin(np.abs(best - doubt.nominal))])
    possible = none.copy()
    possible[key[agrees]] = True
    return cut, int(explained[cut]), int(possible.sum())


def _sums_within(key: np.ndarray, adds: np.ndarray, keys: int) -> np.ndarray:
    """Running sums within each key; `key` is grouped."""
    sums = np.cumsum(adds, axis=0)
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.empty(0, np.int64)
    before = np.zeros((keys, adds.shape[1]), adds.dtype)
    if len(starts) > 1:
        before[key[starts[1:]]] = sums[starts[1:] - 1]
    return sums - before[key]


def _partition_cut(doubt: Doubt, among: np.ndarray | None = None) -> tuple[dict[int, int] | None, bool]:
    """A cut by partition that explains every key (or those of the mask `among`), and whether the search was possible.

    Sums are additive over partitions. So one number modulo 2^64 (a weighted sum) stands for the wanted values of all
    keys, and a meet-in-the-middle search compares the sums of one half of the partitions with what the other half
    lacks.
    """
    weights = _weights(*doubt.wanted.shape)
    if among is not None:
        weights[~among] = 0
    with np.errstate(over="ignore"):
        wanted = (doubt.wanted.astype(np.uint64) * weights).sum(dtype=np.uint64)
        numbers = (doubt.adds.astype(np.uint64) * weights[doubt.key]).sum(axis=1, dtype=np.uint64)
        partitions = np.unique(doubt.partition)
        choices, offsets = [], []
        for partition in partitions:
            own = np.flatnonzero(doubt.partition == partition)
            own = own[np.argsort(doubt.offset[own], kind="stable")]
            choices.append(np.r_[np.uint64(0), np.cumsum(numbers[own], dtype=np.uint64)])
            offsets.append(np.r_[np.int64(-1), doubt.offset[own]])
        halves = _halves([len(c) for c in choices])
        if halves is None:
            return None, False
        left, right = halves
        sums = _all_sums([choices[i] for i in left])
        missing = wanted - _all_sums([choices[i] for i in right])
    order = np.argsort(sums)
    place = np.searchsorted(sums, missing, sorter=order)
    place_inside = np.minimum(place, len(sums) - 1)
    hits = np.flatnonzero(sums[order[place_inside]] == missing)
    if not len(hits):
        return None, True
    picked: dict[int, int] = {}
    for half, flat in ((left, int(order[place_inside[hits[0]]])), (right, int(hits[0]))):
        shape = tuple(len(choices[i]) for i in half)
        for i, index in zip(half, np.unravel_index(flat, shape) if shape else (), strict=True):
            picked[int(partitions[i])] = int(offsets[i][index])
    return picked, True


def _halves(sizes: list[int]) -> tuple[list[int], list[int]] | None:
    """The partitions in two parts with about equally many combinations of cuts; None where these are too many."""
    left, right, in_left, in_right = [], [], 1, 1
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        if in_left <= in_right:
            left.append(i)
            in_left *= sizes[i]
        else:
            right.append(i)
            in_right *= sizes[i]
    return None if max(in_left, in_right) > MAX_COMBINATIONS else (left, right)


def _all_sums(choices: list[np.ndarray]) -> np.ndarray:
    """The sums of all combinations of one number from each array, in the order of `np.ravel_multi_index`."""
    sums = np.zeros(1, np.uint64)
    for numbers in choices:
        sums = (sums[:, None] + numbers[None, :]).ravel()
    return sums


def _weights(keys: int, columns: int) -> np.ndarray:
    """Odd, well mixed 64-bit weights, the same in each run: uint64 (keys, columns)."""
    with np.errstate(over="ignore"):
        x = (np.arange(1, keys * columns + 1, dtype=np.uint64)) * _MIX
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) | np.uint64(1)).reshape(keys, columns)
