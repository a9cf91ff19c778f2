"""The stages of a run, as data: its plan gives one list, and `spark_jobs.runs.work.evaluation` carries stages out.

The command line carries out the whole list in its process. In Airflow `applications_of` shares it out among Spark
applications, each of which is told the name of the stage that it begins with. No Spark in this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.runs.life.status import Stage


@dataclass(frozen=True, slots=True)
class Begin:
    """The run enters the ledger with a new attempt, and its first documents are written."""

    name: ClassVar[Stage] = Stage.PLAN
    in_words: ClassVar[str] = "enter the run into the ledger"


@dataclass(frozen=True, slots=True)
class MakeTimeline:
    """The timeline is made and kept; records that cannot be used are staged."""

    name: ClassVar[Stage] = Stage.TIMELINE
    in_words: ClassVar[str] = "set aside the records that cannot be used; where lateness counts, make the timeline"


@dataclass(frozen=True, slots=True)
class ReplayChunk:
    """The windows and late records of one chunk are staged. `number` counts from 1; `chunk` is by window start."""

    name: ClassVar[Stage] = Stage.REPLAY
    number: int
    chunk: TimeRange

    @property
    def in_words(self) -> str:
        return f"stage chunk {self.number}: windows from {_described(self.chunk)}"

    @property
    def label(self) -> str:
        """The chunk in few words: 2: 2024-03-04T00:00:00Z to 2024-03-05T00:00:00Z."""
        return f"{self.number}: {_described(self.chunk)}"


@dataclass(frozen=True, slots=True)
class ReplayTouched:
    """A night's windows are staged: all that start in `recent`, and of those before the ones that new records touch.

    `older` spans the starts of those before; None: none is touched.
    """

    name: ClassVar[Stage] = Stage.REPLAY
    recent: TimeRange
    older: TimeRange | None

    @property
    def in_words(self) -> str:
        older = f", and touched ones from {_described(self.older)}" if self.older else ""
        return f"stage the windows from {_described(self.recent)}{older}"


@dataclass(frozen=True, slots=True)
class CompareLive:
    """The live job's windows are judged."""

    name: ClassVar[Stage] = Stage.COMPARE
    in_words: ClassVar[str] = "judge what the live job emitted"


@dataclass(frozen=True, slots=True)
class Verify:
    """What is staged is compared with what is published, and the gate is asked; policy and gate say what is next."""

    name: ClassVar[Stage] = Stage.VERIFY
    in_words: ClassVar[str] = "compare with what is published, check the expectations"


@dataclass(frozen=True, slots=True)
class Publish:
    """What is staged is published in one commit.

    Right after `Verify` only where policy and gate let it. `reason` and `person`: why it is published all the same, and
    who says so.
    """

    name: ClassVar[Stage] = Stage.PUBLISH
    reason: str = ""
    person: str = ""
    in_words: ClassVar[str] = "publish in one commit, where policy and gate let it"


@dataclass(frozen=True, slots=True)
class Deliver:
    """Readers of the live job's output get what a published run has changed; of a run that waits it is counted."""

    name: ClassVar[Stage] = Stage.CORRECT
    in_words: ClassVar[str] = "deliver corrections to the readers of the live job's output"


RunStage = Begin | MakeTimeline | ReplayChunk | ReplayTouched | CompareLive | Verify | Publish | Deliver

ONE_APPLICATION_MAX_RECORDS = 1_000_000
"""Up to so many records the application that plans a run goes on with it.

Another JVM's start would cost more. Chunks are applications of their own where somebody chose more than one.
"""


_LISTED = 12
"""So many chunks are listed one by one."""


def stages_of(
    pipeline: Pipeline, replay: Sequence[ReplayChunk | ReplayTouched], *, publishes: bool = True
) -> tuple[RunStage, ...]:
    """All stages of a run that stages its windows by `replay`. `publishes`: False for one that only compares."""
    compare = (CompareLive(),) if pipeline.live is not None else ()
    deliver = (Deliver(),) if pipeline.corrections is not None else ()
    ending = (Publish(), *deliver) if publishes else ()
    return (Begin(), MakeTimeline(), *replay, *compare, Verify(), *ending)


def chunk_stages(chunks: Iterable[TimeRange]) -> tuple[ReplayChunk, ...]:
    """A stage for each chunk, numbered from 1."""
    return tuple(ReplayChunk(number, chunk) for number, chunk in enumerate(chunks, 1))


def applications_of(stages: Sequence[RunStage], records: int) -> tuple[tuple[RunStage, ...], ...]:
    """The stages of a run of so many records, by Spark application; the first one has planned the run.

    Chunks are applications side by side, and what follows `Verify` is of its application.
    """
    is_small = records <= ONE_APPLICATION_MAX_RECORDS
    first = sum(isinstance(stage, Begin | MakeTimeline) for stage in stages) if is_small else 1
    if is_small and sum(isinstance(stage, ReplayChunk) for stage in stages) <= 1:
        first = len(stages)
    ends = next((at for at, stage in enumerate(stages) if isinstance(stage, Verify)), len(stages))
    single = tuple((stage,) for stage in stages[first:ends])
    last = tuple(stages[max(first, ends) :])
    return tuple(group for group in (tuple(stages[:first]), *single, last) if group)


def from_stage(stages: Sequence[RunStage], name: Stage, chunk: int | None = None) -> tuple[RunStage, ...]:
    """The stages of an application that begins with the one of that name; none where the run has no such stage.

    What follows `Verify` or `Publish` is of the same application. `chunk` says which `ReplayChunk`.
    """
    for at, stage in enumerate(stages):
        if stage.name is name and (not isinstance(stage, ReplayChunk) or stage.number == chunk):
            return tuple(stages[at:]) if isinstance(stage, Verify | Publish) else (stage,)
    return ()


def in_words(stages: Sequence[RunStage]) -> list[str]:
    """A line for each stage; of many chunks one for all of them."""
    chunks = [stage for stage in stages if isinstance(stage, ReplayChunk)]
    many = ""
    if chunks:
        whole = TimeRange(chunks[0].chunk.start, chunks[-1].chunk.end)
        many = f"stage {len(chunks):,} chunks: windows from {_described(whole)}"
    lines = [many if isinstance(s, ReplayChunk) and len(chunks) > _LISTED else s.in_words for s in stages]
    return list(dict.fromkeys(lines))


def _described(span: TimeRange) -> str:
    return f"{format_instant(span.start)} to {format_instant(span.end)}"
