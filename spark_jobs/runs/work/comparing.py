"""The compare stage: the live job's windows are judged in every run of a pipeline with a section `live:`.

What is compared is decided here; how is in `spark_jobs.comparison.stage`, which a run is given as `CompareStage`. The
stage writes `verdicts.json`, and the tables `<table>__verdicts` and `<table>__comparisons`. It can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.spec import Mode
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.night.affected import AffectedWindows
from spark_jobs.runs.work.job import Job


@dataclass(frozen=True, slots=True)
class ToCompare:
    """The windows that a run compares.

    Attributes:
        chunks: All windows that start in these ranges are compared. For a reconciliation they lie in `touched.recent`.
        touched: The windows that new records of a reconciliation can have changed. Older windows than `touched.recent`
            are compared if they are among its pairs, or if the live job has emitted them since.
        before: The end offsets (exclusive) by partition of the run that this one goes on from.
        keeps: Whether the verdicts go to the tables. In a dry run they go to `verdicts.json` alone.
    """

    chunks: Sequence[TimeRange]
    touched: AffectedWindows | None = None
    before: dict[int, int] | None = None
    keeps: bool = True


CompareStage = Callable[[Job, Replay, ToCompare], Verdicts]
"""Compares what the live job emitted with the run's own replay."""

LiveNews = Callable[[SparkSession, Pipeline, StructType, TimeRange], bool]
"""Whether the live job may have emitted something new about windows that start in the range. Takes the schema of the
canonical records."""


def compare_live(job: Job, replay: Replay, compare: CompareStage | None, windows: ToCompare) -> None:
    """Judge the live job's windows, where the definition has a section `live:` and the run has both kinds of values."""
    if compare is None or job.pipeline.live is None or job.spec.mode is not Mode.BOTH:
        job.folder.remove(Verdicts.FILE)
        return
    with job.stage("compare", "emitted, faithful, complete"):
        compare(job, replay, windows).write(job.folder)


def verdicts_of(job: Job) -> Verdicts | None:
    """What this attempt of the run has found about the live job; None where it has compared nothing."""
    verdicts = Verdicts.read(job.folder)
    return verdicts if verdicts is not None and verdicts.attempt == job.attempt else None
