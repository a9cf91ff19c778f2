"""What a night computes behind a deduplication: the windows of new records and of the others of their ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame

from spark_jobs.replay.deduplication import Deduplication, duplicates_in, without
from spark_jobs.replay.engine import History, Replay
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.counting import counted_night, counted_pairs
from spark_jobs.runs.night.duplicates import copies_of, deciding_records
from spark_jobs.runs.work.computing import IncrementalWork
from spark_jobs.sources import arrived_since, cut_at, reading
from spark_jobs.spark.cached import CachedFrames


class DuplicatesWork(IncrementalWork):
    """A night's windows behind a deduplication, from all records with an id that counts for them."""

    @property
    def _deduplication(self) -> Deduplication:
        assert self.job.spec.deduplication is not None
        return self.job.spec.deduplication

    @contextmanager
    def replay(self, *, goes_on: bool) -> Iterator[Replay]:
        night, spec, whole = self.night, self.job.spec, self.history
        self.job.result.continued_from = night.before.run_id
        chosen = deciding_records(whole.records, self.good_news, night.touched, spec, self._deduplication)
        with CachedFrames() as cache:
            history = History(cache.keep(chosen), whole.event_times, whole.processing_time_end)
            if self._deduplication.needs_closes:  # to the millisecond, which no state has
                replay = Replay(history, spec, timeline_records=whole.records)
            else:
                steps, state = night.before.steps, night.before.state
                replay = Replay(history, spec, state=state, timeline_records=self.good_news, earlier=steps)
            with replay, reading(night.plan.pipeline):
                assert replay.set_aside is not None
                replay.duplicates = duplicates_in(arrived_since(replay.set_aside, night.before.as_of))
                yield replay

    def account(self, replay: Replay, before: DataFrame) -> Account:
        """What became of each new record. Others of their ids may have got through before, and do not now."""
        job, night, deduplication = self.job, self.night, self._deduplication
        records = counted_night(job.spark, job.pipeline, job.plan, night.before.reading, night.new)
        with CachedFrames() as cache:
            own = replay.history.records
            now = cache.keep(copies_of(own, arrived_since(own, night.before.as_of), deduplication))
            then = cut_at(now, night.before.as_of)
            (first, aside_then), (last, aside_now) = (self._counted(replay, rows) for rows in (then, now))
        names = ("filtered_after", "without_window", "entered", "pairs")
        pairs = last.model_copy(update={name: getattr(last, name) - getattr(first, name) for name in names})
        return self.beside(records, pairs, before, aside_now - aside_then)

    def _counted(self, replay: Replay, records: DataFrame) -> tuple[Account, int]:
        """The terms of all records of some ids, and how many of them are duplicates."""
        closes = replay.exact_closes if self._deduplication.needs_closes else None
        aside = self._deduplication.set_aside(records, self.job.spec.after_watermark, closes)
        return counted_pairs(without(records, aside), self.job.spec, None), duplicates_in(aside)
