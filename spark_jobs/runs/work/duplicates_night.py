"""What a night computes behind a deduplication: the windows of new records and of the others of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from pyspark.sql import DataFrame

from spark_jobs.replay.deduplication import Deduplication, duplicates_in, without
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.counting import counted_night, counted_pairs
from spark_jobs.runs.night.duplicates import copies_of
from spark_jobs.runs.work.computing import IncrementalWork
from spark_jobs.sources import arrived_since, cut_at

_CHANGING = ("filtered_after", "erased", "without_window", "entered", "pairs")
"""Terms that the others of an id change: some of them may have got through before, and do not now."""


class DuplicatesWork(IncrementalWork):
    """A night's windows behind a deduplication, from all records with an id that counts for them."""

    @property
    def _deduplication(self) -> Deduplication:
        assert self.job.spec.deduplication is not None
        return self.job.spec.deduplication

    @contextmanager
    def replay(self, *, goes_on: bool) -> Iterator[Replay]:
        with super().replay(goes_on=goes_on) as replay:
            self._copies = self._then_and_now(replay)
            then, now = (duplicates_in(aside) for _, aside in self._copies)
            replay.duplicates = now - then
            yield replay

    def opened(self, history: History, spec: ReplaySpec) -> Replay:
        assert self.night.deciding is not None
        own = replace(history, records=self.night.deciding)
        if self._deduplication.needs_closes:  # no state has all milliseconds
            return Replay(own, spec, timeline_records=history.records)
        return super().opened(own, spec)

    def account(self, replay: Replay, before: DataFrame) -> Account:
        """What became of each new record, and what changed of the others of their ids."""
        job, night = self.job, self.night
        records = counted_night(job.spark, job.pipeline, job.plan, night.before.reading, night.new, job.spec)
        then, now = (counted_pairs(without(rows, aside), job.spec, None) for rows, aside in self._copies)
        pairs = now.model_copy(update={name: getattr(now, name) - getattr(then, name) for name in _CHANGING})
        return self.beside(records, pairs, before, replay.duplicates or 0)

    def _then_and_now(self, replay: Replay) -> tuple[tuple[DataFrame, DataFrame], ...]:
        """The records with an id of a new one, those that were read before and all, each with what is set aside."""
        own, read, deduplication = replay.history.records, self.night.before.as_of, self._deduplication
        now = copies_of(own, arrived_since(own, read), deduplication, self._cache)
        return tuple(
            (rows, self._cache.keep(replay.set_aside_of(deduplication, rows))) for rows in (cut_at(now, read), now)
        )
