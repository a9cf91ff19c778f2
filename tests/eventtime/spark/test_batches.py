"""Which batch has read a record, where the checkpoint says it, and where nobody knows."""

from __future__ import annotations

import json

import pytest

from spark_jobs.eventtime.spark.batches import Batches, BatchKind, Partition, batches_of
from spark_jobs.eventtime.spark.checkpoint import read_checkpoint
from tests.sequential.spark import batch_of_offset

TOPIC = Partition("0", "t", 0)


def checkpoint(
    ends: dict[int, int], *, first: int = 0, watermarks: dict[int, int] | None = None, committed: int = 99, **conf: dict
) -> Batches:
    files = {"sources/0/0": f'\0v1\n{{"t":{{"0":{first}}}}}'}
    for batch, end in ends.items():
        metadata = {
            "batchWatermarkMs": (watermarks or {}).get(batch, 0),
            "batchTimestampMs": conf.get("timestamps", {}).get(batch, batch),
            "conf": {"spark.sql.shuffle.partitions": conf.get("shuffle", {}).get(batch, "2")},
        }
        files[f"offsets/{batch}"] = f'v1\n{json.dumps(metadata)}\n{{"t":{{"0":{end}}}}}'
        if batch <= committed:
            files[f"commits/{batch}"] = 'v1\n{"nextBatchWatermarkMs":0}'
    return batches_of(read_checkpoint(files.items()))


def read(batches: Batches, offsets: range) -> list[int | None]:
    return [batch_of_offset(batches, "0", "t", 0, offset) for offset in offsets]


def test_a_record_is_read_by_the_first_batch_whose_end_lies_behind_it() -> None:
    assert read(checkpoint({0: 2, 1: 2, 2: 5}), range(6)) == [0, 0, 2, 2, 2, None]


def test_a_record_before_the_first_offsets_is_in_no_batch() -> None:
    assert read(checkpoint({0: 4}, first=2), range(5)) == [None, None, 0, 0, None]


def test_without_the_batches_before_it_nobody_knows_where_the_first_one_begins() -> None:
    batches = checkpoint({7: 4, 8: 6})
    assert read(batches, range(7)) == [None, None, None, None, 8, 8, None]
    assert batches.missing == (range(7),)


def test_a_gap_is_named_and_what_was_read_in_it_is_in_no_known_batch() -> None:
    batches = checkpoint({0: 2, 3: 6, 4: 7})
    assert batches.missing == (range(1, 3),)
    assert read(batches, range(8)) == [0, 0, None, None, None, None, 4, None]


def test_late_records_are_found_by_the_watermark_of_the_batch_before() -> None:
    batches = checkpoint({0: 1, 1: 2, 2: 3}, watermarks={0: 0, 1: 10, 2: 30})
    assert [b.late_watermark(allow_multiple=True) for b in batches.batches] == [0, 0, 10]
    assert [b.late_watermark(allow_multiple=False) for b in batches.batches] == [0, 10, 30]


def test_the_last_batch_without_a_commit_is_pending() -> None:
    batches = checkpoint({0: 1, 1: 2}, committed=0)
    assert batches.pending is not None
    assert batches.pending.number == 1
    assert checkpoint({0: 1, 1: 2}).pending is None


def test_a_repartition_runs_no_query_and_its_skipped_batch_is_read_by_the_next_one() -> None:
    """Batch 1 was planned and not committed. The repartition copies batch 0; batch 3 reads on from there."""
    batches = checkpoint(
        {0: 2, 1: 5, 2: 2, 3: 6}, timestamps={0: 100, 1: 101, 2: 100, 3: 103}, shuffle={2: "4", 3: "4"}
    )
    kinds = [BatchKind.COMMITTED, BatchKind.SKIPPED, BatchKind.CONTROL, BatchKind.COMMITTED]
    assert [batch.kind for batch in batches.batches] == kinds
    assert read(batches, range(7)) == [0, 0, 3, 3, 3, 3, None]


def test_a_topic_that_was_deleted_and_begins_anew_gives_no_record_twice() -> None:
    assert read(checkpoint({0: 5, 1: 2, 2: 7}), range(8)) == [0, 0, 0, 0, 0, 2, 2, None]


@pytest.mark.parametrize("offset", [0, 3])
def test_an_unknown_partition_has_no_batch(offset: int) -> None:
    assert batch_of_offset(checkpoint({0: 5}), "0", "t", 1, offset) is None
