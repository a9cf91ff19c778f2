"""What a run that goes on from an earlier one finds changed of the history that that one has read.

The history may be another log: it holds other records than those that an earlier run has read, at the same offsets. A
reconciliation refuses it. So does a run by hand, unless a person says that what is there now takes the place of all
that is published: offsets of two logs say nothing of each other, so no window of one can be kept beside the other's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import Topic
from spark_jobs.definition.union import of_union
from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.past import FilesSince, Past, ReadBefore, counted_below, sums
from spark_jobs.sources import (
    Change,
    Later,
    OpenHistory,
    PinnedFile,
    PinnedSnapshot,
    canonical,
    change_between,
    cut_at,
    is_small,
    names_of,
    records_of_input,
    source_of,
)
from spark_jobs.sources.files import how_it_changed
from spark_jobs.spark.failures import plain_path


@dataclass(frozen=True, slots=True)
class PastChanges:
    """What a run that goes on from another one has to know of the records below its end offsets.

    `full`: why it has to read the whole history; empty: it has not. `has_lost`: records may be gone that published
    windows were made of: each window is looked at before it is computed again. `below`: the records below the end
    offsets by partition; None where they are not known.
    """

    full: str = ""
    has_lost: bool = False
    below: Mapping[int, int] | None = None


@dataclass(frozen=True)
class Comparison:
    """The history as it is now, to be compared with what the run `before` has read below its end offsets.

    `everything` are the canonical records; `in_files` gives those of some files; `later` leaves out many of those that
    the run has read. `records`: how many that run and those before it have read; None: an earlier version did not keep
    that. `inputs`: the same of each input of a union.
    """

    pipeline: Pipeline
    opened: OpenHistory
    everything: DataFrame
    later: Later
    in_files: Callable[[Sequence[PinnedFile]], DataFrame]
    before: ReadBefore
    records: int | None = None
    inputs: tuple[Comparison, ...] = ()

    def refuse_another_log(self) -> None:
        """Raises HistoryError where the history is another one now, whatever a run does with it."""
        refuse_another_log(self.pipeline, self.opened, self.before, self.everything, self.in_files)

    def changes(self) -> PastChanges:
        """What has changed. Raises HistoryError where the history is another one now."""
        history, past = self.pipeline.history, self.before.past
        if self.inputs:
            return self._of_union()
        self.refuse_another_log()
        if past is not None and (why := past.other_schemas(self.opened.schemas)):
            found = PastChanges(f"{why} since run {self.before.run_id}")
        elif history.is_stitched:
            found = self._of_stitched(past)
        elif history.topic_alone is not None:
            found = self._of_topic(history.topic_alone)
        elif past is None:
            found = self._by_total()
        elif past.snapshot is not None and self.opened.snapshot is not None:
            found = self._of_snapshot(past, past.snapshot, self.opened.snapshot, self.later.change)
        elif past.files is None or self.opened.files is None:
            found = self._by_count()
        else:
            found = self._of_files(past, FilesSince.between(past.files, self.opened.files))
        return replace(found, has_lost=found.has_lost or (past is not None and past.has_lost))

    def _of_union(self) -> PastChanges:
        """What has changed of any input."""
        found = [one.changes() for one in self.inputs]
        full = next(
            (f"{name}: {one.full}" for name, one in zip(names_of(self.pipeline), found, strict=True) if one.full), ""
        )
        below: dict[int, int] | None = {}
        for number, one in enumerate(found):
            below = None if below is None or one.below is None else below | of_union(one.below, number)
        return PastChanges(full, any(one.has_lost for one in found), below)

    def _of_files(self, past: Past, files: FilesSince) -> PastChanges:
        """Files that are there as they were hold what they held. So only new ones are looked into."""
        if files.changed:
            before, now = files.changed[0]
            more = f" and {len(files.changed) - 1} more" if len(files.changed) > 1 else ""
            how = how_it_changed(before, now)
            return PastChanges(f"{plain_path(now.path)}{more} was written again since run {self.before.run_id}: {how}")
        if not files.gone and not files.added:
            return PastChanges(below=past.counts)
        comes_and_goes = files.gone and files.added  # as many records can come as go
        if not comes_and_goes and is_small(self.opened) and past.counts is not None:
            return self._by_count(files)
        below = self._below(self.in_files(files.added)) if files.added else {}
        if not below:
            if not files.gone:
                return PastChanges(below=past.counts)
            return PastChanges(has_lost=True, below=self._below(self.everything) if is_small(self.opened) else None)
        if files.are_others:
            return PastChanges(f"other files have come for those that run {self.before.run_id} has read")
        found = None if files.gone or past.counts is None else sums(past.counts, below)
        return PastChanges(self._came_late(sum(below.values()), files), bool(files.gone), found)

    def _of_snapshot(
        self, past: Past, before: PinnedSnapshot, now: PinnedSnapshot, change: Change | None
    ) -> PastChanges:
        """What was appended is looked into; after any other change the records are counted."""
        match change:
            case Change.NONE:
                return PastChanges(below=past.counts)
            case Change.APPENDED:
                below = self._below(self.later.frame)
                if not below:
                    return PastChanges(below=past.counts)
                found = None if past.counts is None else sums(past.counts, below)
                return PastChanges(self._came_late(sum(below.values()), None), below=found)
            case Change.FILLED | Change.REMOVED | Change.UNKNOWN | None:
                return self._by_count()
            case Change.ANOTHER:
                return PastChanges(f"table {now.table} {change.value} since run {self.before.run_id}")
            case _:
                why = _since(now, change, before, self.before.run_id)
                return PastChanges(why, self._by_count().has_lost)

    def _of_stitched(self, past: Past | None) -> PastChanges:
        """Records go from the topic to the table, so they are counted; rows that were changed are as many as before."""
        found = self._by_count()
        before, now = None if past is None else past.snapshot, self.opened.snapshot
        if found.full or before is None or now is None:
            return found
        if change_between(self.everything.sparkSession, before, now) is not Change.REWRITTEN:
            return found
        return replace(found, full=_since(now, Change.REWRITTEN, before, self.before.run_id))

    def _of_topic(self, topic: Topic) -> PastChanges:
        """Retention moves the first offset and compaction removes any; both only where the definition accepts it."""
        known = {} if self.before.past is None or self.before.past.starts is None else self.before.past.starts
        starts = {} if self.opened.topic is None else {r.partition: r.start for r in self.opened.topic.ranges}
        has_lost = "compacted" in topic.accept or bool(known.keys() - starts.keys())
        has_lost = has_lost or any(start > known.get(partition, 0) for partition, start in starts.items())
        for partition, start in sorted(starts.items()):
            if start < known.get(partition, 0):
                why = f"partition {partition} begins at offset {start} now, and began at {known[partition]}"
                return PastChanges(why, has_lost)
        past = None if has_lost else self.before.past
        return PastChanges(has_lost=has_lost, below=None if past is None else past.counts)  # a log keeps all else

    def _by_count(self, files: FilesSince | None = None) -> PastChanges:
        """Compare the records below the end offsets by partition."""
        past = self.before.past
        empty = None if past is None else past.empty
        below, late = counted_below(self.everything, self.pipeline, self.before.as_of, empty)
        if past is None or past.counts is None:
            return replace(self._by_total(), below=below)
        known = past.counts
        # What has come late is not what was there: as many records can come as go.
        difference = [below.get(p, 0) - late.get(p, 0) - known.get(p, 0) for p in known.keys() | below.keys()]
        more, fewer = sum(late.values()) + sum(max(n, 0) for n in difference), sum(max(-n, 0) for n in difference)
        return PastChanges(self._came_late(more, files) if more else "", bool(fewer), below)

    def _by_total(self) -> PastChanges:
        """What an earlier version kept: how many records it had read. It is compared where counting costs little."""
        if self.records is None or not is_small(self.opened):
            return PastChanges()
        more = cut_at(self.everything, self.before.as_of).count() - self.records
        return PastChanges(self._came_late(more, None) if more > 0 else "", more < 0)

    def _came_late(self, count: int, files: FilesSince | None) -> str:
        named = f" of {plain_path(files.added[0].path)}" if files is not None and len(files.added) == 1 else ""
        return f"{count} records{named} lie below the end offsets of run {self.before.run_id}, which has not read them"

    def _below(self, records: DataFrame) -> dict[int, int]:
        return counted_below(records, self.pipeline, self.before.as_of)[0]


def _since(now: PinnedSnapshot, change: Change, before: PinnedSnapshot, run_id: str) -> str:
    return f"table {now.table} {change.value} since run {run_id} (snapshot {before.snapshot})"


_WAY_OUT = (
    "Write the windows of another log to another table (output.table). Where what is there now is to take the place of "
    "all that is published: `rewindow run --another-log` (in the form: Another log)."
)


def refuse_another_log(
    pipeline: Pipeline,
    opened: OpenHistory,
    before: ReadBefore,
    everything: DataFrame,
    in_files: Callable[[Sequence[PinnedFile]], DataFrame],
    *,
    is_cut: bool = False,
) -> None:
    """Raises HistoryError where the history is another one than the run `before` has read.

    `everything` are its canonical records, `in_files` gives those of some files. `is_cut`: end offsets were asked for,
    so those that were opened do not say where a topic ends.
    """
    owns = zip(pipeline.inputs, opened.inputs, before.of_inputs(len(opened.inputs)), strict=True)
    for number, (one, part, own) in enumerate(owns):
        refuse_another_log(
            one, part, own, records_of_input(everything, number), _finder(everything, one, part), is_cut=is_cut
        )
    if opened.inputs:
        return
    topic, past = opened.topic, before.past
    if topic is not None and before.topic_id not in (None, topic.topic_id):
        raise HistoryError(
            f"the topic was created again after run {before.run_id} (id {before.topic_id}, now {topic.topic_id})",
            opened.description,
            f"Its offsets belong to other records now. Stitch the old ones from an archive, or: {_WAY_OUT}",
        )
    if topic is not None and not is_cut:
        _refuse_a_shorter_log(opened, before)
    if past is None or pipeline.history.is_stitched:
        return
    if past.snapshot is not None and opened.snapshot is not None:
        if past.snapshot.uuid != opened.snapshot.uuid:
            below = counted_below(everything, pipeline, before.as_of)[0]
            _refuse_less(before, below, f"table {opened.snapshot.table} was made anew", opened.description)
    elif past.files is not None and opened.files is not None:
        files = FilesSince.between(past.files, opened.files)
        if files.are_others and (below := counted_below(in_files(files.added), pipeline, before.as_of)[0]):
            what = f"none of the {len(files.gone)} files that run {before.run_id} has read is there"
            _refuse_less(before, below, what, ", ".join(plain_path(file.path) for file in files.added[:3]))


def _finder(
    everything: DataFrame, pipeline: Pipeline, opened: OpenHistory
) -> Callable[[Sequence[PinnedFile]], DataFrame]:
    source = source_of(everything.sparkSession, pipeline)
    return lambda files: canonical(opened, pipeline, source.in_files(opened, files))


def is_another_log(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, *, accepted: bool, is_cut: bool
) -> str:
    """How the history differs from the one that was read for what is published; empty: it is the same log.

    Raises HistoryError unless that is `accepted`.
    """
    tables = Tables.of(pipeline)
    if not all(spark.catalog.tableExists(name) for name in (tables.windows, tables.runs, tables.timeline_state)):
        return ""
    before = ReadBefore.latest(spark, tables, pipeline)
    if before is None:
        return ""
    everything = canonical(opened, pipeline)
    try:
        in_files = _finder(everything, pipeline, opened)
        refuse_another_log(pipeline, opened, before, everything, in_files, is_cut=is_cut)
    except HistoryError as problem:
        if not accepted:
            raise
        return problem.what
    return ""


def _refuse_less(before: ReadBefore, below: Mapping[int, int], what: str, where: str) -> None:
    counts = None if before.past is None else before.past.counts
    if counts is None or all(below.get(p, 0) >= count for p, count in counts.items()):
        return
    raise HistoryError(
        f"the history is another one: {what}, and what is there holds {sum(below.values())} records below the end "
        f"offsets of run {before.run_id}, which has read {sum(counts.values())}",
        where,
        _WAY_OUT,
    )


def _refuse_a_shorter_log(opened: OpenHistory, before: ReadBefore) -> None:
    ends = {} if opened.topic is None else {r.partition: r.end for r in opened.topic.ranges}
    for partition, end in sorted(before.as_of.items()):
        if ends.get(partition, end) < end:
            raise HistoryError(
                f"partition {partition} ends at offset {ends[partition]}, and run {before.run_id} has read it "
                f"up to {end}: the log was truncated, or is another one",
                opened.description,
                _WAY_OUT,
            )
