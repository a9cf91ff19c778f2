"""Which offsets are read: a function of the definition and the topic's state, so no broker is needed."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from spark_jobs.definition.kafka import Topic
from spark_jobs.errors import HistoryError
from spark_jobs.pins import PinnedTopic
from spark_jobs.sources.kafka.admin import LogBounds, TopicState
from spark_jobs.sources.kafka.offsets import confirm, resolve


def topic(**fields) -> Topic:
    return Topic.model_validate({"servers": "k:9092", "topic": "t", **fields})


def state(*bounds: tuple[int, int], topic_id: str = "id", unreachable: tuple[int, ...] = (), **more) -> TopicState:
    partitions = {partition: LogBounds(*bound) for partition, bound in enumerate(bounds)}
    return TopicState(topic_id, partitions, unreachable, **{"has_append_time": True, "is_compacted": False, **more})


def first_at(offset: int | None):
    def offsets_at(partitions: Iterable[int], _: int) -> dict[int, int | None]:
        return dict.fromkeys(partitions, offset)

    return offsets_at


def ranges(pinned: PinnedTopic) -> list[tuple[int, int, int]]:
    return [(chosen.partition, chosen.start, chosen.end) for chosen in pinned.ranges]


def test_all_that_is_there_is_read_by_default_and_empty_partitions_count() -> None:
    pinned = resolve(topic(), state((0, 7), (0, 0)), first_at(None))
    assert (ranges(pinned), pinned.notes, pinned.arrival_kind) == ([(0, 0, 7), (1, 0, 0)], (), "append_time")


@pytest.mark.parametrize(
    ("fields", "at", "expected"),
    [
        ({"start": 1000}, 3, [(0, 3, 7)]),
        ({"start": 1000}, None, [(0, 7, 7)]),
        ({"end": 1000}, 3, [(0, 0, 3)]),
        ({"end": 1000}, None, [(0, 0, 7)]),
        ({"start": {0: 2}, "end": {0: 5}}, None, [(0, 2, 5)]),
    ],
)
def test_bounds_become_offsets(fields: dict, at: int | None, expected: list) -> None:
    assert ranges(resolve(topic(**fields), state((0, 7)), first_at(at))) == expected


@pytest.mark.parametrize(
    ("option", "fields", "found", "arguments", "message", "expected"),
    [
        ("lost_start", {}, state((3, 7)), {}, "begins at offset 3: retention", [(0, 3, 7)]),
        ("lost_start", {"start": {0: 1}}, state((3, 7)), {}, "begins at offset 3: retention", [(0, 3, 7)]),
        ("compacted", {}, state((0, 7), is_compacted=True), {}, "the topic is compacted", [(0, 0, 7)]),
        ("unreachable_partitions", {}, state((0, 7), unreachable=(1, 2)), {}, "partitions 1, 2 have no", [(0, 0, 7)]),
        ("new_partitions", {"start": {0: 0}}, state((0, 7), (0, 4)), {}, "does not name partition 1", [(0, 0, 7)]),
        ("new_partitions", {}, state((0, 7), (0, 4)), {"registered": [0]}, "has partition 1, which", [(0, 0, 7)]),
        ("holes", {}, state((5, 7)), {"past": {0: 2}}, "offsets 2 to 4 of partition 0 are missing", [(0, 5, 7)]),
        ("recreated_topic", {}, state((0, 7)), {"past": {0: 9}}, "and the topic ends at 7", [(0, 7, 7)]),
        ("recreated_topic", {}, state((0, 7)), {"past": {0: 1, 4: 3}}, "the table holds partition 4", [(0, 1, 7)]),
        ("recreated_topic", {}, state((0, 7)), {"past": {}, "past_topic_id": "x"}, "it was archived", [(0, 0, 7)]),
    ],
)  # fmt: skip
def test_what_is_missing_is_refused_or_accepted_and_noted(
    option: str, fields: dict, found: TopicState, arguments: dict, message: str, expected: list
) -> None:
    with pytest.raises(HistoryError, match=message) as refused:
        resolve(topic(**fields), found, first_at(None), **arguments)
    assert f"accept: [{option}]" in str(refused.value)
    accepted = resolve(topic(**fields, accept=[option]), found, first_at(None), **arguments)
    assert ranges(accepted) == expected
    assert [note for note in accepted.notes if message in note and f"accept: {option}" in note]


def test_a_past_is_followed_by_the_next_offset_and_an_as_of_vector_may_lie_in_it() -> None:
    found = state((4, 9), (0, 3))
    assert ranges(resolve(topic(), found, first_at(None), past={0: 6})) == [(0, 6, 9), (1, 0, 3)]
    assert ranges(resolve(topic(), found, first_at(None), past={0: 6}, as_of={0: 5, 1: 2})) == [(0, 5, 5), (1, 0, 2)]


def test_a_plan_stands_only_while_the_topic_has_what_it_says() -> None:
    pinned = resolve(topic(), state((0, 7)), first_at(None))
    assert confirm(topic(), state((0, 9)), pinned) == pinned
    for now, message in [
        (state((0, 9), topic_id="new"), "deleted and created again since the plan"),
        (state((2, 9)), r"offsets \[0, 2\) of partition 0 are gone since the plan"),
        (state((0, 5)), "ends at offset 5, and the plan reads to 7"),
        (state((0, 9), (0, 0)), "partition 1 was added since the plan"),
        (state(unreachable=(0,)), "partition 0 of the plan cannot be read"),
    ]:
        with pytest.raises(HistoryError, match=message):
            confirm(topic(), now, pinned)


def test_a_repartition_topic_is_purged_by_its_application() -> None:
    """Kafka Streams deletes what it has read (KIP-811): retention is not to blame, and a longer one does not help."""
    purged = topic(topic="sales-by-shop-repartition")
    with pytest.raises(HistoryError, match="its application purges what it has read") as refused:
        resolve(purged, state((3, 7)), first_at(None))
    assert "repartition.purge.interval.ms" in str(refused.value) and "retention" not in str(refused.value)
    accepted = resolve(purged.model_copy(update={"accept": ["lost_start"]}), state((3, 7)), first_at(None))
    assert "begins at offset 3: its application purges" in accepted.notes[0]
    assert resolve(purged, state((0, 7)), first_at(None)).notes == ()
