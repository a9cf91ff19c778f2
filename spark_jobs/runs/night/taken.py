"""Take the reading of a run: the positions that it reads, and what the history is known by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import of_input, of_union
from spark_jobs.errors import HistoryError
from spark_jobs.pins import PinnedSnapshot, ends_of
from spark_jobs.positions import Found, Known, all_of, most_buckets
from spark_jobs.runs.night.compared import Compared, compared, read_again
from spark_jobs.runs.night.reading import Empty, PartitionReading, Reading, grown, placed_by, placed_in
from spark_jobs.sources import (
    Identity,
    Inspection,
    OpenHistory,
    canonical,
    cut_at,
    empty_after,
    empty_in_both,
    empty_offsets,
    identity_of,
    inputs_of,
    inspect_history,
    names_of,
    snapshot_size,
    without_files,
)
from spark_jobs.sources.records.attempts import or_null
from spark_jobs.sources.records.canonical import MISSING_EVENT_TIME, drops_without_event_time
from spark_jobs.sources.records.decode import REASON

_WAY_OUT = (
    "Write the windows of another log to another table (output.table). Where what is there now is to take the place of "
    "all that is published: `rewindow run --another-log` (in the form: Another log)."
)


@dataclass(frozen=True, slots=True)
class ReadBefore:
    """The reading of a pipeline, and the run that took it last.

    `moved`: the inputs of a union that have other numbers by now than that run's; the reading has those of now.
    """

    run_id: str
    reading: Reading
    moved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taken:
    """The reading of a run over the history, beside the one before it.

    `another_log`: how the history differs from the log that was read before; empty: it is the same one.
    """

    reading: Reading
    another_log: str = ""


def identities_of(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, ends: Mapping[int, int]
) -> tuple[Identity, ...]:
    """What the history is known by, of a union each input. `ends`: up to where it is read."""
    return tuple(
        identity_of(spark, one, part, of_input(ends, number) if pipeline.inputs else ends)
        for number, (one, part) in enumerate(inputs_of(pipeline, opened))
    )


def take(
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
    """The reading of a run that reads the whole history, `seen` up to its ends; `records` are the canonical ones.

    `before`: the reading that the pipeline has. `accepts_another`: the history may be another log; then nothing of the
    one before is gone. `asked`: the end offsets that the run was asked for; None: it reads all that is there. Where
    some were, those that were opened do not say where a topic ends.

    Raises HistoryError where it is another log.
    """
    ends = _reach(pipeline, ends_of(seen.partitions), {} if before is None else before.reading.ends, asked)
    found = positions_of(spark, pipeline, opened, seen, {} if before is None else before.reading.known, ends)
    identities = identities_of(spark, pipeline, opened, ends)
    empty = empty_offsets(records, seen.partitions) if _knows_empty(pipeline) else None
    most = most_buckets(len(ends))
    partitions = {p: PartitionReading.of(end, all_of(found.get(p, {})).fitted(most)) for p, end in ends.items()}
    unplaced = seen.records - placed_in(seen.positions)
    fresh = Reading(
        tuple(map(without_files, identities)),
        partitions,
        empty,
        placed_by(pipeline),
        unplaced,
        inputs=names_of(pipeline),
        without_place=seen.without_place,
    )
    if before is None:
        return Taken(fresh)
    known = before.reading
    is_alike = known.placed_by == fresh.placed_by and not before.moved  # a digest has the number of the partition
    read_to, trusted = {p: asked.get(p, 0) for p in known.partitions} if asked else {}, _trusted(pipeline, identities)
    beside = compared(known, found, read_to, by_arrival=is_alike, trusted_from=trusted)
    if problem := _another_log(
        pipeline, identities, before, found, beside, is_cut=asked is not None, ends=_ends_of(opened)
    ):
        if not accepts_another:
            raise HistoryError(problem, opened.description, _WAY_OUT)
        return Taken(fresh, problem)
    again = read_again(known, found, ends, beside)
    if before.moved and any(partition.positions.gone for partition in again.values()):
        raise _moved(before, opened)
    empty = empty_in_both(known.empty, known.ends, empty)
    return Taken(replace(fresh, partitions=again, empty=empty, final_until=known.final_until))


def _reach(
    pipeline: Pipeline, ends: Mapping[int, int], before: Mapping[int, int], asked: Mapping[int, int] | None
) -> dict[int, int]:
    """Up to where a run has read: the ends of its records, and what it leaves out behind them and was read before.

    Without the last, records would be gone that a filter alone takes away.
    """
    reach = dict(ends)
    for number, one in enumerate(pipeline.inputs or (pipeline,)):
        if is_topic(one) or unfiltered(one) is None:
            continue
        known = of_union(of_input(before, number), number) if pipeline.inputs else before
        for partition, end in known.items():
            reach[partition] = max(min(end, asked.get(partition, 0)) if asked else end, reach.get(partition, 0))
    return reach


def _moved(before: ReadBefore, opened: OpenHistory) -> HistoryError:
    return HistoryError(
        f"the inputs {', '.join(before.moved)} of the union have other numbers than in run {before.run_id}, and "
        "records that it has read are gone: what is kept of them names their partitions by these numbers",
        opened.description,
        "Leave the inputs in their order, and put new ones behind them; or write to another table (output.table).",
    )


def positions_of(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    seen: Inspection,
    known: Mapping[int, Known],
    ends: Mapping[int, int],
    frame_of: Callable[[int], DataFrame | None] = lambda number: None,
) -> Found:
    """The positions of all records below `ends`, also of those that the definition leaves out.

    A filter, or a lookup that it uses, would take records away where they are all there. `frame_of`: rows of an
    input's frame, in place of all.
    """
    found = dict(seen.positions)
    for number, (one, part) in enumerate(inputs_of(pipeline, opened)):
        if is_topic(one) or unfiltered(one) is None:
            continue
        is_part = bool(pipeline.inputs)
        own_ends, own_known = (of_input(ends, number), of_input(known, number)) if is_part else (ends, known)
        positions = _unfiltered(spark, one, part, own_ends, own_known, frame_of(number))
        numbered = of_union(positions, number) if is_part else positions
        others = {p: zones for p, zones in found.items() if p not in (of_union(own_ends, number) if is_part else ends)}
        found = {**others, **numbered}
    return found


def _unfiltered(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    ends: Mapping[int, int],
    known: Mapping[int, Known],
    frame: DataFrame | None,
) -> Found:
    whole = unfiltered(pipeline) or pipeline
    records = canonical(opened, whole, frame)
    return inspect_history(spark, whole, opened, records=cut_at(records, ends), until=0, known=known).positions


def unfiltered(pipeline: Pipeline) -> Pipeline | None:
    """The definition with all records that it leaves out before the watermark; None: it leaves none out."""
    drops = drops_without_event_time(pipeline)
    if pipeline.filter.before_watermark is None and not drops:
        return None
    missing = "quarantine" if drops else pipeline.event_time.missing
    event_time = pipeline.event_time.model_copy(update={"missing": missing})
    filter_ = pipeline.filter.model_copy(update={"before_watermark": None})
    return pipeline.model_copy(update={"filter": filter_, "event_time": event_time})


def is_rejected(records: DataFrame, pipeline: Pipeline) -> Column:
    """Whether the definition itself leaves out a canonical record of the definition `unfiltered`."""
    condition = pipeline.filter.before_watermark
    fails = F.lit(False) if condition is None else ~F.coalesce(or_null(records, condition), F.lit(False))
    is_missing = F.lit(drops_without_event_time(pipeline)) & F.col(REASON).eqNullSafe(MISSING_EVENT_TIME)
    return (F.col(REASON).isNull() & fails) | is_missing


def _knows_empty(pipeline: Pipeline) -> bool:
    """Whether the canonical records tell which offsets hold none: not where a filter leaves records out.

    Nothing comes late to a topic.
    """
    return not is_topic(pipeline) and all(unfiltered(one) is None for one in pipeline.inputs or (pipeline,))


def is_topic(pipeline: Pipeline) -> bool:
    """Whether the history is a topic alone: nothing comes late to one."""
    return pipeline.history.topic_alone is not None


def _trusted(pipeline: Pipeline, identities: Sequence[Identity]) -> dict[int, int]:
    """From which offset on a topic has what it had: by partition; none where compaction may remove any record."""
    found: dict[int, int] = {}
    for number, (one, own) in enumerate(zip(pipeline.inputs or (pipeline,), identities, strict=True)):
        topic = one.history.topic_alone
        if topic is not None and "compacted" not in topic.accept:
            starts = own.starts or {}
            found |= of_union(starts, number) if pipeline.inputs else starts
    return found


def _ends_of(opened: OpenHistory) -> list[dict[int, int]]:
    """Where the topic of each input ends, as it was opened."""
    parts = opened.inputs or (opened,)
    return [{} if one.topic is None else {r.partition: r.end for r in one.topic.ranges} for one in parts]


def _another_log(
    pipeline: Pipeline,
    identities: Sequence[Identity],
    before: ReadBefore,
    found: Found,
    beside: Compared,
    *,
    is_cut: bool,
    ends: Sequence[Mapping[int, int]],
) -> str:
    """How the history differs from the log that was read before; empty: it is the same one."""
    known, names = before.reading, names_of(pipeline)
    if len(known.identities) != len(identities):
        return ""  # another number of inputs: the definition says so
    for number, (then, now) in enumerate(zip(known.identities, identities, strict=True)):
        own = beside.of_input(number) if names else beside
        read = of_input(known.ends, number) if names else known.ends
        what = other_topic(then, now, before.run_id)
        if not what and not is_cut:
            what = shorter_topic(read, ends[number], before.run_id)
        if not what and own.is_another_log:
            there = sum(all_of(zones).count for p, zones in found.items() if not names or p in of_union(read, number))
            what = (
                f"the history is another one: none of the records that run {before.run_id} has read is there, and "
                f"{there} others are"
            )
        if what:
            return f"{names[number]}: {what}" if names else what
    return ""


def other_topic(then: Identity, now: Identity, run_id: str) -> str:
    """A sentence if the topic was made again; empty: it was not."""
    if then.topic_id is None or now.topic_id is None or then.topic_id == now.topic_id:
        return ""
    return f"the topic was created again after run {run_id} (id {then.topic_id}, now {now.topic_id})"


def shorter_topic(read: Mapping[int, int], ends: Mapping[int, int], run_id: str) -> str:
    """A sentence if a topic ends before what was read of it; empty: it does not."""
    for partition, end in sorted(read.items()):
        if ends.get(partition, end) < end:
            return f"partition {partition} ends at offset {ends[partition]}, and run {run_id} has read it up to {end}"
    return ""


def refuse_another_topic(
    identities: Sequence[Identity], before: ReadBefore, opened: OpenHistory, names: Sequence[str]
) -> None:
    """Raises HistoryError where a topic was made again, or ends before what was read of it."""
    for number, (then, now) in enumerate(zip(before.reading.identities, identities, strict=True)):
        read = of_input(before.reading.ends, number) if names else before.reading.ends
        ends = _ends_of(opened)[number]
        if what := other_topic(then, now, before.run_id) or shorter_topic(read, ends, before.run_id):
            raise HistoryError(f"{names[number]}: {what}" if names else what, opened.description, _WAY_OUT)


def take_new(
    pipeline: Pipeline,
    identities: tuple[Identity, ...],
    before: ReadBefore,
    found: Found,
    new: DataFrame,
    seen: Inspection,
    *,
    lacks: bool,
) -> Reading:
    """The reading after a night that has read the records from the ends on alone. `found`: their positions."""
    known = before.reading
    ends = ends_of(seen.partitions)
    empty: Empty | None = None
    if known.empty is not None and _knows_empty(pipeline):
        empty = empty_after(known.empty, known.ends, empty_offsets(new, seen.partitions))
    whole = grown(known, tuple(map(without_files, identities)), ends, found, empty=empty, lacks=lacks)
    without_place = None if known.without_place is None else known.without_place + seen.without_place
    unplaced = known.unplaced + seen.records - placed_in(seen.positions)
    return replace(whole, unplaced=unplaced, without_place=without_place)


def read_whole(spark: SparkSession, pipeline: Pipeline, before: ReadBefore) -> tuple[PinnedSnapshot | None, ...]:
    """The snapshot of each input of which each record was read, by the table's own number of records.

    None where records of it were left out (by `until`, end offsets, the clock, the live job itself), and where the
    table does not say how many it has.
    """
    readings = before.reading.of_inputs() if pipeline.inputs else [before.reading]
    return tuple(_whole(spark, own) for own in readings)


def _whole(spark: SparkSession, reading: Reading) -> PinnedSnapshot | None:
    snapshot = reading.identities[0].snapshot
    if snapshot is None or reading.has_gone:
        return None
    records, _ = snapshot_size(spark, snapshot)
    return snapshot if records == sum(reading.counts.values()) else None
