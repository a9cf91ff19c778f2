"""The micro-batches of the live Structured Streaming query: which of them a run replays.

A run's end offsets lie where a batch ends, so that every record before it is in a batch that is known. The batch that
is planned and not committed is left out: whether its rows are out is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.structured_streaming import Gaps, QueryInput, StreamingWatermark
from spark_jobs.definition.union import of_union
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.microbatch.batches import Batch, Batches, BatchKind, OffsetRanges, Partition, batches_of
from spark_jobs.eventtime.microbatch.checkpoint import Checkpoint
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.checkpoint_archive import archive_files, archived_files, archived_queries
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.microbatches import MicroBatches
from spark_jobs.runs.gap_batches import without_gaps
from spark_jobs.sources import names_of
from spark_jobs.sources.checkpoint import checkpoint_files, parsed_checkpoint
from spark_jobs.sources.query_files import ROWS, file_source


@dataclass(frozen=True, slots=True)
class LiveBatches:
    """The committed batches of a query, ascending, and what they have read of the history, by partition.

    `pending`: the batch after them, where it was planned and not committed; None: there is none. `estimated`: between
    which times (epoch ms) batches are missing, and others are in their place (`spark_jobs.runs.gap_batches`).
    """

    batches: tuple[Batch, ...]
    ranges: Mapping[int, OffsetRanges]
    allow_multiple: bool
    pending: Batch | None = None
    estimated: tuple[TimeRange, ...] = ()
    interval: int = 0

    def up_to(self, as_of: Mapping[int, int], until: int | None = None) -> LiveBatches:
        """The batches before the first one that has read something at or above these end offsets.

        `until`: nor was planned after this time (epoch ms). A batch without data moves no offset, and lets windows out.
        """
        beyond = [
            number
            for partition, ranges in self.ranges.items()
            for end, number in zip(ranges.ends, ranges.numbers, strict=True)
            if end > as_of.get(partition, 0)
        ]
        if until is not None:
            beyond += [batch.number for batch in self.batches if batch.timestamp > until]
        first = min(beyond, default=None)
        if first is None:
            return self
        chosen = tuple(batch for batch in self.batches if batch.number < first)
        last = max((batch.timestamp for batch in chosen), default=0)
        return replace(
            self,
            batches=chosen,
            pending=self.pending if len(chosen) == len(self.batches) else None,
            estimated=tuple(span for span in self.estimated if span.start < last),
        )

    @property
    def planned_until(self) -> int:
        """When the last of them was planned, epoch ms: with the end offsets, where these batches end."""
        return max(batch.timestamp for batch in self.batches)

    @property
    def ends(self) -> dict[int, int]:
        """The end offset (exclusive) of each partition after the last batch."""
        last = self.batches[-1].number if self.batches else -1
        return {
            partition: max((e for e, n in zip(r.ends, r.numbers, strict=True) if n <= last), default=0)
            for partition, r in sorted(self.ranges.items())
        }

    def as_arrays(self) -> MicroBatches:
        """The same as the engine takes them."""
        last = self.batches[-1].number if self.batches else -1
        return MicroBatches.of(
            [(batch, self.allow_multiple) for batch in self.batches],
            [
                (partition, *read)
                for partition, ranges in self.ranges.items()
                for read in zip(ranges.starts, ranges.ends, ranges.numbers, strict=True)
                if read[2] <= last
            ],
            pending=self.pending,
            estimated=self.estimated,
            interval=self.interval,
        )

    @property
    def gaps(self) -> tuple[str, ...]:
        """Why the replay is approximate, for people; empty: it is not."""
        return tuple(
            f"batches of the query are missing until {format_instant(span.end - 1)}: their records are in batches by "
            f"append time, every {format_duration(self.interval)}"
            for span in self.estimated
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not known of them, for people."""
        if self.pending is None:
            return ()
        return (
            f"batch {self.pending.number} of the query was planned and not committed: its records are left out, and "
            "whether its rows are out is not known before the query's next start, which runs it again",
        )


def live_batches(
    spark: SparkSession, pipeline: Pipeline, as_of: Mapping[int, int] | None = None, until: int | None = None
) -> LiveBatches | None:
    """The batches that the live query has committed, at most up to `as_of` and `until`, see `LiveBatches.up_to`.

    None: the live job is of another engine.

    Raises SourceError for a checkpoint that cannot be read, HistoryError where batches are missing in it.
    """
    watermark = pipeline.watermark
    if not isinstance(watermark, StreamingWatermark):
        return None
    checkpoint = _known_checkpoint(spark, pipeline, watermark.checkpoint)
    found, estimated = batches_of(checkpoint), ()
    if watermark.gaps is Gaps.APPROXIMATE and _missing(found):
        places = () if pipeline.inputs or pipeline.has_files_of_query else _places(found, pipeline, watermark)
        checkpoint, estimated = without_gaps(spark, pipeline, watermark, checkpoint, places)
        found = batches_of(checkpoint)
    _refuse_gaps(found, watermark.checkpoint)
    known = LiveBatches(
        tuple(batch for batch in found.batches if batch.kind is BatchKind.COMMITTED),
        _ranges(found, pipeline, watermark),
        watermark.allow_multiple,
        found.pending,
        estimated,
        watermark.trigger or 0,
    )
    chosen = known if as_of is None else known.up_to(as_of, until)
    if not chosen.batches:
        raise HistoryError(
            "the query has committed no batch" + ("" if as_of is None else " up to these end offsets"),
            watermark.checkpoint,
            "Wait until it has, or give later end offsets.",
        )
    return chosen


def as_of_batches(spark: SparkSession, pipeline: Pipeline, as_of: Mapping[int, int] | None) -> Mapping[int, int] | None:
    """The end offsets, where the live job runs in batches moved back to where one ends."""
    batches = live_batches(spark, pipeline, as_of)
    return as_of if batches is None else batches.ends


def micro_batches(spark: SparkSession, pipeline: Pipeline, as_of: Mapping[int, int], until: int) -> MicroBatches | None:
    """The batches of a plan with these end offsets; None: the live job is of another engine."""
    batches = live_batches(spark, pipeline, as_of, until)
    return None if batches is None else batches.as_arrays()


def keep_batches(spark: SparkSession, pipeline: Pipeline) -> int:
    """Append the committed batches that only the checkpoint has to the pipeline's archive of them, each once.

    Returns how many files of the checkpoint those were; 0 where the live job is of another engine.
    """
    watermark = pipeline.watermark
    if not isinstance(watermark, StreamingWatermark):
        return 0
    files = checkpoint_files(spark, watermark.checkpoint)
    checkpoint = parsed_checkpoint(files, watermark.checkpoint)
    pending = batches_of(checkpoint).pending
    unsettled = "" if pending is None else f"offsets/{pending.number}"
    # Spark keeps the log of a file source, and each compact entry repeats all before it: that is not kept again.
    logs = tuple(f"sources/{source}/" for source in checkpoint.files)
    settled = {n: text for n, text in files.items() if n not in (unsettled, "metadata") and not n.startswith(logs)}
    return archive_files(spark, Tables.of(pipeline).checkpoint, checkpoint.query, settled)


def _known_checkpoint(spark: SparkSession, pipeline: Pipeline, path: str) -> Checkpoint:
    """The checkpoint, and what earlier runs have kept of it."""
    files = checkpoint_files(spark, path)
    now = parsed_checkpoint(files, path)
    table = Tables.of(pipeline).checkpoint
    kept = archived_files(spark, table, now.query)
    if not kept and (others := archived_queries(spark, table)):
        raise HistoryError(
            f"the checkpoint is of another query (id {now.query}) than before (id {', '.join(sorted(others))}): it was "
            "deleted and begun anew",
            path,
            "Its batches belong to another life of the query. Write to another table under `output`.",
        )
    return parsed_checkpoint({**kept, **files}, path) if kept else now


def _ranges(found: Batches, pipeline: Pipeline, watermark: StreamingWatermark) -> dict[int, OffsetRanges]:
    """What the batches have read of the history, or of each input of a union under the union's numbers."""
    if pipeline.has_files_of_query and (source := file_source(found.files, pipeline, watermark)) is not None:
        return {0: _of_files(tuple(found.files[source].values()))}
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


def _of_files(batches: Sequence[int]) -> OffsetRanges:
    """What each batch has read of the files in the order of the log, given each file's batch."""
    starts = [i for i, number in enumerate(batches) if not i or number != batches[i - 1]]
    return OffsetRanges(
        tuple(start * ROWS for start in starts),
        tuple(end * ROWS for end in (*starts[1:], len(batches))),
        tuple(batches[start] for start in starts),
    )


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


def _missing(found: Batches) -> list[int]:
    """The numbers of the batches that are not known."""
    return [*range(found.batches[0].number), *found.missing]


def _refuse_gaps(found: Batches, checkpoint: str) -> None:
    missing = _missing(found)
    if not missing:
        return
    lost = f"{missing[0]} to {missing[-1]}" if len(missing) > 1 else str(missing[0])
    raise HistoryError(
        f"the checkpoint no longer has the batches {lost}: which records they have read is not known",
        checkpoint,
        "Spark keeps `spark.sql.streaming.minBatchesToRetain` batches, 100 by default, and each run and `rewindow "
        "archive` keeps those that are there. Run it more often, or let the query keep more; `watermark.gaps: "
        "approximate` places the records of the missing ones by their append time.",
    )
