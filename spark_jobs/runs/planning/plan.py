"""A plan: everything that a run will do, as data. To make one reads the history and writes nothing."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.kafka import Topic
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.union import of_input, partition_in_words
from spark_jobs.definition.window import BetweenEventsWindow
from spark_jobs.engines import Recorded, live_engine
from spark_jobs.errors import DefinitionError, EmptyRangeError, HistoryError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AlignedWindows, AnyWindows
from spark_jobs.functions.prepared import doubts
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.pins import ends_of
from spark_jobs.replay.columns import PARTITION
from spark_jobs.replay.defined_windows import fields_without_effect, lost_by_flink, windows_of
from spark_jobs.replay.engine import History
from spark_jobs.replay.from_pipeline import rule_book_of, strategy_of
from spark_jobs.runs.life.documents import misfit
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.night.stored import read_before, with_final
from spark_jobs.runs.night.taken import ReadBefore, Taken, take
from spark_jobs.runs.planning.chunking import chunks_of, gaps_between, grid_points
from spark_jobs.runs.planning.cost import check_cost, check_size, estimated, runs_taken, size_of
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.planned_spec import recorded_ends
from spark_jobs.runs.planning.published_columns import refuse_other_columns
from spark_jobs.runs.planning.requesting import check_order, check_range
from spark_jobs.runs.planning.silence import fallen_silent
from spark_jobs.runs.planning.undecided import undecided_in
from spark_jobs.sources import (
    Inspection,
    OpenHistory,
    PartitionRange,
    canonical,
    check_pinned,
    check_schema_ids,
    cut_at,
    ends_within,
    fidelity_of,
    good,
    inspect_history,
    is_small,
    names_of,
    open_history,
    opened_again,
    partition_columns,
    quarantined,
    spooled,
)
from spark_jobs.spark.failures import catalog_answers


def plan_from_json(text: str) -> Plan:
    """A plan as `Plan.to_json` wrote it. Raises DefinitionError for anything else: people edit plans."""
    try:
        plan = Plan.model_validate_json(text, strict=True)
        why = next((f"it has an unknown field {name[:60]!r}" for name in sorted(plan.model_extra or ())), None)
    except ValidationError as problem:
        plan, why = None, misfit(problem)
    if plan is None or why is not None:
        raise DefinitionError(f"not a plan: {why}", hint="Make one with `rewindow plan PIPELINE --json`.")
    return plan


def check_plan(plan: Plan, pipeline: Pipeline) -> None:
    """Raises DefinitionError where chunks and gaps do not cover exactly the windows of the plan's range.

    A plan is a file that people can edit: without this, windows of a chunk that was cut out would be retracted.
    """
    covered = _covering(pipeline, plan.event_times)
    work = TimeRange(max(plan.span.start, covered.start), min(plan.span.end, covered.end))
    parts = sorted((*plan.chunks, *plan.gaps), key=lambda part: part.start)
    is_tiled = (
        bool(plan.chunks)
        and all(part.start < part.end for part in parts)
        and (parts[0].start, parts[-1].end) == (work.start, work.end)
        and all(a.end == b.start for a, b in itertools.pairwise(parts))
    )
    if not is_tiled:
        raise DefinitionError(
            "the chunks of the plan do not cover its range without gaps",
            f"{plan.pipeline}, {describe_span(work)}",
            "Make the plan again with `rewindow plan PIPELINE --json`; the number of chunks is --chunks.",
        )


@catalog_answers()
def make_plan(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    start: int | None = None,
    end: int | None = None,
    as_of: Mapping[int, int] | None = None,
    mode: Mode | None = None,
    chunks: int | None = None,
    opened: OpenHistory | None = None,
    records: DataFrame | None = None,
    seen: Inspection | None = None,
    reading: Reading | None = None,
    beyond_limits: bool = False,
    another_log: bool = False,
    recorded: Recorded | None = None,
    counts_undecided: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Plan:
    """Plan the windows with a start in `[start, end)`, both epoch ms; default: all that the history holds.

    `mode`: which values; default: as the definition says. `as_of` cuts the history at an end offset a partition
    (default: all that is there). `chunks` is the least number of slices. `opened` and `records` are the history and
    its canonical records where the caller has them already, see `planned_records`; `seen` and `reading` are what the
    caller knows of them without reading all. `beyond_limits`: the run may cost more than the definition's `limits`.
    `another_log`: the history may be another log than the one that was read before.
    `recorded`: what the live job has recorded up to `as_of`, where the caller knows it. `counts_undecided`: a replay
    counts the records that only the live job's moment decides; a run that computes the windows does not pay for it.

    Raises EmptyRangeError where there is nothing to do, DefinitionError where the published table has a column of
    another type or the run costs more than `limits` allow, HistoryError where the history breaks a rule or a faithful
    result is not to be had, SourceError where it cannot be read.
    """
    check_range(pipeline, start, end)
    mode = mode or pipeline.mode
    check_order(pipeline, mode)
    if seen is None and records is None:
        as_of = recorded_ends(spark, pipeline, as_of)
    if opened is None:
        opened = open_history(spark, pipeline, as_of=as_of, arrivals_before=arrival_limit(pipeline, now()))
    read = canonical(opened, pipeline) if records is None else records
    below = cut_at(read, as_of or {}) if records is None and opened.topic is None else read
    found_fidelity = fidelity_of(pipeline, opened)
    size, other, unread = None, "", dict[int, int]()
    if seen is None or reading is None:
        size = size_of(spark, opened)
        if not beyond_limits:
            check_size(pipeline, size)
        refuse_other_columns(spark, pipeline, read)
        before = read_before(spark, Tables.of(pipeline), pipeline)
        known = {} if before is None else before.reading.known
        asked = as_of
        seen = inspect_history(spark, pipeline, opened, as_of=as_of, records=below, known=known)
        if seen.clocks:
            opened = opened_again(spark, pipeline, opened, seen.clocks)
            as_of = ends_within(ends_of(seen.partitions), seen.clocks)
            unread = seen.clocks.ends
            read = canonical(opened, pipeline)
            below = read if opened.topic is not None else cut_at(read, as_of)
            seen = inspect_history(spark, pipeline, opened, as_of=as_of, records=below, known=known)
        found_fidelity = fidelity_of(pipeline, opened, seen.partitions)
        seen = replace(seen, history_records=seen.records)
        taken = _taken(spark, pipeline, opened, seen, below, before, accepts_another=another_log, asked=asked)
        reading, other = taken.reading, taken.another_log
    check_schema_ids(pipeline, opened, records)
    partitions = seen.partitions
    windows = windows_of(pipeline)
    if seen.event_times is None:
        raise EmptyRangeError(
            f"the history holds no usable record (read {seen.records}, quarantined {seen.quarantined})",
            opened.description,
            _why_unusable(read)
            if seen.quarantined
            else "Check the path or table, the filter, and the event time's expression.",
        )
    covered = _covering(pipeline, seen.event_times)
    span = TimeRange(start if start is not None else covered.start, end if end is not None else covered.end)
    if span.start >= covered.end or span.end <= covered.start or span.start >= span.end:
        raise EmptyRangeError(
            f"no event time falls into windows from {format_instant(span.start)} to {format_instant(span.end)}",
            opened.description,
            f"The history covers {format_instant(seen.event_times.start)} to {format_instant(seen.event_times.end)}.",
        )
    is_whole = span.start <= covered.start and span.end >= covered.end
    _refuse_another_log_in_part(opened, other, is_whole=is_whole)
    work = TimeRange(max(span.start, covered.start), min(span.end, covered.end))
    _check_registered(pipeline, seen, mode)
    strategy = strategy_of(pipeline, [p.partition for p in partitions])
    cost = None if size is None else estimated(seen.records, size.bytes, runs_taken(spark, pipeline, mode.value))
    if cost is not None and not beyond_limits:
        check_cost(pipeline, cost)
    slices = chunks_of(windows, work, chunks, below, looked_up=_closes_looked_up(pipeline, strategy))
    engine = live_engine(pipeline)
    recorded = recorded or engine.recorded(spark, pipeline, as_of)
    ends_at = _processing_time_end(recorded, seen)
    undecided = None
    if counts_undecided and mode is not Mode.COMPLETE:
        history = History(good(below), seen.event_times, ends_at)
        undecided = undecided_in(pipeline, history, [p.partition for p in partitions], slices)
    in_doubt = () if undecided is None or not undecided.records else (undecided.in_words(),)
    gaps = () if recorded is None else recorded.gaps
    ends = grid_points(windows, work) if isinstance(windows, AlignedWindows) else None
    return Plan(
        pipeline=pipeline.name,
        definition_hash=pipeline.definition_hash,
        source=opened.description,
        partition_columns=partition_columns(spark, pipeline),
        mode=mode,
        span=span,
        is_whole=is_whole,
        chunks=slices,
        gaps=gaps_between(work, slices),
        event_times=seen.event_times,
        partitions=partitions,
        processing_time_end=ends_at,
        # Pinned files and snapshots hold nothing new: only end offsets that stop short of them have to cut.
        cuts=bool(partitions)
        and opened.topic is None
        and (as_of is not None or not (opened.pinned or opened.snapshot is not None)),
        records=seen.records,
        quarantined=seen.quarantined,
        missing_event_times=seen.missing_event_times,
        window_ends=ends,
        fidelity="approximate" if gaps else found_fidelity.level,
        fidelity_reasons=(*gaps, *found_fidelity.reasons, *in_doubt),
        undecided=undecided,
        watermark=engine.watermark_in_words(pipeline, strategy),
        warnings=(
            *_warnings(pipeline, windows, seen, mode=mode, opened=opened),
            *_emptiness(seen, ends),
            *doubts(good(read), pipeline),
            *_not_read(pipeline, unread),
            *(() if recorded is None else recorded.notes),
            *([f"all that is published goes, and what is there now takes its place: {other}"] if other else []),
        ),
        reading=reading,
        history_records=seen.records if seen.history_records is None else seen.history_records,
        cost=cost,
        another_log=other,
        **opened.pins.by_name(),
    )


def allowed_now(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, *, beyond_limits: bool = False, another_log: bool = False
) -> Plan:
    """A plan that was made before, as `make_plan` allows it now: `limits`, and what was read, may be others since.

    Raises as `make_plan`, and as `read_planned` where the definition or the history has changed.
    """
    opened = _opened_again(spark, pipeline, plan)
    if not beyond_limits:
        size = size_of(spark, opened)
        check_size(pipeline, size)
        check_cost(pipeline, estimated(plan.records, size.bytes, runs_taken(spark, pipeline, plan.mode)))
    before = read_before(spark, Tables.of(pipeline), pipeline)
    if before is None:
        return plan
    records, cuts = _records_of(plan, pipeline, opened), plan.as_of if plan.cuts else None
    known = before.reading.known
    seen = inspect_history(spark, pipeline, opened, as_of=cuts, records=records, known=known)
    accepts = another_log or bool(plan.another_log)
    taken = _taken(spark, pipeline, opened, seen, records, before, accepts_another=accepts, asked=plan.reading.ends)
    _refuse_another_log_in_part(opened, taken.another_log, is_whole=plan.is_whole)
    return plan.model_copy(update={"another_log": taken.another_log, "reading": taken.reading})


def _taken(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    seen: Inspection,
    records: DataFrame,
    before: ReadBefore | None,
    *,
    accepts_another: bool,
    asked: Mapping[int, int] | None,
) -> Taken:
    """`take`, with what was final before the first record that is still there; of another log nothing is gone."""
    taken = take(spark, pipeline, opened, seen, records, before, accepts_another=accepts_another, asked=asked)
    if before is None:
        return taken
    return replace(taken, reading=with_final(spark, Tables.of(pipeline), pipeline, before, taken.reading))


def _refuse_another_log_in_part(opened: OpenHistory, other: str, *, is_whole: bool) -> None:
    if other and not is_whole:
        raise DefinitionError(
            f"{other}, and the run is over a part of the range",
            opened.description,
            "Another log takes the place of all that is published: leave out the range.",
        )


def _processing_time_end(recorded: Recorded | None, seen: Inspection) -> int:
    """The last arrival; where the live job records its reading, when it was where that ends."""
    if recorded is not None:
        return recorded.until
    return max((p.last_arrival for p in seen.partitions if p.last_arrival is not None), default=0)


def read_planned(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> DataFrame:
    """The canonical records of a plan (good and bad): the pinned files, cut at the end offsets; or a topic's offsets.

    Raises DefinitionError if the definition has changed since the plan was made, HistoryError if a topic no longer has
    what the plan says.
    """
    records = _records_of(plan, pipeline, _opened_again(spark, pipeline, plan))
    _refuse_removed(pipeline, plan, records)
    return records


def _refuse_removed(pipeline: Pipeline, plan: Plan, records: DataFrame) -> None:
    """Raises HistoryError where compaction has removed records that the plan counts."""
    histories = [one.history for one in pipeline.inputs or (pipeline,)]
    if not any(isinstance(history, Topic) and "compacted" in history.accept for history in histories):
        return
    found, names = {row[0]: row[1] for row in records.groupBy(PARTITION).count().collect()}, names_of(pipeline)
    for known in plan.partitions:
        count = found.get(known.partition, 0)
        if count != known.records:
            raise HistoryError(
                f"partition {partition_in_words(known.partition, names)} has {count} records, and had {known.records} "
                "when the plan was made: compaction has removed some",
                plan.source,
                "Plan again.",
            )


@contextmanager
def planned_records(
    spark: SparkSession, pipeline: Pipeline, plan: Plan | None = None, **options: Any
) -> Iterator[tuple[Plan, DataFrame]]:
    """A plan and the records to carry it out with, see `read_planned`.

    Those of a topic, and of small files, are read once for both.

    Without `plan` one is made, as `make_plan` does with `options`. With one, what had to be accepted since it was made
    is added to its fidelity.
    """
    is_given = plan is not None
    if plan is None:
        options["as_of"] = recorded_ends(spark, pipeline, options.get("as_of"))
        limit = arrival_limit(pipeline, options.get("now", lambda: datetime.now(UTC))())
        opened = open_history(spark, pipeline, as_of=options["as_of"], arrivals_before=limit)
    else:
        opened = _opened_again(spark, pipeline, plan)
        reasons = fidelity_of(pipeline, opened).reasons if opened.has_topic else plan.fidelity_reasons
        inputs = tuple(one.pins for one in opened.inputs)
        reasons = tuple(dict.fromkeys((*plan.fidelity_reasons, *reasons)))
        plan = plan.model_copy(update={"topic": opened.topic, "inputs": inputs, "fidelity_reasons": reasons})
    if not opened.has_topic and not is_small(opened):
        plan = plan or make_plan(spark, pipeline, opened=opened, **options)
        as_planned = opened if is_given or plan.pins == opened.pins else open_planned(spark, pipeline, plan)
        yield plan, _records_of(plan, pipeline, as_planned)
        return
    with spooled(canonical(opened, pipeline), pipeline) as records:
        if plan is None:
            below = records if opened.topic else cut_at(records, options.get("as_of") or {})
            plan = make_plan(spark, pipeline, opened=opened, records=below, **options)
        else:
            _refuse_removed(pipeline, plan, records)
        if is_given or plan.pins == opened.pins:
            yield plan, cut_at(records, plan.as_of) if plan.cuts else records
            return
    # Some arrivals are ahead: their records are in quarantine, or not read.
    with spooled(_records_of(plan, pipeline, open_planned(spark, pipeline, plan)), pipeline) as records:
        yield plan, records


def confirm_files(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> None:
    """Raises SourceError where a file that the run has read is gone or was written again while it did."""
    for one, own in zip(pipeline.inputs, plan.of_inputs(), strict=True):
        confirm_files(spark, one, own)
    if plan.pinned:
        check_pinned(spark, plan.pinned)
    elif plan.behind is not None:
        open_planned(spark, pipeline, plan)


def _opened_again(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> OpenHistory:
    if plan.definition_hash != pipeline.definition_hash:
        raise DefinitionError(
            f"the definition has changed since the plan was made (plan {plan.definition_hash[:12]}, "
            f"now {pipeline.definition_hash[:12]})",
            pipeline.file or pipeline.name,
            "Plan again.",
        )
    return open_planned(spark, pipeline, plan)


def open_planned(spark: SparkSession, pipeline: Pipeline, plan: Plan) -> OpenHistory:
    """The history as the plan has pinned it, as this definition reads it."""
    return open_history(spark, pipeline, plan.pins)


def arrival_limit(pipeline: Pipeline, now: datetime) -> int | None:
    """From this instant on (epoch ms) arrivals are ahead of the clock.

    None: a run ends where the live job's own recorded reading does.
    """
    if pipeline.records_what_it_read:
        return None
    return int(now.timestamp() * 1000) + pipeline.quarantine.ahead


def _records_of(plan: Plan, pipeline: Pipeline, opened: OpenHistory) -> DataFrame:
    records = canonical(opened, pipeline)
    return cut_at(records, plan.as_of) if plan.cuts else records


def _covering(pipeline: Pipeline, times: TimeRange) -> TimeRange:
    """A range that holds every window of these event times. Sessions lie where their records are."""
    windows = windows_of(pipeline)
    if isinstance(pipeline.window, BetweenEventsWindow):  # it begins up to its length before its first record
        return TimeRange(max(0, times.start - pipeline.window.time_difference), times.end)
    return windows.covering(times)


def _closes_looked_up(pipeline: Pipeline, strategy: WatermarkStrategy) -> int:
    """How many closes each window end has: one, or one in each partition."""
    return max(1, len(strategy.partitions)) if rule_book_of(pipeline).closes_by_partition else 1


def _why_unusable(records: DataFrame) -> str:
    """The commonest reasons for which records are in quarantine, as a hint."""
    reasons = quarantined(records).groupBy("reason").count().sort("count", "reason", ascending=[False, True]).head(3)
    return f"Why they cannot be used: {', '.join(f'{row[0]} ({row[1]} records)' for row in reasons)}."


def _check_registered(pipeline: Pipeline, seen: Inspection, mode: Mode) -> None:
    for one, own in _by_input(pipeline, seen):
        registered = one.watermark.partitions
        if registered is None:
            if not own and pipeline.inputs and mode is not Mode.COMPLETE:
                raise HistoryError(
                    "an input of the union has no record, and which partitions it reads is not known",
                    one.source_of(("history",)) or pipeline.name,
                    "Register them: watermark.partitions. A partition without records holds the watermark.",
                )
            continue
        unknown = sorted(own.keys() - set(registered))
        if unknown:
            raise HistoryError(
                f"the history holds partition {', '.join(map(str, unknown))}, which watermark.partitions does not "
                "register",
                one.source_of(("watermark", "partitions")) or pipeline.name,
                "Register it, or leave `partitions` out to take those of the history.",
            )


def _by_input(pipeline: Pipeline, seen: Inspection) -> list[tuple[Pipeline, dict[int, PartitionRange]]]:
    """The inputs of a union with what was seen of their partitions, under their own numbers; else the one history."""
    found = {p.partition: p for p in seen.partitions}
    if not pipeline.inputs:
        return [(pipeline, found)]
    return [(one, of_input(found, number)) for number, one in enumerate(pipeline.inputs)]


def _warnings(
    pipeline: Pipeline, windows: AnyWindows, seen: Inspection, *, mode: Mode, opened: OpenHistory
) -> tuple[str, ...]:
    found = []
    parts = zip(_by_input(pipeline, seen), opened.inputs or (opened,), names_of(pipeline) or ("",), strict=True)
    for (one, own), part, name in parts:
        said = []
        if mode is not Mode.COMPLETE:
            said += _of_partitions(one, own, seen, part)
            said += fallen_silent(one, windows, own.values(), seen.partitions)
        found += [f"{name}: {text}" if name else text for text in said]
    found += fields_without_effect(pipeline)
    if mode is not Mode.COMPLETE and (lost := lost_by_flink(pipeline)):
        found.append(lost)
    if seen.quarantined:
        found.append(f"{seen.quarantined} of {seen.records} records go to quarantine")
    return tuple(found)


def _of_partitions(
    pipeline: Pipeline, known: Mapping[int, PartitionRange], seen: Inspection, opened: OpenHistory
) -> list[str]:
    registered = pipeline.watermark.partitions
    # A night counts new records only; what it knows of a partition's offsets comes from records before.
    goes_on = seen.history_records != seen.records
    empty = sorted(set(registered or known) - {number for number, p in known.items() if p.records or goes_on})
    return live_engine(pipeline).warnings(pipeline, known.keys(), empty, knows_all=opened.topic is not None)


def _not_read(pipeline: Pipeline, ends: Mapping[int, int]) -> list[str]:
    """Which last records are ahead of the clock."""
    limit, names = format_duration(pipeline.quarantine.ahead), names_of(pipeline)
    return [
        f"partition {partition_in_words(partition, names)}: the records from offset {end} on arrived more than {limit} "
        "ahead of the clock; they are not read until they have come to pass, or others follow"
        for partition, end in sorted(ends.items())
    ]


_EMPTY_TIMES, _EMPTY_ENDS = 1000, 10_000
"""So many times as many window ends as records, and so many ends at least, are nearly all without a record."""


def _emptiness(seen: Inspection, ends: int | None) -> tuple[str, ...]:
    records = seen.history_records or seen.records
    if ends is None or seen.event_times is None or ends < max(_EMPTY_ENDS, _EMPTY_TIMES * records):
        return ()
    first, last = format_instant(seen.event_times.start), format_instant(seen.event_times.end - 1)
    return (
        f"{ends:,} window ends lie between the first and the last of {records:,} records: their event times go from "
        f"{first} to {last}. Where some are wrong (a clock, a 0), set event_time.earliest or event_time.latest: such "
        "records go to quarantine",
    )


def describe_span(span: TimeRange) -> str:
    """A range of windows for people: both ends in UTC, and its length."""
    length = format_duration(span.end - span.start)
    return f"{format_instant(span.start)} to {format_instant(span.end)} ({length})"
