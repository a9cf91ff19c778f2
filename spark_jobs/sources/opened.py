"""An opened history, and what a plan pins of one."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from spark_jobs.pins import ClockBound, PinnedFile, PinnedSchemas, PinnedSnapshot, PinnedTopic, Pins
from spark_jobs.sources.erased import Erasure


@dataclass(frozen=True)
class OpenHistory:
    """A history that can be read.

    Attributes:
        frame: All its columns, partition columns too. JSON and CSV files add `rw_raw` (the line) and `rw_reason` (why
            the line could not be decoded). A stitched history has its position and payload columns already.
        pinned: The files that `frame` reads, by path; empty for a table or a topic.
        behind: The files behind a table, by path; None where there is no table, or Spark does not know its files.
        description: What was opened, for messages.
        topic: The offsets that `frame` reads of a topic; None where there is none.
        snapshot: The snapshot that `frame` reads of an Iceberg table; None where there is none.
        schemas: Those of a schema registry by which values are decoded; None where there is no registry.
        lookup: The snapshot of the table that records are looked up in; None where there is no lookup.
        arrivals_before: Arrivals from this instant on (epoch ms) are ahead of the clock; None: nobody looks at it.
        clocks: The arrivals that are ahead of records behind them, so that their records go to quarantine.
        inputs: Those of a union, each opened by itself; `frame` has the canonical records of all then.
        erasures: Those of the pipeline; what they mean comes to no table.
        has_unique_offsets: No offset can be in it twice, so only the arrivals have to be checked.
    """

    frame: DataFrame
    pinned: tuple[PinnedFile, ...]
    description: str
    topic: PinnedTopic | None = None
    has_unique_offsets: bool = False
    behind: tuple[PinnedFile, ...] | None = None
    arrivals_before: int | None = None
    snapshot: PinnedSnapshot | None = None
    schemas: PinnedSchemas | None = None
    lookup: PinnedSnapshot | None = None
    inputs: tuple[OpenHistory, ...] = ()
    clocks: tuple[ClockBound, ...] = ()
    erasures: tuple[Erasure, ...] = ()

    @property
    def has_topic(self) -> bool:
        """Whether it, or an input of a union, reads a topic."""
        return self.topic is not None or any(one.has_topic for one in self.inputs)

    @property
    def pins(self) -> Pins:
        """What has to be opened again to read the same."""
        inputs = tuple(one.pins for one in self.inputs)
        pinned = self.pinned or None
        return Pins(pinned, self.behind, self.topic, self.snapshot, self.schemas, inputs, self.lookup, self.clocks)

    @property
    def files(self) -> tuple[PinnedFile, ...] | None:
        """The files that say what was read; None where nobody knows them."""
        return self.pinned or self.behind
