"""Count the terms of a run's account, see `spark_jobs.runs.night.account`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import of_input
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AnySessionWindows
from spark_jobs.pins import PartitionRange, ends_of
from spark_jobs.replay.assign import in_window_time, latest_start, windows_of_each
from spark_jobs.replay.columns import ADMITTED, DROPPED, ERASED, EVENT_TIME, LATE, OFFSET, STATE, end_offset, records_in
from spark_jobs.replay.spec import Mode, ReplaySpec
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.night.taken import is_rejected, is_topic, unfiltered
from spark_jobs.runs.planning.plan import open_planned
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.sources import OpenHistory, came_since, canonical, inputs_of, is_small, source_of
from spark_jobs.sources.records.canonical import place_columns
from spark_jobs.sources.records.decode import REASON
from spark_jobs.spark.conditions import all_of


def counted_whole(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, records: DataFrame, spec: ReplaySpec, span: TimeRange | None
) -> Account:
    """The account of a run that reads the whole history, but its windows; `records`: its canonical ones.

    Those are read once. Where duplicates are dropped, what becomes of the good ones is counted behind that.
    """
    return _said(_with_source(spark, pipeline, plan, _of_records(pipeline, records, spec, span)), spec, span)


def _with_source(spark: SparkSession, pipeline: Pipeline, plan: Plan, account: Account) -> Account:
    parts = _parts(spark, pipeline, plan)
    if not any(opened.topic is not None for _, opened, _ in parts):
        rows = sum(opened.frame.count() for _, opened, _ in parts)
        if rows == account.unplaced + account.quarantined + account.erased_unusable + account.good:
            return account.model_copy(update={"source": rows})  # the other terms are 0: none is below 0
    return _beside(account, [_counted(spark, *part, since={}, is_cut=plan.cuts) for part in parts])


def counted_night(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, before: Reading, new: DataFrame, spec: ReplaySpec
) -> Account:
    """The account of a night that goes on from the reading `before`, but its windows.

    `new`: its canonical records, which are read once. The whole source is counted where that costs no reading of it:
    the metadata of a lake table says it, and small files are read as a whole anyway. Else those of its records are
    counted that have a place in the log at the ends of the reading or beyond.
    """
    return _said(_with_source_since(spark, pipeline, plan, before, _of_records(pipeline, new, spec, None)), spec, None)


def _with_source_since(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, before: Reading, account: Account
) -> Account:
    parts = _parts(spark, pipeline, plan)
    if plan.reading.has_gone or not all(_is_counted_by_night(one, opened) for one, opened, _ in parts):
        ends = [of_input(before.ends, number) if pipeline.inputs else before.ends for number in range(len(parts))]
        sizes = zip(parts, ends, strict=True)
        return _beside(account, [_counted(spark, *part, since=end, is_cut=True) for part, end in sizes])
    known = {
        "unplaced": plan.reading.unplaced - before.unplaced,
        "read_before": sum(before.counts.values()) + before.unplaced,
        "source": sum(opened.frame.count() for _, opened, _ in parts),
    }
    account = account.model_copy(update=known)
    if not account.unaccounted_source:
        return account
    unread = sum(_counted(spark, *part, since={}, is_cut=True).left_unread for part in parts)
    return account.model_copy(update={"left_unread": unread})


def _is_counted_by_night(pipeline: Pipeline, opened: OpenHistory) -> bool:
    is_cheap = opened.topic is None and (opened.snapshot is not None or is_small(opened))
    return is_cheap and unfiltered(pipeline) is None


def _of_records(pipeline: Pipeline, records: DataFrame, spec: ReplaySpec, span: TimeRange | None) -> Account:
    """What the canonical records are that a run has read, and their pairs where no duplicates are dropped."""
    records = in_window_time(records, spec.windows)
    terms = [] if spec.deduplication is not None else _pair_terms(records, spec, span, F.col(REASON).isNull())
    placed, good = _is_placed(pipeline, records), F.col(REASON).isNull()
    erased = F.col(ERASED) if ERASED in records.columns else F.lit(False)
    counts = records.agg(
        F.count_if(~placed).alias("unplaced"),
        F.count_if(placed & ~good & ~erased).alias("quarantined"),
        F.count_if(placed & ~good & erased).alias("erased_unusable"),
        F.count_if(good).alias("good"),
        *terms,
    )
    return Account(**counts.collect()[0].asDict())


Part = tuple[Pipeline, OpenHistory, tuple[PartitionRange, ...]]
"""An input (or the history), opened as the plan has it, and its partitions under their own numbers."""


def _parts(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> list[Part]:
    opened = open_planned(spark, pipeline, plan)
    owns = zip(inputs_of(pipeline, opened), plan.of_inputs() or (plan,), strict=True)
    return [(one, part, own.partitions) for (one, part), own in owns]


@dataclass(frozen=True, slots=True)
class _Source:
    """The records of an input by its own numbers, and those of them that nobody has read.

    `holes`: the topic whose offsets do not say how many records it has, since some of them lead to none.
    """

    records: int
    left_unread: int = 0
    filtered_before: int = 0
    holes: str = ""


def _beside(account: Account, sources: Sequence[_Source]) -> Account:
    """The account with the numbers of the sources."""
    known = {
        "left_unread": sum(one.left_unread for one in sources),
        "filtered_before": sum(one.filtered_before for one in sources),
    }
    if unknown := tuple(f"{one.holes} does not say how many records it has" for one in sources if one.holes):
        return account.model_copy(update={**known, "unknown": unknown})
    return account.model_copy(update={**known, "source": sum(one.records for one in sources)})


def _counted(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    partitions: tuple[PartitionRange, ...],
    *,
    since: Mapping[int, int],
    is_cut: bool,
) -> _Source:
    """Count an input. `since`: from these offsets on alone; `is_cut`: what lies beyond the ends was not read."""
    ends, topic = ends_of(partitions), opened.topic
    if topic is None:
        return _counted_rows(spark, pipeline, opened, ends if is_cut else {}, since)
    past = source_of(spark, pipeline).before_topic(opened)
    rows = _Source(0) if past is None else _counted_in(past, ends, since)
    filtered = _filtered_before(spark, pipeline, opened, ends, since)
    firsts = {r.partition: max(r.start, min(since.get(r.partition, r.start), r.end)) for r in topic.ranges}
    lasts = {r.partition: max(firsts[r.partition], min(r.end, ends.get(r.partition, r.start))) for r in topic.ranges}
    read, unread = sum(lasts.values()) - sum(firsts.values()), sum(r.end - lasts[r.partition] for r in topic.ranges)
    has_holes = read + rows.records - rows.left_unread != sum(p.records for p in partitions) + filtered
    if has_holes and not (is_topic(pipeline) and not since):  # records that have no arrival are in no range
        has_holes = read != _of_topic(spark, pipeline, opened, firsts, lasts)
    holes = opened.description if has_holes else ""
    return _Source(rows.records + read + unread, rows.left_unread + unread, filtered, holes)


def _counted_rows(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, ends: Mapping[int, int], since: Mapping[int, int]
) -> _Source:
    """Count the rows of files or of a table, as they are read with nothing left out."""
    whole = unfiltered(pipeline)
    records = canonical(opened, whole or pipeline, _frame_since(spark, pipeline, opened, since))
    return _counted_in(records, ends, since, F.lit(False) if whole is None else is_rejected(records, pipeline))


def _counted_in(
    records: DataFrame, ends: Mapping[int, int], since: Mapping[int, int], is_rejected: Column | None = None
) -> _Source:
    is_beyond = F.coalesce(came_since(ends), F.lit(False)) if ends else F.lit(False)
    chosen = records.where(came_since(since)) if since else records
    row = chosen.agg(
        F.count("*").alias("records"),
        F.count_if(is_beyond).alias("left_unread"),
        F.count_if(~is_beyond & (F.lit(False) if is_rejected is None else is_rejected)).alias("filtered_before"),
    )
    return _Source(**row.collect()[0].asDict())


def _frame_since(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, since: Mapping[int, int]
) -> DataFrame | None:
    return source_of(spark, pipeline).since(opened, since) if since else None


def _filtered_before(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, ends: Mapping[int, int], since: Mapping[int, int]
) -> int:
    """The records below the ends that the definition leaves out before the watermark."""
    if unfiltered(pipeline) is None:
        return 0
    return _counted_rows(spark, pipeline, opened, ends, since).filtered_before


def _of_topic(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, firsts: Mapping[int, int], lasts: Mapping[int, int]
) -> int:
    """How many records the broker gives of these offsets."""
    records = canonical(opened, unfiltered(pipeline) or pipeline, _frame_since(spark, pipeline, opened, firsts))
    return records.where((F.col(OFFSET) >= end_offset(firsts)) & (F.col(OFFSET) < end_offset(lasts))).count()


_NOT_OUT = ("open", "not_emitted")
"""States of sessions that the live job has not let out as they are."""
SESSIONS_UNSAID = "sessions that are not out yet count no records, and those that came out again count some twice"
"""Why nobody can say how many pairs sessions count."""
RESTARTS_UNSAID = "a task that began anew may have forgotten records that it had taken in"
"""Why nobody can say how many pairs the windows of a restarted application count."""


def _is_placed(pipeline: Pipeline, records: DataFrame) -> Column:
    """Whether a record has a position, as far as its history has positions."""
    return all_of(F.col(c).isNotNull() for c in place_columns(pipeline.history.position) if c in records.columns)


def counted_pairs(records: DataFrame, spec: ReplaySpec, span: TimeRange | None) -> Account:
    """The terms of the second equation but duplicates, and the pairs of the third, of the good `records`."""
    records = in_window_time(records, spec.windows)
    row = records.agg(*_pair_terms(records, spec, span)).collect()[0]
    return _said(Account(**row.asDict()), spec, span)


def _pair_terms(
    records: DataFrame, spec: ReplaySpec, span: TimeRange | None, among: Column | None = None
) -> list[Column]:
    """Aggregates of the good records, of those that are `among` these; of pairs those with a start in `span`.

    None as the span: all windows. A record has one session; in which part of the range it begins, its records say
    together.
    """
    good = F.lit(True) if among is None else among
    admitted, is_windowed = good, spec.rules.is_read(spec) & F.col(EVENT_TIME).isNotNull()
    erased = F.coalesce(F.col(ERASED), F.lit(False)) if ERASED in records.columns else F.lit(False)
    if ADMITTED in records.columns or spec.after_watermark is not None:
        condition = F.col(ADMITTED) if ADMITTED in records.columns else F.expr(spec.after_watermark or "")
        admitted = F.when(good, F.coalesce(condition, F.lit(False)))
    if not spec.has_sessions and spec.aligned_windows.leaves_gaps:
        ends = latest_start(spec.aligned_windows) + F.lit(spec.aligned_windows.longest)
        is_windowed = is_windowed & (ends > F.col(EVENT_TIME))
    own = F.lit(1) if spec.has_sessions else windows_of_each(spec.aligned_windows, span)
    entered = admitted & is_windowed
    return [
        F.count_if(good & erased).alias("erased"),
        F.count_if(good & ~admitted & ~erased).alias("filtered_after"),
        F.count_if(admitted & ~is_windowed).alias("without_window"),
        F.count_if(entered).alias("entered"),
        F.coalesce(F.sum(F.when(entered, own)), F.lit(0)).alias("pairs"),
    ]


def _said(account: Account, spec: ReplaySpec, span: TimeRange | None) -> Account:
    """The account without pairs that nobody can count; it says why."""
    if not spec.has_sessions or (span is None and isinstance(spec.windows, AnySessionWindows)):
        return account
    why = "which windows a record is in, other records say: pairs are counted of sessions in runs over the whole range"
    return account.model_copy(update={"pairs": None, "unknown": (*account.unknown, why)})


def pairs_in(windows: DataFrame) -> int:
    """The pairs that windows count; of several panes the last one has all."""
    return int(windows.agg(F.sum(records_in(windows))).collect()[0][0] or 0)


def are_out_once(sessions: DataFrame) -> bool:
    """Whether the live job has let out all of these sessions, and each of their records in one of them alone.

    Others count no records so far. A late record that is allowed lets its session out again, joined with others and
    with bounds of its own; the rows of before stay.
    """
    if STATE not in sessions.columns:
        return True
    again = F.coalesce(F.col(LATE), F.lit(0)) > 0 if LATE in sessions.columns else F.lit(False)
    return sessions.where(F.col(STATE).isin(*_NOT_OUT) | again).isEmpty()


def pairs_in_sessions(sessions: DataFrame, late: DataFrame | None, spec: ReplaySpec, *, is_out: bool) -> int | None:
    """The pairs that sessions count, and the late records that lie in none; None where not each is out once.

    `late`: the late records, where only the live job's sessions have rows; `is_out`: whether the end of the input lets
    all of them out, since the others have no row then.
    """
    if not are_out_once(sessions):
        return None
    if late is None or spec.mode is not Mode.FAITHFUL:
        return pairs_in(sessions)
    return pairs_in(sessions.drop(DROPPED)) + late.count() if is_out else None
