"""Count the terms of a run's account, see `spark_jobs.runs.night.account`."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.pins import PartitionRange, ends_of
from spark_jobs.replay.assign import START, assign_windows, in_window_time, latest_start
from spark_jobs.replay.columns import EVENT_TIME, records_in
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.night.taken import is_topic, rejected, unfiltered
from spark_jobs.runs.planning.plan import open_planned
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.sources import OpenHistory, came_since, canonical, cut_at, inputs_of, is_small
from spark_jobs.sources.records.canonical import place_columns
from spark_jobs.sources.records.decode import REASON
from spark_jobs.spark.conditions import all_of


def counted_records(spark: SparkSession, pipeline: Pipeline, plan: Plan, records: DataFrame) -> Account:
    """The terms of the first equation of a run that reads the whole history; `records`: its canonical ones."""
    placed, good = _is_placed(pipeline, records), F.col(REASON).isNull()
    counts = records.agg(
        F.count_if(~placed).alias("unplaced"),
        F.count_if(placed & ~good).alias("quarantined"),
        F.count_if(good).alias("good"),
    ).collect()[0]
    account = Account(**counts.asDict())
    parts = _parts(spark, pipeline, plan)
    sizes = [_source(one, opened, own) for one, opened, own in parts]
    unknown = [opened.description for size, (_, opened, _) in zip(sizes, parts, strict=True) if size is None]
    if unknown:
        said = tuple(f"{one} does not say how many records it has" for one in unknown)
        return account.model_copy(update={"unknown": said})
    source = sum(size for size in sizes if size is not None)
    if source == account.unplaced + account.quarantined + account.good:
        return account.model_copy(update={"source": source})  # the other terms are 0: none is below 0
    unread = sum(_left_unread(*part) for part in parts)
    filtered = sum(_filtered_before(*part) for part in parts)
    return account.model_copy(update={"source": source, "left_unread": unread, "filtered_before": filtered})


def counted_night(spark: SparkSession, pipeline: Pipeline, plan: Plan, before: Reading, new: DataFrame) -> Account:
    """The terms of the first equation of a night that goes on from the reading `before`.

    `new`: its canonical records. The whole source is counted where that costs no reading of it: the metadata of a lake
    table says it, and small files are read as a whole anyway.
    """
    placed, good = _is_placed(pipeline, new), F.col(REASON).isNull()
    counts = new.agg(F.count_if(placed & ~good).alias("quarantined"), F.count_if(good).alias("good")).collect()[0]
    account = Account(**counts.asDict(), unplaced=plan.reading.unplaced - before.unplaced)
    parts = _parts(spark, pipeline, plan)
    if plan.reading.has_gone or not all(_is_counted_by_night(*part) for part in parts):
        return account.model_copy(update={"unknown": ("runs over the whole history count their source",)})
    known = {
        "read_before": sum(before.counts.values()) + before.unplaced,
        "source": sum(_source(*part) or 0 for part in parts),
    }
    account = account.model_copy(update=known)
    if not account.unaccounted_source:
        return account
    return account.model_copy(update={"left_unread": sum(_left_unread(*part) for part in parts)})


def _is_counted_by_night(pipeline: Pipeline, opened: OpenHistory, partitions: tuple[PartitionRange, ...]) -> bool:
    is_cheap = opened.snapshot is not None or is_small(opened)
    return is_cheap and unfiltered(pipeline) is None and not pipeline.history.is_stitched and bool(partitions)


Part = tuple[Pipeline, OpenHistory, tuple[PartitionRange, ...]]
"""An input (or the history), opened as the plan has it, and its partitions under their own numbers."""


def _parts(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> list[Part]:
    opened = open_planned(spark, pipeline, plan)
    owns = zip(inputs_of(pipeline, opened), plan.of_inputs() or (plan,), strict=True)
    return [(one, part, own.partitions) for (one, part), own in owns]


def _source(pipeline: Pipeline, opened: OpenHistory, partitions: tuple[PartitionRange, ...]) -> int | None:
    """How many records the source has; None where it does not say: transactions and compaction leave offsets empty."""
    if opened.topic is None:
        return None if pipeline.history.is_stitched else opened.frame.count()
    if not is_topic(pipeline):
        return None
    ends = ends_of(partitions)
    read = sum(min(r.end, ends.get(r.partition, r.start)) - r.start for r in opened.topic.ranges)
    has_holes = read != sum(p.records for p in partitions)
    return None if has_holes else sum(r.end - r.start for r in opened.topic.ranges)


def _left_unread(pipeline: Pipeline, opened: OpenHistory, partitions: tuple[PartitionRange, ...]) -> int:
    """The records beyond the end offsets."""
    ends = ends_of(partitions)
    if opened.topic is not None:
        return sum(max(0, r.end - max(r.start, ends.get(r.partition, r.start))) for r in opened.topic.ranges)
    everything = canonical(opened, unfiltered(pipeline) or pipeline)
    return everything.where(_is_placed(pipeline, everything) & came_since(ends)).count()


def _filtered_before(pipeline: Pipeline, opened: OpenHistory, partitions: tuple[PartitionRange, ...]) -> int:
    """The records below the ends that the definition leaves out before the watermark; a topic is not read again."""
    whole = None if is_topic(pipeline) else unfiltered(pipeline)
    if whole is None:
        return 0
    ends = ends_of(partitions)
    return rejected(cut_at(canonical(opened, whole), ends), pipeline).count()


def _is_placed(pipeline: Pipeline, records: DataFrame) -> Column:
    """Whether a record has a position, as far as its history has positions."""
    return all_of(F.col(c).isNotNull() for c in place_columns(pipeline.history.position) if c in records.columns)


def counted_pairs(records: DataFrame, spec: ReplaySpec, span: TimeRange | None) -> Account:
    """The terms of the second equation but duplicates, and the pairs of the third with a window that starts in `span`.

    `records`: the good ones that come to the windows.
    """
    admitted = F.coalesce(F.expr(spec.after_watermark), F.lit(False)) if spec.after_watermark else F.lit(True)
    records = in_window_time(records, spec.windows)
    has_time = F.col(EVENT_TIME).isNotNull()
    if spec.has_sessions:
        has_window = has_time
    else:
        windows = spec.aligned_windows
        ends = latest_start(windows) + F.lit(windows.longest)
        has_window = has_time & (ends > F.col(EVENT_TIME)) if windows.leaves_gaps else has_time
    row = records.agg(
        F.count_if(~admitted).alias("filtered_after"),
        F.count_if(admitted & ~has_window).alias("without_window"),
        F.count_if(admitted & has_window).alias("entered"),
    ).collect()[0]
    return Account(**row.asDict(), pairs=_pairs(records.where(admitted & has_window), spec, span, row["entered"]))


def _pairs(records: DataFrame, spec: ReplaySpec, span: TimeRange | None, entered: int) -> int | None:
    """None for sessions: where one begins, its records say together."""
    if spec.has_sessions:
        return None
    assigned = assign_windows(records, spec.aligned_windows)
    if span is not None:
        assigned = assigned.where((F.col(START) >= F.lit(span.start)) & (F.col(START) < F.lit(span.end)))
    return assigned.count()


def pairs_in(windows: DataFrame) -> int:
    """The pairs that windows count; of several panes the last one has all."""
    return int(windows.agg(F.sum(records_in(windows))).collect()[0][0] or 0)
