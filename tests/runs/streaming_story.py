"""Random lives of a Structured Streaming query over files: what lands, its triggers, and how each start ends."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import jvm
from spark_jobs.spark.session import spark_session
from tests.runs.live_query import START, LiveQuery, Trigger, files_stream


class End(StrEnum):
    """How a start of the query ends: when all is processed, or in a batch before or after its rows are out."""

    STOPPED = "stopped"
    FAILED_BEFORE = "failed before output"
    FAILED_AFTER = "failed after output"
    KILLED_BEFORE = "killed before output"
    KILLED_AFTER = "killed after output"


KILLS = (End.KILLED_BEFORE, End.KILLED_AFTER)


@dataclass(frozen=True, slots=True)
class Start:
    """One start: what lands before it, the trigger, the files in a batch, the delay, and the end.

    It ends in the batch after `lasts` others.
    """

    files: tuple[tuple[tuple[str, int], ...], ...]
    trigger: Trigger
    at_most: int
    delay: str
    end: End
    lasts: int


@dataclass(frozen=True, slots=True)
class Story:
    """A query's life; its last start reads all that is left."""

    mode: str
    window: str
    ids: tuple[str, ...]
    starts: tuple[Start, ...]


_KINDS: list[tuple[str, str, tuple[str, ...]]] = [
    ("append", "tumbling", ()),
    ("append", "session", ()),
    ("update", "tumbling", ()),
    ("append", "tumbling", ("k", "v")),
]


def story_of(seed: int, ends: tuple[End, ...]) -> Story:
    """The story of a seed. Times go on from file to file; some records are late by up to two windows."""
    chance = random.Random(seed)
    mode, window, ids = _KINDS[seed % len(_KINDS)]
    clock, made = 0, []
    for number in range(3):
        files = []
        for _ in range(chance.randint(2, 4)):
            rows = []
            for _ in range(chance.randint(1, 6)):
                clock += chance.randint(0, 25)
                rows.append((chance.choice("abc"), max(0, clock - chance.choice([0, 0, 0, 10, 45, 100]))))
            files.append(tuple(rows))
        is_last = number == 2
        made.append(
            Start(
                tuple(files),
                Trigger.AVAILABLE_NOW if is_last else chance.choice(list(Trigger)),
                chance.randint(1, 2),
                "10 seconds" if ids else chance.choice(["0 seconds", "10 seconds", "30 seconds"]),
                End.STOPPED if is_last else chance.choice(ends),
                chance.randint(0, 2),
            )
        )
    return Story(mode, window, ids, tuple(made))


def live_through(spark: SparkSession, folder: Path, story: Story, number: int) -> LiveQuery:
    """Let the files of one start land, and run it to its end."""
    start, landing = story.starts[number], folder / "landing"
    landing.mkdir(exist_ok=True)
    for i, rows in enumerate(start.files):
        lines = [json.dumps({"k": key, "ts": START + seconds * 1000, "v": seconds}) for key, seconds in rows]
        temporary = folder / "temporary"
        temporary.write_text("".join(line + "\n" for line in lines))
        temporary.rename(landing / f"{number}-{i}.json")
    stream = files_stream(spark, landing, "json", start.delay, maxFilesPerTrigger=str(start.at_most))
    live = LiveQuery([stream], folder, story.mode, story.window, ids=story.ids)
    act = _ending(spark, start)
    point = "before" if start.end in (End.FAILED_BEFORE, End.KILLED_BEFORE) else "after"
    try:
        live.run([lambda: None], start.trigger, **{point: act})
    except StreamingQueryException as failed:
        assert _Failed.__name__ in str(failed) and start.end is not End.STOPPED
    return live


class _Failed(Exception):
    """The end of a start whose sink fails."""


def _ending(spark: SparkSession, start: Start) -> Callable[[], None]:
    batches = 0

    def act() -> None:
        nonlocal batches
        batches += 1
        if start.end is End.STOPPED or batches <= start.lasts:
            return
        if start.end in KILLS:
            os.kill(jvm(spark).java.lang.ProcessHandle.current().pid(), signal.SIGKILL)
            os._exit(9)
        raise _Failed

    return act


def in_a_process(home: str, folder: str, seed: int, number: int) -> None:
    """One start of a story whose starts are killed, in a Spark of its own."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false"}
    spark = spark_session("live query", home=Path(home), master="local[2]", conf=conf)
    live_through(spark, Path(folder), story_of(seed, KILLS), number)
    spark.stop()
