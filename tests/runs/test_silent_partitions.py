"""What a night knows of a partition that has no new record."""

from __future__ import annotations

from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.runs.night.affected import PreviousRun, merged
from spark_jobs.runs.night.reading import Reading
from spark_jobs.sources import Inspection, PartitionRange


def before(**state: object) -> PreviousRun:
    timeline = InMemoryTimeline.__new__(InMemoryTimeline)
    return PreviousRun("r", {0: 10, 1: 10}, 5000, dict(state), timeline, 20, Reading((), {}, {}, ""))


def news(*partitions: PartitionRange) -> Inspection:
    return Inspection(partitions, sum(p.records for p in partitions), 0, 0, None)


def test_a_silent_partition_keeps_its_last_arrival() -> None:
    known = before(last_arrivals={"0": 5000, "1": 1000})
    # A topic's partitions are all there, with and without new records; of files only those with new ones.
    for seen in (
        news(PartitionRange(0, 10, 10, None, None, 0), PartitionRange(1, 10, 12, 2000, 3000, 2)),
        news(PartitionRange(1, 10, 12, 2000, 3000, 2)),
    ):
        silent, other = merged(known, seen)
        assert (silent.end_offset, silent.last_arrival, silent.records) == (10, 5000, 0)
        assert (other.end_offset, other.last_arrival, other.records) == (12, 3000, 2)


def test_a_partition_that_never_had_a_record_has_no_last_arrival() -> None:
    silent, _ = merged(before(last_arrivals={"1": 1000}), news(PartitionRange(1, 10, 12, 2000, 3000, 2)))
    assert silent.last_arrival is None
