"""A plan says which partition has fallen silent, since when, and what it holds back."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.pins import PartitionRange
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.planning.silence import fallen_silent
from tests.runs.small_runs import BOUNDED, T0, definition_text, pipeline, record, write
from tests.sampling import first_of

HOUR = 3_600_000
TICKS = "emission: periodic, interval: 1 s, timer_start: '2020-09-13T12:26:00Z'"
WAITS = "the watermark waits there, so no window that ends later closes"


def said(defined: Pipeline, **last_arrivals: int | None) -> list[str]:
    """What is said where the partitions `p0`, `p1`, ... had their last arrivals so many ms after T0."""
    known = [
        PartitionRange(int(name[1:]), 0, 10, None, None if at is None else T0 + at, 10)
        for name, at in last_arrivals.items()
    ]
    return fallen_silent(defined, windows_of(defined), known, known)


def of(tmp_path: Path, watermark: str, **options: str) -> Pipeline:
    return load_pipeline(tmp_path / "p.yaml", text=definition_text("silence", tmp_path, watermark=watermark, **options))


def test_a_silent_partition_is_named_with_since_when_and_what_it_holds_back(tmp_path: Path) -> None:
    (one,) = said(of(tmp_path, BOUNDED), p0=0, p1=3 * HOUR)
    assert one.startswith(
        f"partition 0 has had no record since 2020-09-13T12:27:00Z, 3 h before the last arrival: {WAITS}"
    )
    assert said(of(tmp_path, BOUNDED), p0=0, p1=HOUR) == []
    assert said(of(tmp_path, BOUNDED), p0=None, p1=3 * HOUR) == []
    assert said(of(tmp_path, BOUNDED, window="window: {type: tumbling, size: 1 d}"), p0=0, p1=23 * HOUR) == []


@pytest.mark.parametrize(
    "watermark",
    first_of([f"{BOUNDED}, idleness: 1 min, {TICKS}", f"generator: time_lag, lag: 1 s, {TICKS}"]),
)
def test_one_that_holds_nothing_back_is_not_named(tmp_path: Path, watermark: str) -> None:
    assert said(of(tmp_path, watermark), p0=0, p1=3 * HOUR) == []


def test_partitions_that_share_a_generator_are_silent_together(tmp_path: Path) -> None:
    defined = of(tmp_path, f"{BOUNDED}, scope: subtask, subtasks: [[0, 1]]")
    assert said(defined, p0=0, p1=3 * HOUR) == []


def test_a_plan_warns(spark, tmp_path: Path) -> None:
    defined = pipeline(tmp_path, "silent")
    write(tmp_path / "data", [r for r in map(record, range(0, 8000, 20)) if r["p"] == 0 or r["o"] < 100])
    write(tmp_path / "data", [record(7) | {"o": 3}], "other.json")
    (warning,) = [text for text in make_plan(spark, defined).warnings if WAITS in text]
    assert warning.startswith("partition 1 has had no record since 2020-09-13T12:27:07Z, 2 h")
