from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.sources import PartitionRange, canonical, good, inspect_history, open_history, spool
from spark_jobs.sources.scan import Kind, scan_task
from tests.sampling import first_of, sample
from tests.sources.conftest import BASE, MakePipeline, make_pipeline, payload, position, records, write_log


@pytest.fixture(autouse=True, scope="module")
def in_tasks() -> Iterator[None]:
    """Spark's tasks scan the log, as they do with large files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SMALL_BYTES", 0)
        yield


def inspect(spark, pipeline, **options):
    return inspect_history(spark, pipeline, open_history(spark, pipeline), **options)


def refusal(spark, pipeline) -> str:
    with pytest.raises(HistoryError) as refused:
        inspect(spark, pipeline)
    assert refused.value.exit_code == 5
    return f"{refused.value.what} | {refused.value.where.split(',')[0]}"


def test_the_inspection_says_what_is_there(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", [
        (0, 10, 0, "AA", payload(500)),
        (2, 0, 5, "AA", payload(100)),
        (0, 12, 20, "AA", "{"),
        (0, 15, 30, "AA", "{}"),
    ])  # fmt: skip
    found = inspect(spark, pipeline(tmp_path))
    assert found.partitions == (
        PartitionRange(0, 10, 16, BASE, BASE + 30, 3),
        PartitionRange(2, 0, 1, BASE + 5, BASE + 5, 1),
    )
    assert (found.records, found.quarantined, found.missing_event_times) == (4, 1, 1)
    assert found.event_times == TimeRange(BASE + 100, BASE + 501)


def test_a_history_without_records_has_no_event_times(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", [])
    found = inspect(spark, pipeline(tmp_path))
    assert (found.partitions, found.records, found.event_times) == ((), 0, None)


def test_an_as_of_vector_cuts_what_is_inspected(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    # The offset that is there twice lies behind the cut.
    write_log(tmp_path / "a.parquet", records((0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 2, 3), (1, 0, 0)))
    found = inspect(spark, pipeline(tmp_path), as_of={0: 2})
    assert found.partitions == (PartitionRange(0, 0, 2, BASE, BASE + 1, 2),)


ORDERLY = [(partition, offset, offset // 3 * 10) for offset in range(30) for partition in (0, 1, 2)]


@pytest.mark.parametrize(
    "layout", first_of(["one file", "a file each", "by turns", "shuffled", "row groups", "ranges reversed"])
)
def test_an_orderly_log_passes_however_its_files_are_cut(
    spark, tmp_path: Path, pipeline: MakePipeline, layout: str
) -> None:
    rows = list(ORDERLY)
    if layout == "shuffled":
        random.Random(7).shuffle(rows)
    match layout:
        case "a file each":
            parts = [rows[i : i + 1] for i in range(20)] + [rows[20:]]
        case "by turns":
            parts = [rows[i::3] for i in range(3)] + []
        case "ranges reversed":
            parts = [rows[60:], rows[30:60], rows[:30]]
        case _:
            parts = [rows]
    for number, part in enumerate(parts):
        name = tmp_path / f"{number:02}.parquet"
        write_log(name, records(*part), row_group_size=7 if layout == "row groups" else None)
    found = inspect(spark, pipeline(tmp_path))
    expected = tuple(PartitionRange(p, 0, 30, BASE, BASE + 90, 30) for p in (0, 1, 2))
    assert (found.partitions, found.records) == (expected, 90)


BROKEN = {
    "twice in one file": ([[(0, 0, 0), (0, 1, 1), (0, 1, 1)]], "offset 1 is there twice | partition 0"),
    "twice across files": ([[(0, 0, 0), (0, 1, 1)], [(0, 1, 1), (0, 2, 2)]], "offset 1 is there twice | partition 0"),
    "a file loaded twice": ([[(3, 4, 0), (3, 5, 1)]] * 2, "offset 4 is there twice | partition 3"),
    "an arrival that goes back in one file": (
        [[(1, 0, 0), (0, 7, 2000), (0, 8, 1000), (0, 9, 3000)]],
        "the arrival goes back: offset 7 arrived at 2013-01-01T10:00:02Z, offset 8 at 2013-01-01T10:00:01Z"
        " | partition 0",
    ),
    "an offset that goes back while time goes on": (
        [[(0, 0, 0), (0, 2, 1000), (0, 1, 2000), (0, 3, 3000)]],
        "the arrival goes back: offset 1 arrived at 2013-01-01T10:00:02Z, offset 2 at 2013-01-01T10:00:01Z"
        " | partition 0",
    ),
    "an arrival that goes back across files": (
        [[(0, 0, 0), (0, 1, 5000)], [(0, 2, 4000), (0, 3, 6000)]],
        "the arrival goes back: offset 1 arrived at 2013-01-01T10:00:05Z, offset 2 at 2013-01-01T10:00:04Z"
        " | partition 0",
    ),
    "between files that interleave": (
        [[(0, 0, 0), (0, 2, 2000), (0, 4, 4000)], [(0, 1, 1000), (0, 3, 1500), (0, 5, 5000)]],
        "the arrival goes back: offset 2 arrived at 2013-01-01T10:00:02Z, offset 3 at 2013-01-01T10:00:01.500Z"
        " | partition 0",
    ),
}


@pytest.mark.parametrize("case", first_of(BROKEN, 3))
def test_a_log_that_breaks_its_order_is_refused(spark, tmp_path: Path, pipeline: MakePipeline, case: str) -> None:
    files, message = BROKEN[case]
    for number, part in enumerate(files):
        write_log(tmp_path / f"{number}.parquet", records(*part))
    assert refusal(spark, pipeline(tmp_path)) == message


def runs_of_a_task(*offsets: range) -> list[tuple[int, int]]:
    """The runs that a task returns for partition 0, for records that arrive in the order of their offsets."""
    log = np.concatenate([np.array(part, dtype=np.int64) for part in offsets])
    columns = {"rw_partition": np.zeros_like(log), "rw_offset": log, "rw_arrival": log, "time": log, "hash": log}
    batch = pa.record_batch(columns)
    batches = [batch.slice(start, 700) for start in range(0, len(log), 700)]
    [answer] = scan_task(has_arrival=True, has_sequence=False)(batches)
    return [(row["first"], row["last"]) for row in answer.to_pylist() if row["kind"] == Kind.RUN]


def test_a_task_leaves_room_for_the_files_of_other_tasks() -> None:
    assert runs_of_a_task(range(1_000), range(2_000, 3_000), range(1_500, 1_600)) == [
        (0, 999), (2_000, 2_999), (1_500, 1_599),
    ]  # fmt: skip
    # Where all offsets are holes, the files are still distinguished.
    assert (9_998, 50_000) in itertools.pairwise(
        bound for run in runs_of_a_task(range(0, 10_000, 2), range(50_000, 60_000, 2)) for bound in run
    )
    assert len(runs_of_a_task(range(0, 100_000, 3))) <= 64


def test_the_refusal_is_the_same_for_shuffled_files(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    rows = [(0, offset, offset * 10) for offset in range(200)]
    rows[120] = (0, 120, 5)
    messages = set()
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        for part in range(3):
            write_log(tmp_path / str(seed) / f"{part}.parquet", records(*rows[part::3]))
        messages.add(refusal(spark, pipeline(tmp_path / str(seed))))
    assert messages == {
        "the arrival goes back: offset 119 arrived at 2013-01-01T10:00:01.190Z, offset 120 at 2013-01-01T10:00:00.005Z"
        " | partition 0"
    }


def test_the_refusal_says_how_to_fix_it(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 10), (0, 1, 5)))
    with pytest.raises(HistoryError, match="going_back: running_maximum"):
        inspect(spark, pipeline(tmp_path))


def test_the_running_maximum_counts_where_arrivals_go_back(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    rows = records((0, 0, 10), (0, 1, 5), (0, 3, 30), (0, 2, 20), (1, 0, 1))
    rows[0] = (0, 0, 10, "AA", "{")  # a malformed record has arrived too
    write_log(tmp_path / "a.parquet", rows)
    definition = pipeline(
        tmp_path,
        history={"position": position(going_back="running_maximum")},
        filter={"before_watermark": "key = 'AA'"},
    )
    assert inspect(spark, definition).partitions[0] == PartitionRange(0, 0, 4, BASE + 10, BASE + 30, 4)
    rows = good(canonical(open_history(spark, definition), definition)).orderBy("rw_partition", "rw_offset")
    assert [row.rw_arrival - BASE for row in rows.collect()] == [10, 20, 30, 1]


def test_duplicates_are_refused_under_the_running_maximum_too(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 10), (0, 0, 10)))
    definition = pipeline(tmp_path, history={"position": position(going_back="running_maximum")})
    assert refusal(spark, definition) == "offset 0 is there twice | partition 0"


def test_a_sequence_must_grow_with_the_arrival_over_all_partitions(
    spark, tmp_path: Path, pipeline: MakePipeline
) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0), (1, 1, 10), (0, 2, 10), (1, 3, 20)))
    definition = pipeline(tmp_path, history={"position": position(sequence="offset")})
    assert inspect(spark, definition).records == 4
    write_log(tmp_path / "a.parquet", records((0, 0, 0), (1, 1, 3000), (0, 2, 2000)))
    assert refusal(spark, definition).startswith(
        "the arrival goes back: sequence 1 arrived at 2013-01-01T10:00:03Z, sequence 2 at 2013-01-01T10:00:02Z"
    )
    write_log(tmp_path / "a.parquet", records((0, 0, 0), (1, 0, 0)))
    assert refusal(spark, definition).startswith("sequence 0 is there twice")


def test_without_arrivals_only_duplicates_are_noticed(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 10), (0, 1, 5)))
    definition = pipeline(tmp_path, history={"position": {"partition": "partition", "offset": "offset"}})
    assert inspect(spark, definition).partitions == (PartitionRange(0, 0, 2, None, None, 2),)
    write_log(tmp_path / "a.parquet", records((0, 0, 10), (0, 0, 5)))
    assert refusal(spark, definition) == "offset 0 is there twice | partition 0"


def test_without_a_position_nothing_is_checked(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 10), (0, 0, 5)))
    found = inspect(spark, pipeline(tmp_path, history={"position": {}}))
    assert (found.partitions, found.records, found.quarantined) == ((), 2, 0)


_LOGS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)), max_size=40, unique_by=lambda row: row[:2]
)


@settings(max_examples=sample(12, 100))
@given(rows=_LOGS, monotone=st.booleans(), cuts=st.integers(1, 4), in_driver=st.booleans())
def test_a_log_is_refused_exactly_if_a_naive_look_at_all_pairs_finds_a_break(
    spark, tmp_path_factory, rows: list, monotone: bool, cuts: int, in_driver: bool
) -> None:
    folder = tmp_path_factory.mktemp("log")
    if monotone:
        rows = [(partition, offset, offset * 7) for partition, offset, _ in rows]
    for part in range(cuts):
        write_log(folder / f"{part}.parquet", records(*rows[part::cuts]))
    broken = any(a[0] == b[0] and a[1] < b[1] and a[2] > b[2] for a in rows for b in rows)
    definition = make_pipeline(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SMALL_BYTES", 1 << 20 if in_driver else 0)
        if broken:
            refusal(spark, definition)
        else:
            assert sum(found.records for found in inspect(spark, definition).partitions) == len(rows)
