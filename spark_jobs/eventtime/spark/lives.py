"""Which batches of an archive are of the life that a query has now.

A checkpoint that is put back from a copy keeps its query's id and begins another life: from some batch on its batches
are others under the same numbers. An archive of the checkpoint then has batches of the life that was given up. A life
is a chain: a batch that both have alike proves every archived batch before it, and nothing after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from spark_jobs.eventtime.spark.checkpoint import Checkpoint
from spark_jobs.eventtime.spark.logs import ABSENT, Column, OffsetLogEntry, SourceOffset

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Unproven:
    """The archived batches from `number` on are not known to be of this life; `why`, for people."""

    number: int
    why: str


def of_this_life(archived: Checkpoint, now: Checkpoint) -> Checkpoint:
    """The archived batches without those of another life: from the first that differs, and above the last commit.

    Those of before the checkpoint's first batch need a proof, see `unproven_in`.
    """
    ends = [first_of_another_life(archived, now)]
    if len(now.offsets):
        ends.append(max(_first(now), max(now.commits, default=-1) + 1))
    known = [end for end in ends if end is not None]
    return archived.below(min(known)) if known else archived


def first_of_another_life(archived: Checkpoint, now: Checkpoint) -> int | None:
    """The first archived batch that the checkpoint has otherwise; None: it has none otherwise."""
    return min(_others(archived, now), default=None)


def unproven_in(archived: Checkpoint, now: Checkpoint) -> Unproven | None:
    """The archived batches before the checkpoint's first one that nobody can prove to be of its life; None: all are.

    Where batches are missing between the two, and those around them can follow each other, it is None, too: there is a
    gap, which is refused or told as one.
    """
    first = _first(now) if len(now.offsets) else 0
    before = archived.below(first).offsets
    if not len(before):
        return None
    last = int(before.numbers[-1])
    if first in archived.offsets.numbers:
        if first not in _others(archived, now):
            return None
        return Unproven(0, f"batch {first} is another one than the archived batch {first}")
    if not _can_follow(before[last], now.offsets[first]):
        return Unproven(0, f"batch {first} begins before the end of the archived batch {last}")
    if last == first - 1:
        return Unproven(last, f"it has no batch any more that is archived, too: {last} is the last of these")
    return None


def _first(now: Checkpoint) -> int:
    return int(now.offsets.numbers[0])


def _others(archived: Checkpoint, now: Checkpoint) -> set[int]:
    """The batches that both have and that differ: in what they read, when they were planned, or a watermark."""
    one, other = archived.offsets, now.offsets
    both, left, right = np.intersect1d(one.numbers, other.numbers, assume_unique=True, return_indices=True)
    differs = (one.watermarks[left] != other.watermarks[right]) | (one.timestamps[left] != other.timestamps[right])
    differs |= _differ(one.there, other.there, left, right)
    differs |= _differ(one.ends, other.ends, left, right)
    differs |= _differ(one.entries, other.entries, left, right)
    # Of the settings an archive has only those that decide something.
    pairs = np.stack((one.conf[left], other.conf[right]), axis=1)
    for kept, there in {(int(kept), int(there)) for kept, there in np.unique(pairs, axis=0)}:
        if not one.confs[kept].items() <= other.confs[there].items():
            differs |= (pairs == (kept, there)).all(axis=1)
    done, left, right = np.intersect1d(
        archived.commits.numbers, now.commits.numbers, assume_unique=True, return_indices=True
    )
    moved = archived.commits.next_watermarks[left] != now.commits.next_watermarks[right]
    return {*both[differs].tolist(), *done[moved].tolist()}


def _differ(one: Mapping[K, Column], other: Mapping[K, Column], left: Column, right: Column) -> npt.NDArray[np.bool_]:
    """Where the columns differ in the rows `left` of the one and `right` of the other."""
    absent, found = np.full(len(left), ABSENT, dtype=np.int64), np.zeros(len(left), dtype=np.bool_)
    for key in {*one, *other}:
        mine = one[key][left] if key in one else absent
        theirs = other[key][right] if key in other else absent
        found |= mine != theirs
    return found


def _can_follow(before: OffsetLogEntry, after: OffsetLogEntry) -> bool:
    """Whether a query can have run the one batch and later the other: it never reads or plans backwards."""
    return before.timestamp <= after.timestamp and all(
        _reaches(offset, after.offsets.get(source)) for source, offset in before.offsets.items()
    )


def _reaches(before: SourceOffset | None, after: SourceOffset | None) -> bool:
    if before is None or after is None or type(before) is not type(after):
        return True
    return after.is_at_or_beyond(before)
