"""A reading beside what is there now. A pure function of both: no count alone decides.

| by bucket | positions now | what follows |
| --- | --- | --- |
| same | those that were read | nothing |
| more | these, and others at offsets that held none | the history is read again |
| gone | fewer than were read | windows that were made of them may keep their values |
| changed | as many, but others: an arrival is another one | the history is read again |

Where no bucket of an input has the positions that were read, and some have others in their place, it is another log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_jobs.definition.union import BLOCK
from spark_jobs.positions import Bucket, Buckets, Found, Zone, all_of, most_buckets
from spark_jobs.runs.night.reading import PartitionReading, Reading


class Difference(StrEnum):
    """How the positions of a bucket differ from those that were read."""

    SAME = "same"
    MORE = "more"
    GONE = "gone"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class BucketCompared:
    """One bucket of a partition, `number` by `shift`: how it differs, and its positions.

    `gone`: all that were ever read and are not there. `missed`: those at offsets that held no record. `there`: whether
    any of the positions that were read is there, as far as is known.
    """

    partition: int
    shift: int
    number: int
    difference: Difference
    gone: int
    missed: int
    there: bool


@dataclass(frozen=True, slots=True)
class Compared:
    """All buckets of a reading beside what is there now."""

    buckets: tuple[BucketCompared, ...]

    @property
    def missed(self) -> int:
        """Records below the end offsets that were not read."""
        return sum(bucket.missed for bucket in self.buckets)

    @property
    def has_more(self) -> bool:
        """Whether records lie below the end offsets that were not read, or came back."""
        return any(bucket.difference is Difference.MORE for bucket in self.buckets)

    @property
    def has_changed(self) -> bool:
        """Whether other records lie where some were read."""
        return any(bucket.difference is Difference.CHANGED for bucket in self.buckets)

    @property
    def has_gone(self) -> bool:
        """Whether records are gone that were read."""
        return any(bucket.gone for bucket in self.buckets)

    @property
    def is_another_log(self) -> bool:
        """Whether nothing that was read is there, and other records are in its place."""
        has_others = any(bucket.difference is Difference.CHANGED or bucket.missed for bucket in self.buckets)
        return has_others and not any(bucket.there for bucket in self.buckets)

    def gone_of(self, partition: int, shift: int) -> dict[int, int]:
        """The gone positions of a partition, by bucket of edges that are as far apart as its own or farther."""
        found: dict[int, int] = {}
        for one in self.buckets:
            if one.partition == partition and one.gone:
                number = one.number >> (shift - one.shift)
                found[number] = found.get(number, 0) + one.gone
        return found

    def of_input(self, number: int) -> Compared:
        """The buckets of one input of a union."""
        return Compared(tuple(one for one in self.buckets if one.partition // BLOCK == number))


def compared(
    then: Reading,
    now: Found,
    ends: Mapping[int, int],
    *,
    by_arrival: bool = True,
    trusted_from: Mapping[int, int] | None = None,
) -> Compared:
    """Compare what was read with what is there now.

    `ends`: up to where this run reads; a bucket that it does not read whole is left out. `by_arrival`: whether
    positions have arrivals of one kind then and now; else only their number is compared. `trusted_from`: by partition
    the offset from which on the identity proves that all is there.
    """
    trusted = trusted_from or {}
    found = []
    for number, partition in then.partitions.items():
        own = _of_partition(number, partition, now.get(number, {}), ends.get(number), by_arrival=by_arrival)
        found += [_trusting(one, partition, trusted.get(number)) for one in own]
    return Compared(tuple(found))


def _trusting(one: BucketCompared, then: PartitionReading, start: int | None) -> BucketCompared:
    if start is None or one.number << one.shift < start:
        return one
    before = then.positions.at(one.shift).by_number.get(one.number, Bucket())
    return replace(one, difference=Difference.SAME, gone=before.gone, missed=0, there=True)


def _of_partition(
    number: int, then: PartitionReading, now: Mapping[Zone, Buckets], end: int | None, *, by_arrival: bool
) -> list[BucketCompared]:
    read, missed, unusable = (now.get(zone, Buckets.none()) for zone in (Zone.READ, Zone.MISSED, Zone.UNUSABLE))
    shift = max(then.shift, read.shift, missed.shift, unusable.shift)
    before, there, late, without = (one.at(shift).by_number for one in (then.positions, read, missed, unusable))
    found = []
    for bucket in sorted(before.keys() | there.keys() | late.keys()):
        if end is not None and end < min(then.end, (bucket + 1) << shift):
            continue
        own = (before.get(bucket, Bucket()), there.get(bucket, Bucket()), late.get(bucket, Bucket()))
        own = (*own, without.get(bucket, Bucket()).count)
        found.append(_of_bucket((number, shift, bucket), *own, by_arrival=by_arrival))
    return found


def _of_bucket(
    place: tuple[int, int, int], then: Bucket, now: Bucket, late: Bucket, unusable: int, *, by_arrival: bool
) -> BucketCompared:
    gone = max(0, then.count + then.gone - now.count - unusable)
    is_same = now.has_positions_of(then) if by_arrival else now.count == then.count
    if is_same:
        difference, gone = Difference.MORE if late.count else Difference.SAME, then.gone
    elif now.count + unusable < then.count and (now.arrived_within(then) or not by_arrival):
        difference = Difference.MORE if late.count else Difference.GONE
    elif now.count + unusable > then.count:
        difference = Difference.MORE
    else:
        difference = Difference.CHANGED
    there = bool(now.count) and difference is not Difference.CHANGED
    return BucketCompared(*place, difference, gone, late.count, there)


def read_again(then: Reading, now: Found, ends: Mapping[int, int], compared_: Compared) -> dict[int, PartitionReading]:
    """The partitions of a reading once the whole history was read again: what is there, and what is gone since.

    Event times of gone records stay in their bucket's. A partition that has lost all of its records stays.
    """
    most = most_buckets(len(ends))
    found = {}
    for number in sorted(then.partitions.keys() | ends.keys()):
        positions, before = all_of(now.get(number, {})), then.partitions.get(number)
        if before is not None:
            shift = max(before.shift, positions.shift)
            gone = compared_.gone_of(number, shift)
            positions = _with_gone(positions.at(shift), before.positions.at(shift), gone)
        end = ends.get(number, 0 if before is None else before.end)
        found[number] = PartitionReading.of(end, positions.fitted(most))
    return found


def _with_gone(now: Buckets, then: Buckets, gone: Mapping[int, int]) -> Buckets:
    buckets = dict(now.by_number)
    for number, count in gone.items():
        own, before = buckets.get(number, Bucket()), then.by_number.get(number, Bucket())
        times = own.joined(before)
        buckets[number] = replace(own, gone=count, first_time=times.first_time, last_time=times.last_time)
    return Buckets(now.shift, buckets)
