"""The list of a run's stages, and how it is shared out among Spark applications."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.runs.life.status import Stage
from spark_jobs.runs.work.stages import (
    ONE_APPLICATION_MAX_RECORDS,
    Begin,
    ReplayChunk,
    ReplayTouched,
    applications_of,
    chunk_stages,
    from_stage,
    in_words,
    stages_of,
)
from tests.runs.small_runs import pipeline

HOUR = 3_600_000
BIG = ONE_APPLICATION_MAX_RECORDS + 1
REPO = Path(__file__).parents[2]


def chunks(count: int) -> tuple[ReplayChunk, ...]:
    return chunk_stages([TimeRange(n * HOUR, (n + 1) * HOUR) for n in range(count)])


@pytest.fixture
def plain(tmp_path: Path) -> Pipeline:
    return pipeline(tmp_path, "plain")


def names(stages) -> list[str]:
    return [stage.name.value for stage in stages]


def test_the_list_has_what_the_definition_asks_for(plain: Pipeline) -> None:
    assert names(stages_of(plain, chunks(2))) == ["plan", "timeline", "replay", "replay", "verify", "publish"]
    live = load_pipeline(REPO / "dags/pipelines/departures_hourly.yaml")
    assert "compare" in names(stages_of(live, chunks(1)))
    assert names(stages_of(plain, chunks(1), publishes=False))[-1] == "verify", "a dry run publishes nothing"


@pytest.mark.parametrize(
    ("count", "records", "applications"),
    [
        (1, 10, [["plan", "timeline", "replay", "verify", "publish"]]),
        (2, 10, [["plan", "timeline"], ["replay"], ["replay"], ["verify", "publish"]]),
        (1, BIG, [["plan"], ["timeline"], ["replay"], ["verify", "publish"]]),
    ],
)
def test_the_plan_decides_how_many_applications_a_run_takes(
    plain: Pipeline, count: int, records: int, applications: list[list[str]]
) -> None:
    stages = stages_of(plain, chunks(count))
    shared = applications_of(stages, records)
    assert [names(one) for one in shared] == applications
    assert tuple(stage for one in shared for stage in one) == stages, "each stage once, in order"
    for one in shared[1:]:
        chunk = one[0].number if isinstance(one[0], ReplayChunk) else None
        assert from_stage(stages, one[0].name, chunk) == one, "an application is found by the name that it begins with"


def test_a_stage_that_the_run_does_not_have_is_none(plain: Pipeline) -> None:
    stages = stages_of(plain, chunks(2))
    assert from_stage(stages, Stage.REPLAY, 3) == ()
    assert from_stage(stages, Stage.COMPARE) == ()
    assert names(from_stage(stages, Stage.PUBLISH)) == ["publish"]


def test_many_chunks_are_one_line_and_a_night_says_what_it_touches(plain: Pipeline) -> None:
    lines = in_words(stages_of(plain, chunks(100)))
    assert "stage 100 chunks: windows from 1970-01-01T00:00:00Z to 1970-01-05T04:00:00Z" in lines and len(lines) == 5
    night = ReplayTouched(TimeRange(5 * HOUR, 6 * HOUR), TimeRange(0, HOUR))
    said = in_words([Begin(), night])[1]
    assert said == (
        "stage the windows from 1970-01-01T05:00:00Z to 1970-01-01T06:00:00Z, and touched ones from "
        "1970-01-01T00:00:00Z to 1970-01-01T01:00:00Z"
    )
