"""The micro-batches of the live Structured Streaming query: which of them a run replays.

A run's end offsets lie where a batch ends, so that every record before it is in a batch that is known. The batch that
is planned and not committed is left out: whether its rows are out is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engines.spark import Gaps, QueryInput, StreamingWatermark
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.union import of_union
from spark_jobs.engines.live_engine import Recorded
from spark_jobs.engines.spark.gaps import instead_of_all, without_gaps
from spark_jobs.engines.spark.kept import with_archive
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.batches import Batch, Batches, BatchKind, BatchLog, OffsetRanges, batches_of
from spark_jobs.eventtime.spark.checkpoint import Checkpoint
from spark_jobs.eventtime.spark.logs import Partition
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.spark.microbatches import MicroBatches
from spark_jobs.sources import names_of
from spark_jobs.sources.checkpoint import (
    CheckpointFiles,
    LastRead,
    checkpoint_files,
    read_once,
)
from spark_jobs.sources.files.query_files import ROWS, file_source

_ZONE = "spark.sql.session.timeZone"


@dataclass(frozen=True, slots=True)
class LiveBatches(Recorded):
    """The committed batches of a query, ascending, and what they have read of the history, by partition.

    `pending`: the batch after them, where it was planned and not committed; None: there is none. `estimated`: between
    which times (epoch ms) batches are missing, and others are in their place (`spark_jobs.engines.spark.gaps`).
    """

    batches: BatchLog
    ranges: Mapping[int, OffsetRanges]
    allow_multiple: bool
    pending: Batch | None = None
    estimated: tuple[TimeRange, ...] = ()
    interval: int = 0

    def up_to(self, as_of: Mapping[int, int] | None, until: int | None = None) -> LiveBatches:
        """The batches before the first one that has read something at or above these end offsets; None: of any.

        `until`: nor was planned after this time (epoch ms). A batch without data moves no offset, and lets windows out.
        """
        beyond: list[int | None] = []
        if as_of is not None:
            beyond = [ranges.first_beyond(as_of.get(partition, 0)) for partition, ranges in self.ranges.items()]
        if until is not None:
            beyond += self.batches.numbers[self.batches.timestamps > until][:1].tolist()
        first = min((number for number in beyond if number is not None), default=None)
        if first is None:
            return self
        chosen = self.batches.where(self.batches.numbers < first)
        last = int(np.max(chosen.timestamps, initial=0))
        return replace(
            self,
            batches=chosen,
            pending=self.pending if len(chosen) == len(self.batches) else None,
            estimated=tuple(span for span in self.estimated if span.start < last),
        )

    def up_to_batch(self, number: int) -> LiveBatches:
        """The batches up to this number, inclusive."""
        return replace(self, batches=self.batches.where(self.batches.numbers <= number))

    @property
    def until(self) -> int:
        """When the last of them was planned."""
        return int(self.batches.timestamps.max())

    @property
    def ends(self) -> dict[int, int]:
        """The end offset (exclusive) of each partition after the last batch."""
        return {partition: ranges.end_at(self.last_number) for partition, ranges in sorted(self.ranges.items())}

    @property
    def pending_ends(self) -> dict[int, int]:
        """The end offset (exclusive) of each partition after the batch that was planned and not committed."""
        last = self.last_number if self.pending is None else self.pending.number
        return {partition: ranges.end_at(last) for partition, ranges in sorted(self.ranges.items())}

    @property
    def last_number(self) -> int:
        """The number of the last of them; -1: there is none."""
        return int(self.batches.numbers[-1]) if self.batches else -1

    @property
    def rules_input(self) -> MicroBatches:
        return MicroBatches.of(
            self.batches,
            self.allow_multiple,
            {partition: ranges.up_to(self.last_number) for partition, ranges in self.ranges.items()},
            pending=self.pending,
            estimated=self.estimated,
            interval=self.interval,
        )

    def goes_beyond(self, state: Mapping[str, Any]) -> bool:
        """A batch without data lets windows out, so it counts."""
        return self.last_number > state["last_batch"]

    def stays_behind(self, state: Mapping[str, Any]) -> bool:
        return state.get("last_batch", 0) > self.last_number

    def agrees_with(self, state: Mapping[str, Any]) -> bool:
        """Whether its batches are there as they were. Batches that are estimated do not say."""
        last = state.get("last_batch")
        return last is not None and self.up_to_batch(last).rules_input.digest == state["batches"]

    @property
    def gaps(self) -> tuple[str, ...]:
        return tuple(
            f"batches of the query are missing until {format_instant(span.end - 1)}: their records are in batches by "
            f"append time, every {format_duration(self.interval)}"
            for span in self.estimated
        )

    @property
    def notes(self) -> tuple[str, ...]:
        if self.pending is None:
            return ()
        return (
            f"batch {self.pending.number} of the query was planned and not committed: its records are left out, and "
            "whether its rows are out is not known before the query's next start, which runs it again",
        )


_READ: LastRead[LiveBatches] = LastRead()


def live_batches(
    spark: SparkSession, pipeline: Pipeline, as_of: Mapping[int, int] | None = None, until: int | None = None
) -> LiveBatches | None:
    """The batches that the live query has committed, at most up to `as_of` and `until`, see `LiveBatches.up_to`.

    What the checkpoint and the archive have is read once, until a file of the checkpoint is another one. None: the
    live job is of another engine.

    Raises SourceError for a checkpoint that cannot be read, HistoryError where batches are missing in it.
    """
    watermark = pipeline.watermark
    if not isinstance(watermark, StreamingWatermark):
        return None
    key = Tables.of(pipeline).checkpoint, pipeline.definition_hash
    if watermark.checkpoint is None:
        stamp = None if as_of is None else tuple(sorted(as_of.items()))
        known = None if stamp is None else _READ.get(key, stamp)
        if known is None:
            known = _without_checkpoint(spark, pipeline, watermark, as_of)
            _READ.keep(key, tuple(known.ends.items()), known)
    else:
        files = checkpoint_files(spark, watermark.checkpoint)
        known = _READ.get(key, files)
        if known is None:
            known = _READ.keep(key, files, _committed(spark, pipeline, watermark, files))
    chosen = known.up_to(as_of, until)
    if not chosen.batches:
        before = "" if until is None else f" that was planned by {format_instant(until)}"
        raise HistoryError(
            f"the query has committed no batch{before}" + ("" if as_of is None else " up to these end offsets"),
            watermark.checkpoint or pipeline.name,
            "Wait until it has, or give later end offsets.",
        )
    return chosen


def _committed(
    spark: SparkSession, pipeline: Pipeline, watermark: StreamingWatermark, files: CheckpointFiles
) -> LiveBatches:
    """All committed batches that the checkpoint and the archive have; with `gaps: approximate` others between them."""
    checkpoint = with_archive(spark, pipeline, watermark, read_once(spark, files), files.path)
    refuse_other_zone(pipeline, checkpoint, files.path)
    found, estimated = batches_of(checkpoint), ()
    if watermark.gaps is Gaps.APPROXIMATE and found.missing:
        places = () if pipeline.inputs or pipeline.has_files_of_query else _places(found, pipeline, watermark)
        checkpoint, estimated = without_gaps(spark, pipeline, watermark, checkpoint, found, places)
        found = batches_of(checkpoint)
    _refuse_gaps(found, files.path)
    return LiveBatches(
        found.batches.of_kind(BatchKind.COMMITTED),
        _ranges(found, pipeline, watermark),
        watermark.allow_multiple,
        found.pending,
        estimated,
        watermark.trigger or 0,
    )


def refuse_other_zone(pipeline: Pipeline, checkpoint: Checkpoint, path: str) -> None:
    """Raises HistoryError where the query ran in another time zone than the definition names.

    Spark 4.0 does not record the zone: only what an offsets file has can contradict.
    """
    zones = {zone for conf in checkpoint.offsets.confs if (zone := conf.get(_ZONE)) is not None}
    own = getattr(pipeline.window, "time_zone", None)
    if own is not None and (others := zones - {own}):
        raise HistoryError(
            f"the query ran with {_ZONE} = {', '.join(sorted(others))}, and `window.time_zone` is {own}",
            path,
            "Name the query's own zone in the definition.",
        )


def _without_checkpoint(
    spark: SparkSession, pipeline: Pipeline, watermark: StreamingWatermark, as_of: Mapping[int, int] | None
) -> LiveBatches:
    """Batches by the append times of the records below these end offsets, where the checkpoint is lost."""
    checkpoint, span = instead_of_all(spark, pipeline, watermark, as_of)
    found = batches_of(checkpoint)
    ranges = {place.number: read for place, read in found.ranges.items()}
    return LiveBatches(found.batches, ranges, watermark.allow_multiple, None, (span,), watermark.trigger or 0)


def _ranges(found: Batches, pipeline: Pipeline, watermark: StreamingWatermark) -> dict[int, OffsetRanges]:
    """What the batches have read of the history, or of each input of a union under the union's numbers."""
    if pipeline.has_files_of_query and (source := file_source(found.files, pipeline, watermark)) is not None:
        return {0: _of_files(np.array(list(found.files[source].values()), dtype=np.int64))}
    if not pipeline.inputs:
        return {place.number: found.ranges[place] for place in _places(found, pipeline, watermark)}
    ranges: dict[int, OffsetRanges] = {}
    seen: dict[str, str] = {}
    for number, (one, name) in enumerate(zip(pipeline.inputs, names_of(pipeline), strict=True)):
        assert isinstance(one.watermark, QueryInput)
        own = _places(found, one, one.watermark)
        source = own[0].source
        if source in seen:
            raise DefinitionError(
                f"{seen[source]} and {name} are both source {source} of the query",
                one.source_of(("watermark",)) or pipeline.name,
                "Name the source of each under its `watermark.source`: `0`, `1`, ... in the order of the offsets.",
            )
        seen[source] = name
        ranges |= of_union({place.number: found.ranges[place] for place in own}, number)
    return ranges


def _of_files(batches: np.ndarray) -> OffsetRanges:
    """What each batch has read of the files in the order of the log, given each file's batch."""
    starts = np.flatnonzero(np.diff(batches, prepend=-1))
    ends = np.append(starts[1:], len(batches))[: len(starts)]
    return OffsetRanges(starts * ROWS, ends * ROWS, batches[starts])


def _places(found: Batches, pipeline: Pipeline, watermark: StreamingWatermark | QueryInput) -> list[Partition]:
    """The partitions of the source that reads the history."""
    last = pipeline.history.last_topic
    topic = None if last is None else last.topic
    places = [
        place for place in found.ranges if topic in (None, place.topic) and watermark.source in (None, place.source)
    ]
    sources = sorted({(place.source, place.topic) for place in places})
    if len(sources) == 1:
        return places
    read = ", ".join(f"{source}: {name}" for source, name in sorted({(p.source, p.topic) for p in found.ranges}))
    raise DefinitionError(
        "no source of the query reads this topic" if not sources else "several sources of the query read this topic",
        pipeline.source_of(("watermark",)) or pipeline.name,
        f"The checkpoint has these sources: {read or 'none of Kafka'}. Name one under `watermark.source`."
        + (" Where the query reads files, leave out history.position." if found.files else ""),
    )


def _refuse_gaps(found: Batches, checkpoint: str) -> None:
    if not found.missing:
        return
    first, last = found.missing[0][0], found.missing[-1][-1]
    lost = f"{first} to {last}" if last > first else str(first)
    raise HistoryError(
        f"the checkpoint no longer has the batches {lost}: which records they have read is not known",
        checkpoint,
        "Spark keeps `spark.sql.streaming.minBatchesToRetain` batches, 100 by default, and each run and `rewindow "
        "archive` keeps those that are there. Run it more often, or let the query keep more; `watermark.gaps: "
        "approximate` places the records of the missing ones by their append time.",
    )
