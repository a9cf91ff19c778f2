"""What is proven of the records that the runs before have read, by the history as it is now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.identities import worst
from spark_jobs.pins import PinnedFile
from spark_jobs.replay.columns import OFFSET, end_offset
from spark_jobs.runs.night.compared import compared
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.night.taken import ReadBefore, identities_of, other_topic, positions_of
from spark_jobs.sources import (
    Evidence,
    Identity,
    OpenHistory,
    Sign,
    Signs,
    came_late,
    canonical,
    cut_at,
    inputs_of,
    inspect_history,
    names_of,
    read_appended,
    source_of,
)


@dataclass(frozen=True)
class Beside:
    """The history as it is now, beside the reading of the runs before. `opened`: as it is now."""

    spark: SparkSession
    pipeline: Pipeline
    opened: OpenHistory
    before: ReadBefore

    @cached_property
    def identities(self) -> tuple[Identity, ...]:
        """What the history is known by now, up to the ends of the reading."""
        return identities_of(self.spark, self.pipeline, self.opened, self.before.reading.ends)

    def evidence(self) -> Evidence:
        """What is proven: SAME, GONE or UNPROVEN. Of a union the worst of its inputs, by name."""
        names, readings = names_of(self.pipeline), self.before.reading.of_inputs()
        if len(readings) != len(self.identities):
            return Evidence(Sign.UNPROVEN, f"run {self.before.run_id} has read another number of inputs")
        if other := next(filter(None, self._other_topics()), ""):
            return Evidence(Sign.UNPROVEN, other)
        found = []
        for number, (one, part) in enumerate(inputs_of(self.pipeline, self.opened)):
            own = readings[number] if names else self.before.reading
            evidence = self._of_input(one, part, own, self.identities[number])
            named = f"{names[number]}: {evidence.why}" if names and evidence.why else evidence.why
            found.append(replace(evidence, why=named))
        return worst(found)

    def _other_topics(self) -> Iterator[str]:
        for then, now in zip(self.before.reading.identities, self.identities, strict=True):
            yield other_topic(then, now, self.before.run_id)

    def _of_input(self, pipeline: Pipeline, opened: OpenHistory, reading: Reading, now: Identity) -> Evidence:
        then, source = reading.identities[0], source_of(self.spark, pipeline)

        def appended() -> DataFrame:
            assert then.snapshot is not None and now.snapshot is not None
            return read_appended(self.spark, then.snapshot, now.snapshot)

        def below(frame: DataFrame) -> int:
            return canonical(opened, pipeline, frame).where(F.col(OFFSET) < end_offset(reading.ends)).count()

        def in_files(files: Sequence[PinnedFile]) -> DataFrame:
            return source.in_files(opened, files)

        signs = Signs(self.spark, pipeline, then, now, self.before.run_id, appended, in_files, below)
        found = signs.evidence()
        return self._by_position(pipeline, opened, reading) if found.sign is Sign.BY_POSITION else found

    def _by_position(self, pipeline: Pipeline, opened: OpenHistory, reading: Reading) -> Evidence:
        """Nothing was changed: the positions below the ends tell what has come, and what is gone."""
        records = cut_at(canonical(opened, pipeline), reading.ends)
        seen = inspect_history(self.spark, pipeline, opened, records=records, until=0, known=reading.known)
        found = positions_of(self.spark, pipeline, opened, seen, reading.known, reading.ends)
        beside, run_id = compared(reading, found, {}), self.before.run_id
        if beside.has_more:
            return Evidence(Sign.UNPROVEN, came_late(max(1, beside.missed), run_id))
        if beside.has_changed:
            return Evidence(Sign.UNPROVEN, f"records that run {run_id} has read have other arrivals")
        if beside.has_gone:
            return Evidence(Sign.GONE, f"records that run {run_id} has read are gone")
        return Evidence(Sign.SAME)
