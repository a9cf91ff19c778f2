"""How many records nothing in the log decides: a checkpoint of the live job ended what held them back, or did not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.mode import Mode
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.band import UNDECIDED, Band
from spark_jobs.replay.defined_windows import holds_back
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.replay.spec import Panes
from spark_jobs.runs.planning.plan_document import Undecided

_LOG_ALONE = Band(margin=0, slack=0)
"""What is near a close is none of these records."""


def undecided_in(
    pipeline: Pipeline, history: History, partitions: Iterable[int], spans: Iterable[TimeRange]
) -> Undecided | None:
    """The undecided records of windows with a start in `spans`; None: the job's moment decides none."""
    if not holds_back(pipeline):
        return None
    spec = spec_of(pipeline, sorted(partitions), mode=Mode.FAITHFUL, panes=Panes.LAST)
    records = windows = 0
    with Replay(history, replace(spec, aggregates={})) as replay:
        for span in spans:
            found = replay.windows(span, _LOG_ALONE).agg(F.sum(UNDECIDED), F.count_if(F.col(UNDECIDED) > 0))
            own, some = found.collect()[0]
            records, windows = records + (own or 0), windows + some
    return Undecided(records, windows)
