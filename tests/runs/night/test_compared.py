"""A reading beside what is there now: by bucket, and of generated logs against sets of positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.identities import Identity
from spark_jobs.positions import Bucket, Buckets, Found, Known, all_of
from spark_jobs.runs.night.compared import Compared, Difference, compared, read_again
from spark_jobs.runs.night.reading import PartitionReading, Reading, grown, overlapping_joined
from spark_jobs.sources.scan import Positions


@dataclass(frozen=True, slots=True)
class Place:
    """A record of partition 0."""

    offset: int
    arrival: int

    @property
    def hash(self) -> int:
        return hash(("position", self.offset, self.arrival)) >> 1


def found(places: Iterable[Place], known: Known | None = None) -> Found:
    """What a scan finds of these records; their event time is their offset."""
    there = sorted(places, key=lambda place: place.offset)
    positions = Positions(known)
    if there:
        offsets = np.array([p.offset for p in there], dtype=np.int64)
        arrivals = np.array([p.arrival for p in there], dtype=np.int64)
        positions.add(offsets, arrivals, np.array([p.hash for p in there], dtype=np.int64), offsets)
    return {0: dict(positions.zones)}


def empty_below(places: Iterable[Place], end: int) -> tuple[tuple[int, int], ...]:
    there = {place.offset for place in places}
    return tuple((n, n + 1) for n in range(end) if n not in there)


def reading(places: Iterable[Place], end: int, most: int = 8) -> Reading:
    places = list(places)
    buckets = all_of(found(places)[0]).fitted(most)
    partitions = {0: PartitionReading.of(end, buckets)}
    return Reading((Identity(),), partitions, {0: empty_below(places, end)}, "placed")


def beside(then: Reading, now: Iterable[Place]) -> Compared:
    return compared(then, found(now, then.known[0]), {})


LOG = [Place(n, 1000 + n) for n in range(32)]
"""   offsets 0 .. 31 in eight buckets of four"""


def test_what_is_as_it_was_is_the_same() -> None:
    one = beside(reading(LOG, 32), [*LOG, Place(32, 1032)])
    assert {bucket.difference for bucket in one.buckets} == {Difference.SAME}
    assert not (one.has_gone or one.has_more or one.has_changed or one.is_another_log)


def test_gone_positions_are_counted_where_they_were() -> None:
    one = beside(reading(LOG, 32), LOG[6:])
    assert [bucket.gone for bucket in one.buckets] == [4, 2, 0, 0, 0, 0, 0, 0]
    assert not (one.has_more or one.has_changed or one.is_another_log)


def test_a_record_that_came_late_is_told_from_one_that_is_gone() -> None:
    """As many come as go: a count alone would say that nothing has happened."""
    one = beside(reading([*LOG[:5], *LOG[6:]], 32), [*LOG[:6], *LOG[7:]])
    assert [(bucket.gone, bucket.missed) for bucket in one.buckets][1] == (1, 1) and one.has_more and one.has_gone


def test_another_arrival_is_a_change_and_nothing_is_gone() -> None:
    one = beside(reading(LOG, 32), [*LOG[:5], Place(5, 7), *LOG[6:]])
    assert one.has_changed and not one.has_gone
    assert not one.is_another_log


def test_other_records_at_the_same_offsets_are_another_log() -> None:
    others = [Place(n, 90_000 + n) for n in range(10)]
    assert beside(reading(LOG, 32), others).is_another_log
    assert not beside(reading(LOG, 32), []).is_another_log  # all of it is gone
    assert not beside(reading(LOG, 32), [*LOG[:20], *(Place(n, 90_000) for n in range(20, 32))]).is_another_log


def test_what_is_gone_stays_gone_and_comes_back() -> None:
    then = reading(LOG, 32)
    now = found(LOG[6:], then.known[0])
    once = compared(then, now, {})
    lost = Reading(then.identities, read_again(then, now, {0: 32}, once), then.empty, "placed")
    assert lost.gone == 6 and set(lost.gone_spans()) == {(TimeRange(0, 4), 4), (TimeRange(4, 8), 2)}
    again = beside(lost, LOG[6:])
    assert sum(bucket.gone for bucket in again.buckets) == 6 and not again.has_changed
    back = beside(lost, LOG)
    assert back.has_more and not back.has_gone


def test_spans_that_overlap_are_one() -> None:
    spans = [(TimeRange(5, 9), 1), (TimeRange(0, 3), 2), (TimeRange(2, 4), 3)]
    assert overlapping_joined(spans) == [(TimeRange(0, 4), 5), (TimeRange(5, 9), 1)]


def test_a_reading_is_read_back_as_it_was_written() -> None:
    one = reading(LOG, 32)
    assert Reading.from_json(one.to_json()) == one


offsets = st.sets(st.integers(0, 300), max_size=60)


@given(offsets, offsets, offsets, st.integers(1, 64), st.randoms())
def test_gone_and_missed_are_those_of_the_sets_of_positions(was, gone, late, most, random) -> None:
    then = {Place(n, n) for n in was}
    end = max(was, default=-1) + 1
    now = {p for p in then if p.offset not in gone} | {Place(n, n) for n in late if n < end and n not in was}
    shuffled = list(now)
    random.shuffle(shuffled)
    one = beside(reading(then, end, most), shuffled)
    assert sum(bucket.gone for bucket in one.buckets) == len(then - now)
    assert one.missed == len(now - then)
    assert (one.has_gone, one.has_more) == (bool(then - now), bool(now - then))


@given(offsets, st.integers(0, 300), st.integers(1, 64))
def test_nights_give_the_reading_of_one_run(was, cut, most) -> None:
    places = [Place(n, n) for n in sorted(was)]
    first, later = [p for p in places if p.offset < cut], [p for p in places if p.offset >= cut]
    end = max([cut, *(p.offset + 1 for p in places)])
    known = Known(cut)
    one = grown(reading(first, cut, most), (Identity(),), {0: end}, found(later, known), empty=None, lacks=False)
    whole = reading(places, end, most)
    shift = max(one.partitions[0].shift, whole.partitions[0].shift)
    assert one.partitions[0].positions.at(shift).by_number == whole.partitions[0].positions.at(shift).by_number
    assert one.ends == whole.ends


def test_buckets_are_joined_at_the_wider_edges() -> None:
    narrow, wide = Buckets(0, {3: Bucket(1, 5)}), Buckets(2, {0: Bucket(2, 9)})
    assert narrow.joined(wide).by_number == {0: Bucket(3, 12)}
