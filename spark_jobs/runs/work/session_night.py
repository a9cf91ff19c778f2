"""What a night computes of sessions: the complete ones that new records are in, and those that were not closed."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.engine import Replay
from spark_jobs.runs.night.counting import pairs_in_sessions
from spark_jobs.runs.night.sessions import within_sessions
from spark_jobs.runs.work.computing import IncrementalWork
from spark_jobs.sources import arrived_since
from spark_jobs.spark.cached import CachedFrames


class SessionWork(IncrementalWork):
    """A night's sessions. Their windows and their late records come from one replay, chunk by chunk of the plan."""

    why_no_pairs = "sessions that are not out yet count no records"

    @cached_property
    def parts(self) -> list[tuple[TimeRange, DataFrame | None]]:
        """All at once: the records that are read have no other sessions."""
        return [(chunk, None) for chunk in self.night.plan.chunks]

    @cached_property
    def recent(self) -> tuple[TimeRange, ...]:
        """No session is compared with the live job's: where there is one, all of them are computed."""
        return ()

    def deciding(self, cache: CachedFrames) -> DataFrame:
        touched, records, time = self.night.touched, self.history.records, F.col(EVENT_TIME)
        low, has_recent = F.lit(touched.recent.start), touched.recent.start < touched.recent.end
        recent = records.where(time >= low) if has_recent else records.where(F.lit(False))
        if touched.older is None or touched.pairs is None:
            return cache.keep(recent)
        older = within_sessions(records.where(time < low), time, touched.pairs, self.job.spec.keys)
        return cache.keep(recent.unionByName(older))

    def late(self, replay: Replay, chunk: TimeRange) -> DataFrame:
        """The late ones among the new records: what was decided of an earlier one stays."""
        return arrived_since(replay.late(chunk, self.night.plan.span), self.night.before.as_of)

    def pairs_added(self, counted: DataFrame, before: DataFrame) -> int | None:
        """None where sessions may not be out, then or now (golden rule 15: idle sources): those count no records."""
        late, spec = self.job.staging.rows(StagedPart.LATE), self.job.spec
        is_out = spec.flush and spec.strategy.idleness is None
        now = pairs_in_sessions(counted, late, spec, is_out=is_out)
        then = pairs_in_sessions(before, late.limit(0), spec, is_out=is_out)
        return None if now is None or then is None else now - then
