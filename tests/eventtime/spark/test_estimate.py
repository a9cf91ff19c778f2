"""Batches in the place of those that nobody has kept."""

from __future__ import annotations

import json

import numpy as np

from spark_jobs.eventtime.spark.batches import Partition, batches_of
from spark_jobs.eventtime.spark.checkpoint import Checkpoint, read_checkpoint
from spark_jobs.eventtime.spark.estimate import Ticks, gaps_of, with_batches


def checkpoint(entries: dict[int, tuple[int, int, int]]) -> Checkpoint:
    """A checkpoint with these batches: watermark, time, end offset; each batch is committed."""
    files = {"sources/0/0": '\0v1\n{"t":{"0":0}}'}
    for number, (watermark, time, end) in entries.items():
        metadata = {"batchWatermarkMs": watermark, "batchTimestampMs": time, "conf": {}}
        files[f"offsets/{number}"] = f'v1\n{json.dumps(metadata)}\n{{"t":{{"0":{end}}}}}'
        files[f"commits/{number}"] = f'v1\n{{"nextBatchWatermarkMs":{watermark}}}'
    return read_checkpoint(files.items())


def ticks(*rows: tuple[int, int, int]) -> Ticks:
    """Ticks with these times, end offsets and largest event times."""
    times, ends, largest = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    return Ticks(times, largest, {0: ends})


#   kept          0                 gap 1..4                5
#   time         100      200      300      400     500    700
#   read         [0,2)    [2,4)             [4,5)          [5,9)
BEFORE_AND_AFTER = {0: (10, 100, 2), 5: (70, 700, 9)}
TICKS = ticks((200, 4, 60), (400, 5, 75))


def test_a_tick_without_data_has_a_batch_where_the_watermark_has_moved() -> None:
    known = checkpoint(BEFORE_AND_AFTER)
    (gap,) = gaps_of(known, batches_of(known))
    found = batches_of(with_batches(known, gap, TICKS, "0", "t", 10, 100))
    assert not found.missing
    made = [(batch.number, batch.timestamp, batch.watermark_before, batch.watermark) for batch in found.batches]
    assert made == [
        (0, 100, 0, 10),
        (1, 200, 10, 10),
        (2, 300, 10, 50),  # without data: the watermark has moved to 60 - 10
        (3, 400, 50, 50),
        (4, 500, 50, 65),
        (5, 700, 65, 70),
    ]
    read = found.ranges[Partition("0", "t", 0)]
    assert [read.batch_of(offset) for offset in range(10)] == [0, 0, 1, 1, 3, 5, 5, 5, 5, None]


def test_a_query_without_batches_without_data_finds_late_records_by_an_older_watermark() -> None:
    known = checkpoint({0: (10, 100, 2), 3: (70, 700, 9)})
    (gap,) = gaps_of(known, batches_of(known))
    found = batches_of(with_batches(known, gap, TICKS, "0", "t", 10, 100, no_data_batches=False))
    made = [(batch.timestamp, batch.watermark_before, batch.watermark) for batch in found.batches]
    assert made == [(100, 0, 10), (200, 10, 10), (400, 10, 50), (700, 50, 70)]


def test_where_fewer_batches_ran_the_ticks_are_further_apart_and_where_more_ran_nothing_is_in_them() -> None:
    for last, read_by in ((2, 1), (3, None), (9, None)):
        known = checkpoint({0: (10, 100, 2), last: (70, 700, 9)})
        (gap,) = gaps_of(known, batches_of(known))
        found = batches_of(with_batches(known, gap, TICKS, "0", "t", 10, 100))
        assert [batch.number for batch in found.batches] == list(range(last + 1))
        batches = [found.ranges[Partition("0", "t", 0)].batch_of(offset) for offset in range(9)]
        assert None not in batches and batches == sorted(batches, key=lambda number: number or 0)
        assert read_by is None or batches[2:5] == [read_by] * 3
        watermarks = [batch.watermark for batch in found.batches]
        assert watermarks == sorted(watermarks)


def test_what_is_before_the_first_batch_is_a_gap_and_begins_without_a_watermark() -> None:
    known = checkpoint({3: (70, 700, 9)})
    (gap,) = gaps_of(known, batches_of(known))
    assert (gap.first, gap.last, gap.before) == (0, 2, None)
    found = batches_of(with_batches(known, gap, ticks((300, 6, 90)), "0", "t", 10, 100))
    assert [batch.watermark for batch in found.batches] == [0, 70, 70, 70], "never above the one that is known after it"
    assert [found.ranges[Partition("0", "t", 0)].batch_of(offset) for offset in (0, 5, 6)] == [0, 0, 3]
