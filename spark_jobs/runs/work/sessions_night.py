"""What a night computes of sessions: the complete sessions that new records reach, and those that were not closed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.account import Account, joined
from spark_jobs.runs.night.counting import SESSIONS_UNSAID, are_out_once
from spark_jobs.runs.night.sessions import AffectedSessions, records_of_sessions
from spark_jobs.runs.work.computing import IncrementalWork
from spark_jobs.runs.work.difference import staged_windows
from spark_jobs.runs.work.job import Job
from spark_jobs.sources import arrived_since


class SessionsWork(IncrementalWork):
    """A night's sessions, from all of their records; closes of any time are needed, so the timeline is made anew."""

    @property
    def _touched(self) -> AffectedSessions:
        assert isinstance(self.night.touched, AffectedSessions)
        return self.night.touched

    def opened(self, history: History, spec: ReplaySpec) -> Replay:
        members = self._cache.keep(records_of_sessions(history.records, self._touched, spec))
        return Replay(replace(history, records=members), spec, timeline_records=history.records)

    @property
    def late_spans(self) -> Sequence[TimeRange]:
        return [span for span, _ in self.parts]

    def late_of(self, replay: Replay, span: TimeRange) -> DataFrame:
        return arrived_since(replay.late(span), self.night.before.as_of)

    def account(self, replay: Replay, before: DataFrame) -> Account:
        return account_of_sessions(super().account(replay, before), self.job, before)


def account_of_sessions(account: Account, job: Job, before: DataFrame) -> Account:
    """The account without pairs that sessions do not say. `before`: the published ones that are computed again."""
    if are_out_once(staged_windows(job)) and are_out_once(before):
        return account
    return joined(account, account, None, 0, why=SESSIONS_UNSAID)
