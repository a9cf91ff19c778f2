"""What a night computes where the order of each partition decides: the tasks go on from the run before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import CLOSED_AT, FIRED, position_names
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.rule_book import IS_TOUCHED, TASKS, GoneOn
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.ordered import AffectedInOrder
from spark_jobs.runs.work.computing import IncrementalWork
from spark_jobs.runs.work.sessions_night import account_of_sessions
from spark_jobs.spark.joins import OTHER, others, same


class OrderedWork(IncrementalWork):
    """A night's windows from what its tasks give, and from the published ones that stay as they are."""

    @property
    def _touched(self) -> AffectedInOrder:
        assert isinstance(self.night.touched, AffectedInOrder)
        return self.night.touched

    @cached_property
    def parts(self) -> list[tuple[TimeRange, DataFrame | None]]:
        touched = self._touched
        return [(touched.older or touched.recent, touched.pairs)]

    @property
    def late_spans(self) -> Sequence[TimeRange]:
        return [span for span, _ in self.parts]

    def late_of(self, replay: Replay, span: TimeRange) -> DataFrame:
        return replay.late(span)

    def opened(self, history: History, spec: ReplaySpec) -> Replay:
        before = self.night.before
        gone_on = GoneOn(before.state[TASKS], before.as_of, self._published(spec))
        return Replay(
            history,
            spec,
            state=before.state,
            timeline_records=self.good_news,
            earlier=before.steps,
            gone_on=gone_on,
        )

    def _published(self, spec: ReplaySpec) -> DataFrame:
        """The published windows that may be others now, in the columns of `replay_windows`."""
        table = self.job.spark.table(self.job.result.tables.windows)
        by = [*spec.keys, START, END]
        rows = table.withColumns({START: F.unix_millis("window_start"), END: F.unix_millis("window_end")})
        reached = self._touched.reached.select(*others(by), IS_TOUCHED)
        arrival, *rest = position_names(FIRED)
        fired = {arrival: F.unix_millis(CLOSED_AT), **dict.fromkeys(rest, F.lit(None).cast("long"))}
        return rows.join(reached, same(by)).drop(*(f"{OTHER}{name}" for name in by)).withColumns(fired)

    def account(self, replay: Replay, before: DataFrame) -> Account:
        account = super().account(replay, before)
        return account_of_sessions(account, self.job, before) if self.job.spec.has_sessions else account
