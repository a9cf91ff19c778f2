"""The face of a live job's engine towards runs: what differs from an engine that only reads its log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.live import Live
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.replay.band import Band
from spark_jobs.replay.spec import ReplaySpec

Holding = tuple[tuple[int, ...], str]
"""Partitions that hold something back while all of them are silent, and what that is."""


class Recorded(ABC):
    """What the live job has written down of its own reading, up to some point: input of a run, as end offsets are."""

    @property
    @abstractmethod
    def rules_input(self) -> object:
        """As the engine's rule book takes it (`RuleBook.of`)."""

    @property
    @abstractmethod
    def ends(self) -> dict[int, int]:
        """The end offset (exclusive) of each partition."""

    @property
    @abstractmethod
    def until(self) -> int:
        """When the live job was at that point, epoch ms: with the end offsets it says where that is."""

    @property
    def gaps(self) -> tuple[str, ...]:
        """Why the replay is approximate, for people; empty: it is not."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known of it, for people."""
        return ()

    @abstractmethod
    def goes_beyond(self, state: Mapping[str, Any]) -> bool:
        """Whether the live job has read on since a run with this timeline state."""

    @abstractmethod
    def stays_behind(self, state: Mapping[str, Any]) -> bool:
        """Whether a run with this timeline state knew more of the live job."""

    @abstractmethod
    def agrees_with(self, state: Mapping[str, Any]) -> bool:
        """Whether what a run with this timeline state knew is known to be so still."""


class LiveEngine:
    """One engine. What a method does here fits one that records nothing of its reading and waits for no partition."""

    shows_lags: ClassVar[bool] = False
    """Whether the times at which rows came out show where the live job was behind."""

    reads_backlog_at_once: ClassVar[bool] = False
    """Whether a new job reads all that is there before anything is late."""

    restarts_by_offset: ClassVar[bool] = False
    """Whether a definition says a restart by the first offset of each partition that was read after it."""

    def restart_in_definition(self, ends: Mapping[int, int], first: int) -> str | None:
        """The line of a definition for a restart: what the job had read by then, and the first arrival behind that.

        None: the engine's own record says when the job was restarted.
        """
        return None

    def doubts_of_cutover(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> list[str]:
        """What a new job that begins in the log can decide otherwise than the replay, and for how long."""
        return []

    def of_old_job(self) -> AbstractContextManager[None]:
        """While it lasts, the job is the one that the pipeline's runs have read, where another has taken over."""
        return nullcontext()

    def of_new_job(self) -> AbstractContextManager[None]:
        """While it lasts, the job is the one that the definition names, where it has taken over from another."""
        return nullcontext()

    def closed_below(self, spark: SparkSession, pipeline: Pipeline) -> int | None:
        """The end (epoch ms, inclusive) up to which the job has closed windows by its record; None: it has none."""
        return None

    def recorded(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        as_of: Mapping[int, int] | None = None,
        until: int | None = None,
    ) -> Recorded | None:
        """What the live job has recorded, at most up to the end offsets `as_of` and the time `until` (epoch ms).

        None: this engine records nothing. Raises SourceError where it cannot be read, HistoryError where a part of it
        is lost.
        """
        return None

    def keep(self, spark: SparkSession, pipeline: Pipeline) -> int:
        """Append to the tables what the live job has recorded and will remove. Returns how many files were new."""
        return 0

    def watermark_in_words(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> str:
        """How a run finds when the watermark passed which value."""
        return "set by set"

    def warnings(
        self, pipeline: Pipeline, found: Collection[int], empty: Sequence[int], *, knows_all: bool
    ) -> list[str]:
        """What a plan says of faithful values.

        Args:
            pipeline: The definition; of a union that of one input.
            found: The partitions that the history has.
            empty: The partitions without a record.
            knows_all: The history says which partitions there are.
        """
        return []

    def holding(self, pipeline: Pipeline, partitions: Sequence[int]) -> list[Holding]:
        """The partitions that hold something back while they are silent."""
        return []

    def band(self, pipeline: Pipeline, live: Live) -> Band:
        """The time around each close in which the log does not say which records came in time."""
        return Band(0, MAX_TIMESTAMP)

    def in_doubt(
        self, spark: SparkSession, pipeline: Pipeline, spec: ReplaySpec, as_of: Mapping[int, int], until: int
    ) -> DataFrame | None:
        """The windows of which a row may be out that nobody knows of: keys, `window_start`, `window_end` (epoch ms).

        Of sessions: the bounds of their records alone, before they met any session. None: there are none.
        """
        return None


def subtasks_of(pipeline: Pipeline, live: Live) -> int:
    """The number of source subtasks of the live job."""
    inputs = pipeline.inputs or (pipeline,)
    return live.source_subtasks or sum(len(one.watermark.subtasks or (0,)) for one in inputs)
