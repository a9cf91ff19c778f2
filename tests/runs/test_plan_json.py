"""A plan as JSON, which people can edit: it is read as what it was, or refused with the field that is wrong."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.definition.mode import Mode
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.identities import Identity, LastRecord
from spark_jobs.positions import Bucket
from spark_jobs.runs.night.reading import PartitionReading, Reading
from spark_jobs.runs.planning.plan import plan_from_json
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.sources import OffsetRange, PartitionRange, PinnedFile, PinnedTopic

PLAN = Plan(
    pipeline="p",
    definition_hash="h",
    source="files",
    partition_columns=("day",),
    mode=Mode.BOTH,
    span=TimeRange(0, 60_000),
    is_whole=True,
    chunks=(TimeRange(0, 60_000),),
    event_times=TimeRange(0, 59_000),
    partitions=(PartitionRange(0, 0, 5, 1, 2, 5), PartitionRange(1, 0, 0, None, None, 0)),
    processing_time_end=2,
    pinned=(PinnedFile("/a", 1, 2),),
    topic=PinnedTopic("t", "id", "append_time", (OffsetRange(0, 0, 5),)),
    cuts=False,
    records=5,
    quarantined=0,
    missing_event_times=0,
    window_ends=1,
    fidelity="log_order",
    fidelity_reasons=(),
    watermark="w",
    warnings=("one",),
    history_records=5,
    reading=Reading(
        (Identity(topic_id="id", starts={0: 0}, last_records={0: LastRecord(4, -7)}),),
        {0: PartitionReading(5, 1, {0: Bucket(2, -3, 1, 2, 3, 4), 2: Bucket(1, 9, gone=1)})},
        {0: ((2, 4),)},
        "positions",
    ),
)


def test_a_plan_reads_back_as_it_was() -> None:
    for plan in (
        PLAN,
        PLAN.model_copy(update={"topic": None, "pinned": (), "window_ends": None, "history_records": 7}),
    ):
        assert plan_from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"is_whole": "yes"}, "is_whole"),
        ({"mode": "nonsense"}, "mode"),
        ({"records": "5"}, "records"),
        ({"partitions": [{**json.loads(PLAN.to_json())["partitions"][0], "end_offset": "5; DROP"}]}, "end_offset"),
        ({"partitions": [{**json.loads(PLAN.to_json())["partitions"][0], "end_offset": 2**63}]}, "offsets"),
        ({"partitions": [json.loads(PLAN.to_json())["partitions"][0]] * 2}, "twice"),
        ({"processing_time_end": 10**30}, "no time"),
        ({"span": {"start": 0}}, "span.end"),
        ({"more": 1}, "unknown field 'more'"),
        ({"chunks": "all"}, "chunks"),
    ],
)
def test_an_edited_plan_is_refused_with_the_field(change, named) -> None:
    with pytest.raises(DefinitionError, match="not a plan") as refused:
        plan_from_json(json.dumps(json.loads(PLAN.to_json()) | change))
    assert named in str(refused.value) and "rewindow plan" in refused.value.hint


@pytest.mark.parametrize("text", ["[" * 100_000, '{"span":' * 5_000, "", "null", "[]", "\x00", '"\ud800"', "{"])
def test_what_is_no_plan_at_all_is_refused(text) -> None:
    with pytest.raises(DefinitionError, match="not a plan"):
        plan_from_json(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(json.loads(PLAN.to_json()))), json_values, st.booleans())
def test_any_value_in_any_field_is_read_as_its_type_or_refused(field, value, is_missing) -> None:
    data = json.loads(PLAN.to_json()) | {field: value}
    if is_missing:
        del data[field]
    try:
        plan = plan_from_json(json.dumps(data))
    except DefinitionError:
        return
    assert plan_from_json(plan.to_json()) == plan
