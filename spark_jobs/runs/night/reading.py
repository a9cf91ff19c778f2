"""A reading: what the results of a run stand on. No Spark.

It has the positions of the records that were read, by input and partition, and what the history was known by then. What
`until`, `as_of`, the clock or the live job's own reading left out is not in it. The reading of a pipeline is that of
its last run over the whole history, or of the nights that went on from it; records that are gone since stay in it as
gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import of_input, of_union
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.formatting import plural
from spark_jobs.identities import Identity
from spark_jobs.pins import PinnedFile
from spark_jobs.positions import Bucket, Buckets, Found, Known, all_of, most_buckets

Empty = dict[int, tuple[tuple[int, int], ...]]
"""By partition the ranges `[from, to)` of offsets without a record, in order."""


def _row_of(bucket: Bucket) -> list[int | None]:
    return list(astuple(bucket))


def _bucket_of(value: Any) -> Any:
    return Bucket(*value) if isinstance(value, (list, tuple)) else value


BucketRow = Annotated[Bucket, PlainSerializer(_row_of), BeforeValidator(_bucket_of)]
"""A bucket as a row of its numbers: a document has thousands of them."""


@dataclass(frozen=True)
class PartitionReading:
    """What was read of one partition: offsets below `end`, in buckets by `offset >> shift`."""

    end: int
    shift: int
    buckets: dict[int, BucketRow]

    @classmethod
    def of(cls, end: int, buckets: Buckets) -> Self:
        return cls(end, buckets.shift, dict(buckets.by_number))

    @property
    def positions(self) -> Buckets:
        """The positions by bucket."""
        return Buckets(self.shift, self.buckets)


@dataclass(frozen=True)
class Reading:
    """What was read.

    Attributes:
        identities: What the history was known by; of a union each of its inputs.
        partitions: By partition, under the union's own numbers.
        empty: The offsets below the ends that held no record; None: there are too many to keep.
        placed_by: Digest of the expressions that give positions: only positions of one kind can be compared.
        unplaced: How many more records were read that have no position, or none that can be used.
        without_place: Of these, those that have no partition or no offset; None: nobody has counted them.
        lacks: Whether records are gone that the buckets still count as there.
        final_until: Windows that end by then (epoch ms, with the allowed lateness) were final before the first record
            that is still there; None: nothing is known to be final.
        inputs: The names of a union's inputs, in the order of their numbers.
    """

    identities: tuple[Identity, ...]
    partitions: dict[int, PartitionReading]
    empty: Empty | None
    placed_by: str
    unplaced: int = 0
    lacks: bool = False
    final_until: int | None = None
    inputs: tuple[str, ...] = ()
    without_place: int | None = None

    @property
    def ends(self) -> dict[int, int]:
        """The end offset of each partition."""
        return {number: partition.end for number, partition in self.partitions.items()}

    @property
    def known(self) -> dict[int, Known]:
        """What a scan has to know to tell what was read before."""
        empty = self.empty or {}
        return {p: Known(end, tuple(empty.get(p, ()))) for p, end in self.ends.items()}

    @property
    def counts(self) -> dict[int, int]:
        """How many records were there by partition when they were read."""
        return {number: partition.positions.count for number, partition in self.partitions.items()}

    @property
    def gone(self) -> int:
        """How many records are gone that results stand on, as far as they were counted."""
        return sum(partition.positions.gone for partition in self.partitions.values())

    @property
    def has_gone(self) -> bool:
        """Whether records are gone that results stand on."""
        return self.lacks or self.gone > 0

    def in_words(self) -> str:
        """What was read, for people."""
        read = sum(self.counts.values())
        words = f"{plural(read, 'record')} with a position, in {plural(len(self.partitions), 'partition')}"
        gone = f"; {plural(self.gone, 'record')} that earlier runs have read {'is' if self.gone == 1 else 'are'} gone"
        return words + (gone if self.gone else "; some that earlier runs have read are gone" if self.lacks else "")

    def of_inputs(self) -> list[Reading]:
        """The reading of each input of a union, under the input's own partition numbers."""
        return [
            replace(
                self,
                identities=(identity,),
                partitions=of_input(self.partitions, number),
                empty=None if self.empty is None else of_input(self.empty, number),
            )
            for number, identity in enumerate(self.identities)
        ]

    def numbered_as(self, names: tuple[str, ...]) -> Reading:
        """The reading under the numbers that a union's inputs of these names have; those that it lacks are left out."""
        if not names or not self.inputs or names == self.inputs:
            return self
        own = dict(zip(self.inputs, self.of_inputs(), strict=True))
        moved = {number: own[name] for number, name in enumerate(names) if name in own}
        empty = None
        if self.empty is not None:
            empty = {p: one for n, part in moved.items() for p, one in of_union(part.empty or {}, n).items()}
        return replace(
            self,
            identities=tuple(moved[n].identities[0] if n in moved else Identity() for n in range(len(names))),
            partitions={p: one for n, part in moved.items() for p, one in of_union(part.partitions, n).items()},
            empty=empty,
            inputs=names,
        )

    def gone_spans(self) -> list[tuple[TimeRange, int]]:
        """The event times of each bucket that records are gone from, with how many."""
        return [
            (TimeRange(bucket.first_time, bucket.last_time + 1), bucket.gone)
            for partition in self.partitions.values()
            for bucket in partition.buckets.values()
            if bucket.gone and bucket.first_time is not None and bucket.last_time is not None
        ]

    def named_by(self, files: Sequence[tuple[PinnedFile, ...] | None]) -> Reading:
        """The reading with the files of each input, which a plan keeps apart."""
        named = (own.with_files(found) for own, found in zip(self.identities, files, strict=True))
        return replace(self, identities=tuple(named))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return _ADAPTER.dump_python(self, mode="json")

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Reading:
        """A reading that `to_json` wrote."""
        return _ADAPTER.validate_python(data)


def overlapping_joined(spans: Any) -> list[tuple[TimeRange, int]]:
    """Ranges with numbers, in order; those that overlap are one, with the sum of their numbers."""
    found: list[tuple[TimeRange, int]] = []
    for span, number in sorted(spans, key=lambda one: (one[0].start, one[0].end)):
        if found and span.start < found[-1][0].end:
            before, total = found[-1]
            found[-1] = (TimeRange(before.start, max(before.end, span.end)), total + number)
        else:
            found.append((span, number))
    return found


_ADAPTER = TypeAdapter(Reading)


def placed_by(pipeline: Pipeline) -> str:
    """Digest of what gives a definition's records their partition, offset and arrival."""
    sections = [
        f"{one.history.position.model_dump_json()} {sorted(one.watermark.discovered.items())}"
        for one in pipeline.inputs or (pipeline,)
    ]
    return sha256("\n".join(sections).encode()).hexdigest()[:16]


def placed_in(found: Found) -> int:
    """How many positions these are."""
    return sum(all_of(zones).count for zones in found.values())


def grown(then: Reading, identities: tuple[Identity, ...], ends: Mapping[int, int], found: Found, *,
          empty: Empty | None, lacks: bool) -> Reading:  # fmt: skip
    """The reading once records from its ends on were read too. `found`: these; `ends`: the ends after them.

    `lacks`: records that were read before are gone.
    """
    most = most_buckets(len(ends))
    partitions = {}
    for number in sorted(then.partitions.keys() | ends.keys()):
        before = then.partitions.get(number)
        positions = Buckets.none() if before is None else before.positions
        end = max(ends.get(number, 0), 0 if before is None else before.end)  # a filter can leave the last records out
        joined = positions.joined(all_of(found.get(number, {})))
        partitions[number] = PartitionReading.of(end, joined.fitted(most))
    return replace(then, identities=identities, partitions=partitions, empty=empty, lacks=then.lacks or lacks)
