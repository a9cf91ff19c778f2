"""Histories as sources: what a source skips is old."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.sources import open_history, source_of
from tests.sources.conftest import MakePipeline, position, records, write_log


@pytest.mark.parametrize(
    ("as_of", "changes", "expected"),
    [
        ({0: 2, 1: 2}, {}, [(0, 2), (1, 2), (7, 0)]),
        ({0: 2, 1: 1}, {}, [(0, 1), (0, 2), (1, 1), (1, 2), (7, 0)]),
        ({}, {}, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (7, 0)]),
        ({0: 2, 1: 2}, {"going_back": "running_maximum"}, [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (7, 0)]),
        ({0: 2, 7: 1}, {}, [(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]),
    ],
)
def test_a_source_skips_only_records_below_the_end_offsets(
    spark, tmp_path: Path, pipeline: MakePipeline, as_of: dict[int, int], changes: dict[str, str], expected: list
) -> None:
    """The filter is the lowest end offset; unknown partitions stay whole. `arrived_since` leaves out the rest."""
    path = write_log(tmp_path / "a.parquet", records(*((p, o, o) for p in (0, 1) for o in range(3)), (7, 0, 0)))
    definition = pipeline(path, history={"position": position(**changes)})
    frame = source_of(spark, definition).since(open_history(spark, definition), as_of)
    assert sorted((row.partition, row.offset) for row in frame.collect()) == expected
