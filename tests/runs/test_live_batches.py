"""Which batches of a live query a run replays: a function of the end offsets, whatever the query has run since."""

from __future__ import annotations

from spark_jobs.eventtime.spark.batches import Batch, BatchKind, BatchLog, OffsetRanges
from spark_jobs.runs.planning.live_batches import LiveBatches

#   batch        0     1     2 (no data)   3
#   planned at   10    20    30            40
#   partition 0  [0,2) [2,5)               [5,6)
#   partition 1  [0,1)       .             [1,4)
ALL = LiveBatches(
    BatchLog.of(Batch(i, BatchKind.COMMITTED, 10 * (i + 1), 0, 0) for i in range(4)),
    {0: OffsetRanges.of((0, 2, 5), (2, 5, 6), (0, 1, 3)), 1: OffsetRanges.of((0, 1), (1, 4), (0, 3))},
    allow_multiple=True,
)


def numbers(batches: LiveBatches) -> list[int]:
    return [batch.number for batch in batches.batches]


def test_the_batches_end_where_the_as_of_vector_does() -> None:
    assert numbers(ALL.up_to({0: 6, 1: 4})) == [0, 1, 2, 3]
    assert numbers(ALL.up_to({0: 5, 1: 1})) == [0, 1, 2]
    assert numbers(ALL.up_to({0: 2, 1: 1})) == [0]


def test_an_as_of_vector_between_two_ends_goes_back_to_where_a_batch_ends() -> None:
    chosen = ALL.up_to({0: 5, 1: 3})
    assert numbers(chosen) == [0, 1, 2]
    assert chosen.ends == {0: 5, 1: 1}


def test_a_batch_without_data_that_was_planned_later_is_not_of_the_run() -> None:
    assert numbers(ALL.up_to({0: 5, 1: 1}, until=20)) == [0, 1]
    chosen = ALL.up_to({0: 5, 1: 1})
    assert chosen.planned_until == 30
    assert numbers(ALL.up_to(chosen.ends, until=chosen.planned_until)) == numbers(chosen)


def test_the_arrays_have_what_the_chosen_batches_have_read() -> None:
    arrays = ALL.up_to({0: 5, 1: 1}).as_arrays()
    assert arrays.numbers.tolist() == [0, 1, 2]
    assert sorted(zip(arrays.partition.tolist(), arrays.start.tolist(), arrays.end.tolist(), strict=True)) == [
        (0, 0, 2),
        (0, 2, 5),
        (1, 0, 1),
    ]
