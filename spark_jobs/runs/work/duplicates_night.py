"""What a night computes behind a deduplication: the windows of new records and of the others of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from spark_jobs.replay.deduplication import Deduplication, duplicates_in, without
from spark_jobs.replay.engine import Replay
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.counting import counted_night, counted_pairs
from spark_jobs.runs.night.duplicates import copies_of, deciding_records
from spark_jobs.runs.work.computing import IncrementalWork
from spark_jobs.sources import arrived_since, cut_at
from spark_jobs.spark.cached import CachedFrames

_CHANGING = ("filtered_after", "erased", "without_window", "entered", "pairs")
"""Terms that the others of an id change: some of them may have got through before, and do not now."""


class DuplicatesWork(IncrementalWork):
    """A night's windows behind a deduplication, from all records with an id that counts for them."""

    @property
    def _deduplication(self) -> Deduplication:
        assert self.job.spec.deduplication is not None
        return self.job.spec.deduplication

    def deciding(self, cache: CachedFrames) -> DataFrame:
        night, spec = self.night, self.job.spec
        records, new = self.history.records, self.good_news
        return cache.keep(deciding_records(records, new, night.touched, spec, self._deduplication, cache))

    @contextmanager
    def replay(self, *, goes_on: bool) -> Iterator[Replay]:
        with super().replay(goes_on=goes_on) as replay, CachedFrames() as self._frames:
            then, now = (duplicates_in(self._aside(replay, rows)) for rows in self._then_and_now(replay))
            replay.duplicates = now - then
            yield replay

    def account(self, replay: Replay, before: DataFrame) -> Account:
        """What became of each new record, and what changed of the others of their ids."""
        job, night = self.job, self.night
        records = counted_night(job.spark, job.pipeline, job.plan, night.before.reading, night.new, job.spec)
        then, now = (
            counted_pairs(without(rows, self._aside(replay, rows)), job.spec, None)
            for rows in self._then_and_now(replay)
        )
        pairs = now.model_copy(update={name: getattr(now, name) - getattr(then, name) for name in _CHANGING})
        return self.beside(records, pairs, before, replay.duplicates or 0)

    def _then_and_now(self, replay: Replay) -> tuple[DataFrame, DataFrame]:
        """The records with an id of a new one: those that were read before, and all."""
        own, read = replay.history.records, self.night.before.as_of
        now = copies_of(own, arrived_since(own, read), self._deduplication, self._frames)
        return cut_at(now, read), now

    def _aside(self, replay: Replay, records: DataFrame) -> DataFrame:
        closes = replay.exact_closes if self._deduplication.needs_closes else None
        return self._deduplication.set_aside(records, self.job.spec.after_watermark, closes)
