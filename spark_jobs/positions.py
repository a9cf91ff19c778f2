"""The positions that were read of a log, by bucket: how many, which, and when their events happened. No Spark.

A bucket holds the offsets of one partition with one value of `offset >> shift`, so that its edges stay where they are
when the log grows. Its digest is the exclusive or of a hash of each position (partition, offset, arrival): neither the
order nor the split of the records matters, and disjoint parts of a bucket are joined by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

MOST_BUCKETS, LEAST_BUCKETS, MOST_OF_ALL = 256, 16, 4096
"""The most buckets of a partition; so many it may have however many partitions there are; the most of all else."""


class Zone(IntEnum):
    """Where a position lies beside what was read before."""

    READ = 0
    """Below the end offset, at an offset that held a record."""
    MISSED = 1
    """Below the end offset, at an offset that held none: it came late."""
    LATER = 2
    """From the end offset on, or in a partition of which nothing was read."""
    UNUSABLE = 3
    """Below the end offset, at an offset that held a record whose arrival cannot be used any more."""


@dataclass(frozen=True, slots=True)
class Known:
    """What was read of a partition: the offsets below `end`, but those `[from, to)` that were `empty`."""

    end: int
    empty: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Bucket:
    """Positions of a bucket.

    Attributes:
        count: How many are there.
        digest: The exclusive or of their hashes, a signed number of 64 bits.
        first_arrival: The smallest arrival, epoch ms; None: no record has one.
        last_arrival: The largest arrival.
        first_time: The smallest event time of the good records, epoch ms; None: there is no good record.
        last_time: The largest event time.
        gone: How many more were read, and are not there any more. The times are those of these records too.
    """

    count: int = 0
    digest: int = 0
    first_arrival: int | None = None
    last_arrival: int | None = None
    first_time: int | None = None
    last_time: int | None = None
    gone: int = 0

    def joined(self, other: Bucket) -> Bucket:
        """Both together; they have no position in common."""
        return Bucket(
            self.count + other.count,
            self.digest ^ other.digest,
            least(self.first_arrival, other.first_arrival),
            largest(self.last_arrival, other.last_arrival),
            least(self.first_time, other.first_time),
            largest(self.last_time, other.last_time),
            self.gone + other.gone,
        )

    def has_positions_of(self, other: Bucket) -> bool:
        """Whether both have the same positions."""
        return (self.count, self.digest) == (other.count, other.digest)

    def arrived_within(self, other: Bucket) -> bool:
        """Whether all arrivals lie between the first and the last one of `other`."""
        if self.first_arrival is None or self.last_arrival is None:
            return True
        if other.first_arrival is None or other.last_arrival is None:
            return False
        return other.first_arrival <= self.first_arrival and self.last_arrival <= other.last_arrival


def least(one: int | None, other: int | None) -> int | None:
    """The smaller of two numbers; None stands for none."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def largest(one: int | None, other: int | None) -> int | None:
    """The larger of two numbers; None stands for none."""
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of a partition by their number, `offset >> shift`."""

    shift: int
    by_number: Mapping[int, Bucket]

    @classmethod
    def none(cls) -> Buckets:
        return cls(0, {})

    @classmethod
    def of(cls, parts: Iterable[Buckets]) -> Buckets:
        """All of these together."""
        found = cls.none()
        for part in parts:
            found = found.joined(part)
        return found

    @property
    def count(self) -> int:
        """How many positions are there."""
        return sum(bucket.count for bucket in self.by_number.values())

    @property
    def gone(self) -> int:
        """How many are not there any more."""
        return sum(bucket.gone for bucket in self.by_number.values())

    def at(self, shift: int) -> Buckets:
        """The buckets with edges that are as far apart or farther."""
        if shift == self.shift or not self.by_number:
            return Buckets(shift, self.by_number)
        found: dict[int, Bucket] = {}
        for number, bucket in self.by_number.items():
            wider = number >> (shift - self.shift)
            found[wider] = found[wider].joined(bucket) if wider in found else bucket
        return Buckets(shift, found)

    def joined(self, other: Buckets) -> Buckets:
        """Both together; they have no position in common."""
        if not self.by_number or not other.by_number:
            return other if not self.by_number else self
        shift = max(self.shift, other.shift)
        joined = dict(self.at(shift).by_number)
        for number, bucket in other.at(shift).by_number.items():  # often few, and many are there
            joined[number] = joined[number].joined(bucket) if number in joined else bucket
        return Buckets(shift, dict(sorted(joined.items())))

    def fitted(self, most: int) -> Buckets:
        """At most so many buckets between the first and the last one."""
        shift = self.shift + shift_for(self.by_number, most)
        return self.at(shift)


def shift_for(numbers: Iterable[int], most: int) -> int:
    """By how many bits these numbers have to be shifted to be at most so many from the first to the last."""
    known = list(numbers)
    if not known:
        return 0
    first, last, shift = min(known), max(known), 0
    while (last >> shift) - (first >> shift) >= most:
        shift += 1
    return shift


def most_buckets(partitions: int) -> int:
    """How many buckets each of so many partitions may have."""
    return min(MOST_BUCKETS, max(LEAST_BUCKETS, MOST_OF_ALL // max(1, partitions)))


Found = Mapping[int, Mapping[Zone, Buckets]]
"""What is there now, by partition and zone."""


def all_of(found: Mapping[Zone, Buckets]) -> Buckets:
    """The positions of a partition in all zones, but those of records that have no arrival."""
    return Buckets.of(buckets for zone, buckets in found.items() if zone is not Zone.UNUSABLE)
