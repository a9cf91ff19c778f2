"""`plan.json`: everything that a run will do, as data. No Spark in this module."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from pydantic import model_validator
from rich.filesize import decimal

from spark_jobs import __version__
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.union import of_input
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.formatting import plural
from spark_jobs.pins import (
    ClockBound,
    PartitionRange,
    PinnedFile,
    PinnedSchemas,
    PinnedSnapshot,
    PinnedTopic,
    Pins,
    ends_of,
)
from spark_jobs.runs.life.documents import Document
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.work.stages import ReplayChunk, chunk_stages


@dataclass(frozen=True)
class Cost:
    """What a run will read, and the `seconds` of its stages, estimated from so many earlier `runs`."""

    records: int
    bytes: int | None
    seconds: dict[str, float] = field(default_factory=dict)
    runs: int = 0

    @property
    def total(self) -> float | None:
        """The seconds of all stages; None: nobody knows."""
        return sum(self.seconds.values()) if self.runs else None

    def in_words(self) -> str:
        """One line for people."""
        read = f"{self.records:,} records" + ("" if self.bytes is None else f", {decimal(self.bytes)}")
        if self.total is None:
            return f"{read}; no run of this pipeline has been published that could say how long it takes"
        stages = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in self.seconds.items() if seconds >= 0.5)
        of = f"{self.runs} earlier run{'s' if self.runs > 1 else ''}"
        about = format_duration(round(self.total) * 1000)
        return f"{read}; about {about}, from {of}" + (f" ({stages})" if stages else "")


@dataclass(frozen=True)
class Undecided:
    """So many `records` of so many `windows` count as dropped, and a checkpoint may have counted them.

    A record is counted in each of its windows.
    """

    records: int
    windows: int

    def in_words(self) -> str:
        """One line for people."""
        which = f"{plural(self.records, 'record')} of {plural(self.windows, 'window')}"
        return f"{which} can be undecided: only the live job's checkpoints say whether they were counted"


class Plan(Document):
    """Everything that a run will do. Times are epoch ms; ranges of windows are `[start, end)` by window start.

    `is_whole`: the range holds every window of the history up to the end offsets. `records` were read for this run;
    `history_records` are those of the whole history up to the end offsets, and `reading` is what the results stand on.
    `clocks`: the arrivals that are ahead of records behind them. `gaps`: what of the range no chunk holds, because no
    record is there.
    `behind`: the files behind a table, `snapshot`: what is read of an Iceberg table, `schemas`: by which values are
    decoded, `lookup`: the snapshot that records are looked up in, see `OpenHistory`; `inputs`: the same of each input
    of a union. `cost`: what the run costs; None where it reads new records alone. `another_log`: how the history
    differs from the log that was read for what is published, all of which goes; empty: it is the same log. `undecided`:
    the records that only the live job's moment decides; None: there can be none, or nobody has counted them. The end is
    `partitions` (their `end_offset`) and `processing_time_end`, up to which the live job's timer has run.
    """

    FILE: ClassVar[str] = "plan.json"

    pipeline: str
    definition_hash: str
    source: str
    partition_columns: tuple[str, ...]
    mode: Mode
    span: TimeRange
    is_whole: bool
    chunks: tuple[TimeRange, ...]
    event_times: TimeRange
    partitions: tuple[PartitionRange, ...]
    processing_time_end: int
    pinned: tuple[PinnedFile, ...]
    topic: PinnedTopic | None
    cuts: bool
    records: int
    quarantined: int
    missing_event_times: int
    window_ends: int | None
    fidelity: str
    fidelity_reasons: tuple[str, ...]
    watermark: str
    warnings: tuple[str, ...]
    reading: Reading
    history_records: int
    version: str = __version__
    gaps: tuple[TimeRange, ...] = ()
    behind: tuple[PinnedFile, ...] | None = None
    snapshot: PinnedSnapshot | None = None
    schemas: PinnedSchemas | None = None
    lookup: PinnedSnapshot | None = None
    cost: Cost | None = None
    another_log: str = ""
    inputs: tuple[Pins, ...] = ()
    clocks: tuple[ClockBound, ...] = ()
    undecided: Undecided | None = None

    def of_inputs(self) -> tuple[Plan, ...]:
        """What the plan says of each input of a union, under the input's own partition numbers."""
        return tuple(self._of_input(pins, number) for number, pins in enumerate(self.inputs))

    def _of_input(self, pins: Pins, number: int) -> Plan:
        own = of_input({p.partition: p for p in self.partitions}, number)
        partitions = tuple(replace(p, partition=partition) for partition, p in own.items())
        return self.model_copy(update={**pins.by_name(), "inputs": (), "partitions": partitions})

    @property
    def named_reading(self) -> Reading:
        """The reading, with the files of each input."""
        return self.reading.named_by([pins.pinned or pins.behind for pins in self.inputs or (self.pins,)])

    @property
    def pins(self) -> Pins:
        """What the plan has pinned of the history."""
        pinned = self.pinned or None
        return Pins(pinned, self.behind, self.topic, self.snapshot, self.schemas, self.inputs, self.lookup, self.clocks)

    @property
    def files(self) -> tuple[PinnedFile, ...] | None:
        """The files that say what is read; None where nobody knows them."""
        return self.pinned or self.behind

    @property
    def as_of(self) -> dict[int, int]:
        """The end offset (exclusive) of each partition."""
        return ends_of(self.partitions)

    @property
    def replay_stages(self) -> tuple[ReplayChunk, ...]:
        """The stages that stage the windows of a run over the plan's range."""
        return chunk_stages(self.chunks)

    def to_json(self) -> str:
        """The plan for machines; `spark_jobs.runs.planning.plan.plan_from_json` reads it back."""
        return json.dumps(self.model_dump(mode="json", exclude={"document_version"}), indent=2, sort_keys=True)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for span in (self.span, self.event_times, *self.chunks, *self.gaps):
            _check_times(span.start, span.end)
        _check_times(self.processing_time_end)
        numbers = [p.partition for p in self.partitions]
        if len(set(numbers)) < len(numbers):
            raise ValueError("partitions: one is there twice")
        for p in self.partitions:
            if not (0 <= p.partition < 2**31 and 0 <= p.first_offset <= p.end_offset < 2**63):
                raise ValueError(f"partitions: the offsets of partition {p.partition} are no range of offsets")
            _check_times(*(at for at in (p.first_arrival, p.last_arrival) if at is not None))
        return self


def _check_times(*times: int) -> None:
    for at in times:
        if not -(2**63) <= at < 2**63:
            raise ValueError(f"{at} is no time in epoch milliseconds")
