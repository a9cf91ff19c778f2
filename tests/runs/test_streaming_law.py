"""A real query lives through random triggers, failures, kills and restarts: its replay gives the rows that it gave."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.processes import run_python
from tests.runs.live_query import WINDOWS, LiveQuery, as_rows, backfilled, files_stream, over_files
from tests.runs.streaming_story import KILLS, End, Story, in_a_process, live_through, story_of
from tests.sampling import first_of, in_turn


def check(spark: SparkSession, folder: Path, live: LiveQuery, story: Story, name: str) -> None:
    more = {"deduplicate": {"by": list(story.ids)}} if story.ids else {}
    pipeline = over_files(live, folder / "landing", "json", name, WINDOWS[story.window], **more)
    last = {(row["k"], row["s"], row["e"]): row for row in live.emitted()}
    found, _, fidelity = backfilled(spark, pipeline)
    assert found == as_rows(list(last.values())) and found
    assert fidelity == "recorded"


@pytest.mark.parametrize("seed", first_of(in_turn(range(24))))
def test_the_replay_of_a_query_that_fails_and_starts_again_gives_its_rows(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    story = story_of(seed, (End.STOPPED, End.FAILED_BEFORE, End.FAILED_AFTER))
    lives = [live_through(spark, tmp_path, story, number) for number in range(len(story.starts))]
    check(spark, tmp_path, lives[-1], story, f"law_{seed}")


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_the_replay_of_a_query_whose_jvm_is_killed_gives_its_rows(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    story = story_of(seed, KILLS)
    for number, start in enumerate(story.starts):
        arguments = (str(tmp_path / "home"), str(tmp_path), seed, number)
        ended = run_python(f"from {in_a_process.__module__} import in_a_process\nin_a_process(*{arguments})")
        assert (ended.returncode == 0) == (start.end is End.STOPPED) or start.lasts, ended.stderr[-3000:]
    stream = files_stream(spark, tmp_path / "landing", "json", "10 seconds")
    live = LiveQuery([stream], tmp_path, story.mode, story.window, ids=story.ids)
    check(spark, tmp_path, live, story, f"killed_{seed}")
