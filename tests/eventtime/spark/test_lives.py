"""Which archived batches are of the life that the query has now: told from the batches, never from their numbers."""

from __future__ import annotations

import json

from spark_jobs.eventtime.spark.checkpoint import Checkpoint, read_checkpoint
from spark_jobs.eventtime.spark.lives import first_of_another_life, of_this_life, unproven_in

SETTINGS = {"spark.sql.shuffle.partitions": "2"}


def life(*batches: tuple[int, int], commits: int | None = None, conf: dict[str, str] | None = None) -> Checkpoint:
    """Batches of one partition: number and end offset. Batch N is planned at 1000 + its end offset."""
    files = []
    for number, end in batches:
        metadata = {"batchWatermarkMs": 0, "batchTimestampMs": 1000 + end, "conf": conf or SETTINGS}
        files.append((f"offsets/{number}", f'v1\n{json.dumps(metadata)}\n{{"orders":{{"0":{end}}}}}'))
        if commits is None or number <= commits:
            files.append((f"commits/{number}", f'v1\n{{"nextBatchWatermarkMs":{end}}}'))
    return read_checkpoint(files)


def used(archived: Checkpoint, now: Checkpoint) -> list[int]:
    return list(of_this_life(archived, now).offsets)


OLD = life(*((n, 10 * n) for n in range(10)))


def test_an_archive_of_one_life_is_used_as_a_whole() -> None:
    now = life(*((n, 10 * n) for n in range(7, 15)), conf={**SETTINGS, "spark.sql.ansi.enabled": "true"})
    assert used(OLD, now) == list(range(10))
    assert first_of_another_life(OLD, now) is None
    assert unproven_in(OLD, now) is None


def test_a_clock_that_went_back_within_a_life_proves_no_other_one() -> None:
    archived = life((0, 5), (1, 30), (2, 20), (3, 40))
    assert unproven_in(archived, life((2, 20), (3, 40), (4, 50))) is None


def test_the_first_batch_that_differs_begins_another_life() -> None:
    now = life((4, 40), (5, 50), (6, 61), (7, 72))
    assert first_of_another_life(OLD, now) == 6
    assert used(OLD, now) == list(range(6)), "8 and 9 are of the life that was given up, too"
    assert unproven_in(OLD, now) is None


def test_batches_above_the_last_commit_are_not_used() -> None:
    assert used(OLD, life(*((n, 10 * n) for n in range(6)))) == list(range(6))
    pending = life(*((n, 10 * n) for n in range(7)), commits=5)
    assert used(OLD, pending) == list(range(6)), "batch 6 is planned, and runs again"
    assert 6 not in of_this_life(OLD, pending).commits


def test_another_commit_or_another_time_of_the_same_offsets_is_another_batch() -> None:
    other = read_checkpoint([("offsets/5", _offsets(OLD, 5)), ("commits/5", 'v1\n{"nextBatchWatermarkMs":7}')])
    assert first_of_another_life(OLD, other) == 5


def _offsets(of: Checkpoint, number: int) -> str:
    entry = of.offsets[number]
    metadata = {"batchWatermarkMs": entry.watermark, "batchTimestampMs": entry.timestamp, "conf": dict(entry.conf)}
    return f'v1\n{json.dumps(metadata)}\n{{"orders":{{"0":{10 * number}}}}}'


def test_where_the_first_batch_differs_nothing_before_it_is_proven() -> None:
    found = unproven_in(OLD, life((8, 75), (9, 85)))
    assert found is not None
    assert found.number == 0
    assert "batch 8 is another one" in found.why


def test_batches_that_meet_without_a_common_one_prove_nothing() -> None:
    found = unproven_in(OLD, life((10, 100), (11, 110)))
    assert found is not None
    assert found.number == 9


def test_a_batch_that_begins_before_the_end_of_an_archived_one_is_of_another_life() -> None:
    found = unproven_in(OLD, life((15, 80), (16, 90)))
    assert found is not None
    assert found.number == 0
    assert "batch 15 begins before the end of the archived batch 9" in found.why


def test_a_gap_between_batches_that_can_follow_each_other_is_only_a_gap() -> None:
    assert unproven_in(OLD, life((15, 150))) is None
    assert used(OLD, life((15, 150))) == list(range(10))


def test_a_checkpoint_from_batch_0_on_needs_no_proof() -> None:
    assert unproven_in(OLD, life((0, 5), (1, 10))) is None
    assert first_of_another_life(OLD, life((0, 5), (1, 10))) == 0
