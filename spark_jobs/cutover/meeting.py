"""Whether both sides of a cutover meet: the backfill's windows before it, the new job's from it on. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Any

from pydantic import Field
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.compare import compare_planned
from spark_jobs.comparison.emitted import EmittedRows, refuse_without_live
from spark_jobs.comparison.join_keys import join_columns, key_types, with_join_keys
from spark_jobs.comparison.verdicts import Label
from spark_jobs.cutover.beside import DIFFERS, EXPECTED, FOUND, as_texts, beside
from spark_jobs.cutover.document import CutoverPlan
from spark_jobs.cutover.planning import check_start, refuse_before
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import current_deployment
from spark_jobs.definition.instants import format_instant, parse_instant
from spark_jobs.engines import live_engine
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, refuse_unpublished
from spark_jobs.lakehouse.verdict import UNEXPLAINED, Verdict
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import HISTORY_GONE, STATE
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.spec import Mode, Panes
from spark_jobs.runs.life.documents import DocumentPart
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.planned_spec import spec_of_plan
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources import good, reading
from spark_jobs.spark.cached import CachedFrames

MOST_SHOWN = 10
_OF_JOB, _LABEL = "rw_of_job", "rw_label"


class Side(StrEnum):
    """Where a window of the two sides together comes from."""

    BEFORE = "before"
    AFTER = "after"
    GAP = "gap"
    OVERLAP = "overlap"

    @property
    def meaning(self) -> str:
        """What the label says, in a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Side.BEFORE: "The window starts before the cutover, and the backfill has it, once.",
    Side.AFTER: "The window starts at or after the cutover, and the new job has it, once.",
    Side.GAP: "The replay has the window, and neither side has it.",
    Side.OVERLAP: "Both sides have the window, or one has it twice.",
}


class Placed(DocumentPart):
    """A window that is not there exactly once, or whose values are not the replay's."""

    label: Side = Field(description="`before`, `after`, `gap` or `overlap`")
    key: dict[str, str | None] = Field(description="the key columns, as text")
    start: str = Field(description="the window's start")
    end: str = Field(description="its end")


class Meeting(DocumentPart):
    """Whether both sides of a cutover meet."""

    pipeline: str = Field(description="the pipeline")
    at: str = Field(description="the cutover")
    counts: dict[str, int] = Field(description="windows by label")
    differing: int = Field(description="windows before or after that have other values than the replay, or no reason")
    by_timing: int = Field(description="windows after the cutover that differ only by the job's own timing")
    samples: tuple[Placed, ...] = Field(default=(), description="some of the gaps, overlaps and other values")

    @property
    def is_clean(self) -> bool:
        """Whether each key and window is there once, with the replay's values."""
        return not (self.differing or self.counts[Side.GAP] or self.counts[Side.OVERLAP])


@dataclass(frozen=True, slots=True)
class _Part:
    """What was found on one side of the cutover."""

    counts: Mapping[Side, int]
    differing: int = 0
    by_timing: int = 0
    samples: tuple[Placed, ...] = ()


def planned_at(folder: RunFolder, pipeline: Pipeline) -> int:
    """When the cutover is that was planned last, epoch ms. Raises DefinitionError where none was."""
    planned = CutoverPlan.read(folder)
    if planned is None:
        raise DefinitionError(
            "no cutover has been planned", pipeline.name, "Write --at with the first window of the new job."
        )
    return parse_instant(planned.at)


def check_meeting(spark: SparkSession, pipeline: Pipeline, at: int, progress: Progress) -> Meeting:
    """Whether each key and window that has closed is there once, with the values of the replay.

    Windows that start before `at` (epoch ms) are those of the published table, from `at` on those that the job of
    `live:` (the last deployment) has emitted. Of the published windows from `at` on nothing is looked at.

    Raises:
        DefinitionError: the definition does not say what the live job emitted.
        EmptyRangeError: nothing has been published, or `at` is before the history.
        RewindowError: the history cannot be planned, or the emitted rows cannot be read.
    """
    refuse_without_live(pipeline)
    check_start(pipeline, at)
    refuse_unpublished(spark, Tables.of(pipeline))
    with progress.stage("plan", pipeline.name):
        planned = planned_records(spark, pipeline, mode=pipeline.mode)
    with planned as (plan, records), reading(plan.pipeline):
        refuse_before(plan, at)
        with progress.stage("before", "the backfill's windows beside the replay"):
            before = _before(spark, pipeline, plan, good(records), at)
        after = _after(spark, pipeline, plan, records, at, progress)
    counts = {side: before.counts.get(side, 0) + after.counts.get(side, 0) for side in Side}
    return Meeting(
        pipeline=pipeline.name,
        at=format_instant(at),
        counts={side.value: count for side, count in counts.items()},
        differing=before.differing + after.differing,
        by_timing=after.by_timing,
        samples=(before.samples + after.samples)[:MOST_SHOWN],
    )


def _before(spark: SparkSession, pipeline: Pipeline, plan: Plan, records: DataFrame, at: int) -> _Part:
    keys, span = tuple(pipeline.keys), TimeRange(plan.span.start, at)
    published = _published(spark, pipeline, at)
    with CachedFrames() as cached, _replayed(spark, pipeline, plan, records) as replay:
        values = [
            name for name in replay.spec.output_columns if name in published.columns and name in pipeline.aggregates
        ]
        emitted = EmittedRows(spark, current_deployment(pipeline), key_types(records.schema, keys), cached)
        job = with_join_keys(emitted.windows(span).rows, keys).select(*join_columns(keys), F.lit(True).alias(_OF_JOB))
        windows = reduce(DataFrame.unionByName, [replay.windows(part) for part in _within(plan, span)])
        both = beside(windows, published, keys, values, carried=(STATE,))
        placed = with_join_keys(both, keys).join(job, join_columns(keys), "left").drop(*join_columns(keys)[:-2])
        return _counted(cached.keep(_labelled(placed)), keys)


def _replayed(spark: SparkSession, pipeline: Pipeline, plan: Plan, records: DataFrame) -> Replay:
    """Of a job that records its own reading the windows of all records: it has recorded none from before it began."""
    mode = Mode.COMPLETE if live_engine(pipeline).reads_backlog_at_once else plan.mode
    spec = spec_of_plan(spark, pipeline, plan, mode, Panes.LAST)
    return Replay(History(records, plan.event_times, plan.processing_time_end), spec)


def _published(spark: SparkSession, pipeline: Pipeline, at: int) -> DataFrame:
    """The published windows that start before `at`, with their bounds in epoch ms."""
    found = PublishedTable(spark, Tables.of(pipeline).windows).current()
    early = found.where(F.col(START) < F.timestamp_millis(F.lit(at)))
    return early.withColumns({name: F.unix_millis(name) for name in (START, END)})


def _within(plan: Plan, span: TimeRange) -> list[TimeRange]:
    parts = [TimeRange(max(one.start, span.start), min(one.end, span.end)) for one in plan.chunks]
    return [part for part in parts if part.start < part.end]


def _labelled(placed: DataFrame) -> DataFrame:
    """With `rw_label` and `rw_differs`: one row for each window before the cutover, without those still open."""
    there, expected = F.col(FOUND).isNotNull(), F.col(EXPECTED).isNotNull()
    kept = F.coalesce(F.col(f"rw_found_{STATE}") == F.lit(HISTORY_GONE), F.lit(False))
    is_open = F.coalesce(F.col(f"rw_expected_{STATE}") == F.lit("open"), F.lit(False))
    label = (
        F.when(F.coalesce(F.col(_OF_JOB), F.lit(False)), Side.OVERLAP.value)
        .when(there, Side.BEFORE.value)
        .otherwise(Side.GAP.value)
    )
    differs = there & ~kept & (F.col(DIFFERS) | ~expected)
    return placed.where(there | ~is_open).withColumns({_LABEL: label, DIFFERS: differs})


def _counted(placed: DataFrame, keys: tuple[str, ...]) -> _Part:
    rows = placed.groupBy(_LABEL).agg(F.count(F.lit(1)), F.count_if(DIFFERS)).collect()
    wrong = placed.where((F.col(_LABEL) != F.lit(Side.BEFORE.value)) | F.col(DIFFERS)).orderBy(START, END)
    return _Part(
        {Side(label): count for label, count, _ in rows},
        sum(differing for _, _, differing in rows),
        samples=tuple(
            Placed(
                label=Side(row[_LABEL]),
                key=as_texts(row, keys),
                start=format_instant(row[START]),
                end=format_instant(row[END]),
            )
            for row in wrong.limit(MOST_SHOWN).collect()
        ),
    )


def _after(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, records: DataFrame, at: int, progress: Progress
) -> _Part:
    """What the new job gave, beside the replay: `rewindow compare` from the cutover on."""
    parts = tuple(_within(plan, TimeRange(at, max(at, plan.span.end))))
    if not parts:
        return _Part({})
    after = plan.model_copy(update={"span": TimeRange(at, plan.span.end), "chunks": parts, "mode": Mode.BOTH})
    found = compare_planned(spark, current_deployment(pipeline), after, progress, records=records, limit=MOST_SHOWN)
    counted = {Verdict(name): count for name, count in found.counts.items()}
    twice = found.labels.get(Verdict.MISMATCH, {}).get(Label.SEVERAL_ROWS, 0)
    wrong = sum(counted.get(one, 0) for one in (Verdict.MISMATCH, Verdict.EXTRA)) - twice
    by_timing = sum(counted.get(one, 0) for one in (Verdict.TIMING, Verdict.UNDECIDED))
    right = sum(counted.get(one, 0) for one in (Verdict.MATCH, Verdict.LATE_ARRIVALS))
    counts = {
        Side.AFTER: right + by_timing + wrong,
        Side.GAP: counted.get(Verdict.MISSING, 0),
        Side.OVERLAP: twice,
    }
    return _Part(counts, wrong, by_timing, tuple(_shown(row, pipeline) for row in found.top if _is_wrong(row)))


def _is_wrong(row: Mapping[str, Any]) -> bool:
    return row["verdict"] in UNEXPLAINED


def _shown(row: Mapping[str, Any], pipeline: Pipeline) -> Placed:
    twice = row.get("label") == Label.SEVERAL_ROWS
    label = Side.GAP if row["verdict"] == Verdict.MISSING else Side.OVERLAP if twice else Side.AFTER
    return Placed(label=label, key=as_texts(row, pipeline.keys), start=str(row[START]), end=str(row[END]))
