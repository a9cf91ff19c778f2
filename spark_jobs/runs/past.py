"""What identifies the history that a run has read.

End offsets alone say little: a file can come late with lower offsets, come twice, be replaced or go; a log can begin
anew. So a run keeps more (`Past`), and a run that goes on from it compares that first (`past_changes`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import of_input
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.columns import ARRIVAL, OFFSET, PARTITION, SEQUENCE, end_offset
from spark_jobs.sources import (
    Change,
    Empty,
    Inspection,
    PinnedFile,
    PinnedSchemas,
    PinnedSnapshot,
    TableFormat,
    change_between,
    changed_files,
    empty_in_both,
    is_empty,
    records_of_input,
)

if TYPE_CHECKING:
    from spark_jobs.runs.plan_document import Plan

T = TypeVar("T")
KEY = "past"
"""Where the saved state of a timeline has it."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a run has read.

    `files`: of files and Hive tables, None where nobody knows them. `snapshot`: of a lake table. `starts`: of a
    topic, the first offset of each partition. `counts`: the records below the end offset by partition. `empty`: the
    offsets below it that no run has read a record of. `has_lost`: runs before have read records that are not there any
    more, and windows that were made of them are published. `schemas`: digests of those of a registry, see
    `PinnedSchemas.digests`. `inputs`: the same of each input of a union, under its own partition numbers, with the
    `topic_id` of its topic.
    """

    files: tuple[PinnedFile, ...] | None
    starts: Mapping[int, int] | None
    counts: Mapping[int, int] | None
    has_lost: bool = False
    snapshot: PinnedSnapshot | None = None
    schemas: Mapping[str, str] | None = None
    empty: Empty | None = None
    topic_id: str | None = None
    inputs: tuple[Past, ...] = ()

    @classmethod
    def of(cls, plan: Plan, lost: ReadBefore | None) -> Past:
        """What a run has read by its plan. `lost`: what runs before had read; None: all of that is there."""
        starts = None if plan.topic is None else {r.partition: r.start for r in plan.topic.ranges}
        empty = plan.empty
        if lost is not None:  # what is gone is not what was never there
            empty = empty_in_both(None if lost.past is None else lost.past.empty, lost.as_of, empty)
        schemas = None if plan.schemas is None else plan.schemas.digests
        topic_id = None if plan.topic is None else plan.topic.topic_id
        owns = plan.of_inputs()
        losts = [None] * len(owns) if lost is None else lost.of_inputs(len(owns))
        inputs = tuple(cls.of(own, one) for own, one in zip(owns, losts, strict=True))
        return cls(
            plan.files, starts, plan.history_counts, lost is not None, plan.snapshot, schemas, empty, topic_id, inputs
        )

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Past | None:
        """That of a saved state; None: an earlier version saved it."""
        data = state.get(KEY)
        return None if data is None else cls._read(data)

    @classmethod
    def _read(cls, data: Mapping[str, Any]) -> Past:
        files = data["files"]
        return cls(
            None if files is None else tuple(PinnedFile(*file) for file in files),
            _by_partition(data["starts"]),
            _by_partition(data["counts"]),
            data["has_lost"],
            None if data.get("snapshot") is None else _snapshot(*data["snapshot"]),
            data.get("schemas"),
            _by_partition(data.get("empty")),
            data.get("topic_id"),
            tuple(cls._read(one) for one in data.get("inputs", ())),
        )

    def to_state(self) -> dict[str, Any]:
        """As JSON values; a file is `[path, size, modified]`, a snapshot `[table, uuid, snapshot, format]`."""
        files = None if self.files is None else [[f.path, f.size, f.modified] for f in self.files]
        snapshot = None if self.snapshot is None else list(astuple(self.snapshot))
        return {
            "files": files,
            "starts": self.starts,
            "counts": self.counts,
            "has_lost": self.has_lost,
            "snapshot": snapshot,
            "schemas": self.schemas,
            "empty": self.empty,
            "topic_id": self.topic_id,
            "inputs": [one.to_state() for one in self.inputs],
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


def _snapshot(table: str, uuid: str, snapshot: int | None, kind: str = TableFormat.ICEBERG) -> PinnedSnapshot:
    """Earlier versions kept no format: all tables were Iceberg's."""
    return PinnedSnapshot(table, uuid, snapshot, TableFormat(kind))


def _by_partition(data: Mapping[str, T] | None) -> dict[int, T] | None:
    return None if data is None else {int(partition): number for partition, number in data.items()}


@dataclass(frozen=True, slots=True)
class ReadBefore:
    """What the run has read that was published last of those that kept it, its end offsets, and the id of its topic."""

    run_id: str
    past: Past | None
    as_of: Mapping[int, int]
    topic_id: str | None = None

    def of_inputs(self, count: int) -> list[ReadBefore]:
        """The same of each input of a union, under its own partition numbers."""
        pasts = (None,) * count if self.past is None or len(self.past.inputs) != count else self.past.inputs
        return [
            ReadBefore(self.run_id, past, of_input(self.as_of, number), None if past is None else past.topic_id)
            for number, past in enumerate(pasts)
        ]

    @classmethod
    def latest(
        cls, spark: SparkSession, tables: Tables, pipeline: Pipeline, *, but: str | None = None
    ) -> ReadBefore | None:
        """`but`: the run that asks. None: no run has kept it."""
        states = spark.table(tables.timeline_state).where(F.col("pipeline") == pipeline.name)
        known = {row["run_id"]: row for row in states.select("run_id", "as_of", "state").collect()}
        known.pop(but, None)
        _, last = Ledger(spark, tables).latest_published(F.col("run_id").isin(list(known))) if known else (None, None)
        if last is None:
            return None
        row = known[last["run_id"]]
        state = json.loads(row["state"])
        return cls(last["run_id"], Past.from_state(state), row["as_of"] or {}, state.get("topic_id"))


@dataclass(frozen=True, slots=True)
class FilesSince:
    """How the files differ from those that an earlier run has read."""

    gone: tuple[PinnedFile, ...]
    changed: tuple[tuple[PinnedFile, PinnedFile], ...]
    added: tuple[PinnedFile, ...]
    are_others: bool

    @classmethod
    def between(cls, before: Sequence[PinnedFile], now: Sequence[PinnedFile]) -> FilesSince:
        known, others = {file.path for file in before}, list(changed_files(before, now))
        gone = tuple(file for file, found in others if found is None)
        return cls(
            gone,
            tuple((file, found) for file, found in others if found is not None),
            tuple(file for file in now if file.path not in known),
            bool(before) and len(gone) == len(before),
        )


def counted_below(
    records: DataFrame, pipeline: Pipeline, as_of: Mapping[int, int], empty: Empty | None = None
) -> tuple[dict[int, int], dict[int, int]]:
    """The records below the end offsets by partition, and those of them at offsets that held none before (`empty`)."""
    position = pipeline.history.position  # a record without one is in no partition's count
    below = records.where(F.col(OFFSET) < end_offset(as_of))
    if position.arrival is not None:
        below = below.where(F.col(ARRIVAL).isNotNull())
    if position.sequence is not None:
        below = below.where(F.col(SEQUENCE).isNotNull())
    rows = below.groupBy(PARTITION).agg(F.count("*"), F.count_if(is_empty(empty))).collect()
    return {row[0]: row[1] for row in rows}, {row[0]: row[2] for row in rows if row[2]}


def is_past_of(plan: Plan, pipeline: Pipeline, records: DataFrame, past: Past | None, as_of: Mapping[int, int]) -> bool:
    """Whether the plan's `records` below these end offsets are those that an earlier run has read, as far as is known.

    They are counted where there are other files than then.
    """
    if plan.inputs:
        owns = zip(plan.of_inputs(), pipeline.inputs, () if past is None else past.inputs, strict=False)
        return (
            past is not None
            and len(past.inputs) == len(plan.inputs)
            and all(
                is_past_of(own, one, records_of_input(records, number), before, of_input(as_of, number))
                and before.topic_id == (None if own.topic is None else own.topic.topic_id)
                for number, (own, one, before) in enumerate(owns)
            )
        )
    if past is not None and past.other_schemas(plan.schemas):
        return False
    if past is not None and past.snapshot is not None and plan.snapshot is not None:
        change = change_between(records.sparkSession, past.snapshot, plan.snapshot)
        if change is Change.APPENDED:
            return counted_below(records, pipeline, as_of, past.empty) == (past.counts, {})
        return change is Change.NONE
    if past is None or past.files is None or plan.files is None:
        return True
    files = FilesSince.between(past.files, plan.files)
    if files.gone or files.changed:
        return False
    return not files.added or counted_below(records, pipeline, as_of, past.empty) == (past.counts, {})


def counts_after(below: Mapping[int, int] | None, seen: Inspection) -> dict[int, int] | None:
    """The records by partition after new ones were read; None where those before were not counted."""
    if below is None:
        return None
    return sums(below, {p.partition: p.records for p in seen.partitions})


def sums(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {p: one.get(p, 0) + other.get(p, 0) for p in sorted(one.keys() | other.keys())}
