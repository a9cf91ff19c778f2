"""What identifies the history that a run has read, and what a later run finds changed of it.

End offsets alone say little: a file can come late with lower offsets, come twice, be replaced or go; a log can begin
anew. So a run keeps more (`Past`), and a run that goes on from it compares that first (`Comparison`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import Topic
from spark_jobs.errors import HistoryError
from spark_jobs.replay.columns import ARRIVAL, OFFSET, PARTITION, SEQUENCE, end_offset
from spark_jobs.runs.plan import Plan
from spark_jobs.sources import (
    Change,
    Inspection,
    OpenHistory,
    PinnedFile,
    PinnedSchemas,
    PinnedSnapshot,
    change_between,
    cut_at,
    is_small,
)
from spark_jobs.sources.files import how_it_changed
from spark_jobs.spark.failures import plain_path

KEY = "past"
"""Where the saved state of a timeline has it."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a run has read.

    `files`: of files and Hive tables, None where nobody knows them. `snapshot`: of an Iceberg table. `starts`: of a
    topic, the first offset of each partition. `counts`: the records below the end offset by partition. `has_lost`: runs
    before have read records that are not there any more, and windows that were made of them are published. `schemas`:
    digests of those of a registry, see `PinnedSchemas.digests`.
    """

    files: tuple[PinnedFile, ...] | None
    starts: Mapping[int, int] | None
    counts: Mapping[int, int] | None
    has_lost: bool = False
    snapshot: PinnedSnapshot | None = None
    schemas: Mapping[str, str] | None = None

    @classmethod
    def of(cls, plan: Plan, *, has_lost: bool) -> Past:
        starts = None if plan.topic is None else {r.partition: r.start for r in plan.topic.ranges}
        schemas = None if plan.schemas is None else plan.schemas.digests
        return cls(plan.files, starts, plan.history_counts, has_lost, plan.snapshot, schemas)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Past | None:
        """That of a saved state; None: an earlier version saved it."""
        data = state.get(KEY)
        if data is None:
            return None
        files = data["files"]
        return cls(
            None if files is None else tuple(PinnedFile(*file) for file in files),
            _by_partition(data["starts"]),
            _by_partition(data["counts"]),
            data["has_lost"],
            None if data.get("snapshot") is None else PinnedSnapshot(*data["snapshot"]),
            data.get("schemas"),
        )

    def to_state(self) -> dict[str, Any]:
        """As JSON values; a file is `[path, size, modified]`, a snapshot `[table, uuid, snapshot]`."""
        files = None if self.files is None else [[f.path, f.size, f.modified] for f in self.files]
        snapshot = None if self.snapshot is None else list(astuple(self.snapshot))
        return {
            "files": files,
            "starts": self.starts,
            "counts": self.counts,
            "has_lost": self.has_lost,
            "snapshot": snapshot,
            "schemas": self.schemas,
        }

    def other_schemas(self, now: PinnedSchemas | None) -> str:
        """How the registry's schemas differ from those of now; empty where all of them are there as they were."""
        if self.schemas is None or now is None:
            return ""
        found = now.digests
        for name, digest in self.schemas.items():
            if found.get(name, digest) != digest:
                other = f"records are read by another schema ({now.description})"
                return other if name == "reader" else f"schema id {name} of the subject {now.subject} is another schema"
            if name not in found:
                return f"schema id {name} is gone from the subject {now.subject}"
        return ""


def _by_partition(data: Mapping[str, int] | None) -> dict[int, int] | None:
    return None if data is None else {int(partition): number for partition, number in data.items()}


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


@dataclass(frozen=True, slots=True)
class _Files:
    """How the files differ from those that an earlier run has read."""

    gone: tuple[PinnedFile, ...]
    changed: tuple[tuple[PinnedFile, PinnedFile], ...]
    added: tuple[PinnedFile, ...]
    are_others: bool

    @classmethod
    def between(cls, before: Sequence[PinnedFile], now: Sequence[PinnedFile]) -> _Files:
        old, new = ({file.path: file for file in files} for files in (before, now))
        both = [(old[path], new[path]) for path in sorted(old.keys() & new.keys())]
        return cls(
            tuple(file for path, file in old.items() if path not in new),
            tuple(pair for pair in both if not pair[0].is_same_as(pair[1])),
            tuple(file for path, file in new.items() if path not in old),
            bool(old) and not both,
        )


@dataclass(frozen=True)
class Comparison:
    """The history as it is now, to be compared with what the run `run_id` has read below its end offsets `as_of`.

    `everything` are the canonical records; `in_files` gives those of some files; `later` leaves out many of those that
    the run has read. `past` and `records` (how many that
    run and those before it have read) are None where an earlier version did not keep them.
    """

    pipeline: Pipeline
    opened: OpenHistory
    everything: DataFrame
    later: DataFrame
    in_files: Callable[[Sequence[PinnedFile]], DataFrame]
    run_id: str
    as_of: Mapping[int, int]
    past: Past | None
    records: int | None

    def changes(self) -> PastChanges:
        """What has changed. Raises HistoryError where the history is another one now."""
        history, past = self.pipeline.history, self.past
        if self.opened.topic is not None:
            self._refuse_a_shorter_log()
        if past is not None and (why := past.other_schemas(self.opened.schemas)):
            found = PastChanges(f"{why} since run {self.run_id}")
        elif history.is_stitched:  # records go from the topic to the table; all is read anyway
            found = self._by_count()
        elif history.topic_alone is not None:
            found = self._of_topic(history.topic_alone)
        elif past is None:
            found = self._by_total()
        elif past.snapshot is not None and self.opened.snapshot is not None:
            found = self._of_snapshot(past, past.snapshot, self.opened.snapshot)
        elif past.files is None or self.opened.files is None:
            found = self._by_count()
        else:
            found = self._of_files(past, _Files.between(past.files, self.opened.files))
        return replace(found, has_lost=found.has_lost or (past is not None and past.has_lost))

    def _of_files(self, past: Past, files: _Files) -> PastChanges:
        """Files that are there as they were hold what they held. So only new ones are looked into."""
        if files.changed:
            before, now = files.changed[0]
            more = f" and {len(files.changed) - 1} more" if len(files.changed) > 1 else ""
            how = how_it_changed(before, now)
            return PastChanges(f"{plain_path(now.path)}{more} was written again since run {self.run_id}: {how}")
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
            self._refuse_other_files(past, files, below)
            return PastChanges(f"other files have come for those that run {self.run_id} has read")
        found = None if files.gone or past.counts is None else _sums(past.counts, below)
        return PastChanges(self._came_late(sum(below.values()), files), bool(files.gone), found)

    def _refuse_other_files(self, past: Past, files: _Files, below: Mapping[int, int]) -> None:
        what = f"none of the {len(files.gone)} files that run {self.run_id} has read is there"
        self._refuse_another_log(past, below, what, ", ".join(plain_path(file.path) for file in files.added[:3]))

    def _refuse_another_log(self, past: Past, below: Mapping[int, int], what: str, where: str = "") -> None:
        if past.counts is None or all(below.get(p, 0) >= count for p, count in past.counts.items()):
            return
        raise HistoryError(
            f"the history is another one: {what}, and what is there holds {sum(below.values())} records below the end "
            f"offsets of run {self.run_id}, which has read {sum(past.counts.values())}",
            where or self.opened.description,
            "Write the windows of another log to another table (output.table). If the same log was written anew, "
            "`rewindow run` reads it as a whole.",
        )

    def _of_snapshot(self, past: Past, before: PinnedSnapshot, now: PinnedSnapshot) -> PastChanges:
        """What was appended is looked into; after any other change the records are counted."""
        match change_between(self.everything.sparkSession, before, now):
            case Change.NONE:
                return PastChanges(below=past.counts)
            case Change.APPENDED:
                below = self._below(self.later)
                if not below:
                    return PastChanges(below=past.counts)
                found = None if past.counts is None else _sums(past.counts, below)
                return PastChanges(self._came_late(sum(below.values()), None), below=found)
            case Change.REMOVED | Change.UNKNOWN:
                return self._by_count()
            case Change.ANOTHER as change:
                below = self._below(self.everything)
                self._refuse_another_log(past, below, f"table {now.table} was made anew")
                return PastChanges(f"table {now.table} {change.value} since run {self.run_id}")
            case change:
                why = f"table {now.table} {change.value} since run {self.run_id} (snapshot {before.snapshot})"
                return PastChanges(why, self._by_count().has_lost)

    def _of_topic(self, topic: Topic) -> PastChanges:
        """Retention moves the first offset and compaction removes any; both only where the definition accepts it."""
        known = {} if self.past is None or self.past.starts is None else self.past.starts
        starts = {} if self.opened.topic is None else {r.partition: r.start for r in self.opened.topic.ranges}
        has_lost = "compacted" in topic.accept or bool(known.keys() - starts.keys())
        has_lost = has_lost or any(start > known.get(partition, 0) for partition, start in starts.items())
        for partition, start in sorted(starts.items()):
            if start < known.get(partition, 0):
                why = f"partition {partition} begins at offset {start} now, and began at {known[partition]}"
                return PastChanges(why, has_lost)
        counts = None if self.past is None or has_lost else self.past.counts  # a log keeps what it does not delete
        return PastChanges(has_lost=has_lost, below=counts)

    def _refuse_a_shorter_log(self) -> None:
        ends = {} if self.opened.topic is None else {r.partition: r.end for r in self.opened.topic.ranges}
        for partition, end in sorted(self.as_of.items()):
            if ends.get(partition, end) < end:
                raise HistoryError(
                    f"partition {partition} ends at offset {ends[partition]}, and run {self.run_id} has read it up to "
                    f"{end}: the log was truncated, or is another one",
                    self.opened.description,
                    "Write the windows of another log to another table (output.table). `rewindow run` reads what is "
                    "there now.",
                )

    def _by_count(self, files: _Files | None = None) -> PastChanges:
        """Compare the records below the end offsets by partition."""
        below, known = self._below(self.everything), None if self.past is None else self.past.counts
        if known is None:
            return replace(self._by_total(), below=below)
        difference = [below.get(p, 0) - known.get(p, 0) for p in known.keys() | below.keys()]
        more, fewer = sum(max(n, 0) for n in difference), sum(max(-n, 0) for n in difference)
        return PastChanges(self._came_late(more, files) if more else "", bool(fewer), below)

    def _by_total(self) -> PastChanges:
        """What an earlier version kept: how many records it had read. It is compared where counting costs little."""
        if self.records is None or not is_small(self.opened):
            return PastChanges()
        more = cut_at(self.everything, self.as_of).count() - self.records
        return PastChanges(self._came_late(more, None) if more > 0 else "", more < 0)

    def _came_late(self, count: int, files: _Files | None) -> str:
        named = f" of {plain_path(files.added[0].path)}" if files is not None and len(files.added) == 1 else ""
        return f"{count} records{named} lie below the end offsets of run {self.run_id}, which has not read them"

    def _below(self, records: DataFrame) -> dict[int, int]:
        return _counts_below(records, self.pipeline, self.as_of)


def _counts_below(records: DataFrame, pipeline: Pipeline, as_of: Mapping[int, int]) -> dict[int, int]:
    position = pipeline.history.position  # a record without one is in no partition's count
    below = records.where(F.col(OFFSET) < end_offset(as_of))
    if position.arrival is not None:
        below = below.where(F.col(ARRIVAL).isNotNull())
    if position.sequence is not None:
        below = below.where(F.col(SEQUENCE).isNotNull())
    return {row[0]: row[1] for row in below.groupBy(PARTITION).count().collect()}


def is_past_of(plan: Plan, pipeline: Pipeline, records: DataFrame, past: Past | None, as_of: Mapping[int, int]) -> bool:
    """Whether the plan's `records` below these end offsets are those that an earlier run has read, as far as is known.

    They are counted where there are other files than then.
    """
    if past is not None and past.other_schemas(plan.schemas):
        return False
    if past is not None and past.snapshot is not None and plan.snapshot is not None:
        change = change_between(records.sparkSession, past.snapshot, plan.snapshot)
        if change is Change.APPENDED:
            return _counts_below(records, pipeline, as_of) == past.counts
        return change is Change.NONE
    if past is None or past.files is None or plan.files is None:
        return True
    files = _Files.between(past.files, plan.files)
    if files.gone or files.changed:
        return False
    return not files.added or _counts_below(records, pipeline, as_of) == past.counts


def counts_after(below: Mapping[int, int] | None, seen: Inspection) -> dict[int, int] | None:
    """The records by partition after new ones were read; None where those before were not counted."""
    if below is None:
        return None
    return _sums(below, {p.partition: p.records for p in seen.partitions})


def _sums(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {p: one.get(p, 0) + other.get(p, 0) for p in sorted(one.keys() | other.keys())}
