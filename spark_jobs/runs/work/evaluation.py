"""The evaluator: it carries out stages of one run in this process, in the order of their list.

The list may be all of a run, as on the command line, or those of one Spark application. A stage takes what a stage
before it in the list has made, and opens the rest again from what the run has kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.policy import Policy
from spark_jobs.replay.engine import Replay
from spark_jobs.runs.life.documents import StagedRange
from spark_jobs.runs.life.permission import Action, effective_policy
from spark_jobs.runs.life.publication import conclude, publish
from spark_jobs.runs.life.start import Asked, begin
from spark_jobs.runs.life.status import RunStatus, Stage
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.planning.plan import confirm_files
from spark_jobs.runs.work.comparing import CompareStage, LiveNews, compare_live
from spark_jobs.runs.work.computing import FullWork, Work, stage_quarantine
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.stages import (
    Begin,
    CompareLive,
    Deliver,
    MakeTimeline,
    Publish,
    ReplayChunk,
    ReplayTouched,
    RunStage,
    Verify,
    stages_of,
)
from spark_jobs.runs.work.timeline import make_timeline
from spark_jobs.runs.work.verification import GateCheck, ReportCollector, Verified, verified
from spark_jobs.spark.shuffles import shuffles_for

DeliverStage = Callable[[SparkSession, Pipeline, RunFolder], DeliveredCorrections | None]
"""Delivers what is due to the readers of the live job's output; of a run that waits it says what would be."""


@dataclass(frozen=True, slots=True)
class EndPolicy:
    """How a run ends.

    `policy`: one that is stricter than the definition's. With `ends_as` (dry_run or compared_only) the run says what
    would change and drops what it staged. `compare` judges the live job's windows; `live_news` says whether a night
    without new records has something to compare. `gate` checks what is staged; where there is none, `unchecked` says
    why. `prepare` begins what the gate takes seconds for, in the background, once it is known that there is work.
    `confirm_gate` raises DefinitionError where the gate could check no run. `collector` gathers the report's
    facts. `deliver` brings corrections to readers.
    """

    policy: Policy | None = None
    ends_as: RunStatus | None = None
    compare: CompareStage | None = None
    live_news: LiveNews | None = None
    gate: GateCheck | None = None
    prepare: Callable[[], None] | None = None
    confirm_gate: Callable[[], None] | None = None
    unchecked: str = ""
    collector: ReportCollector | None = None
    deliver: DeliverStage | None = None

    def delivered(self, spark: SparkSession, pipeline: Pipeline, folder: RunFolder) -> DeliveredCorrections | None:
        """What readers get of a run that has ended; None where the pipeline corrects nothing."""
        return None if self.deliver is None or pipeline.corrections is None else self.deliver(spark, pipeline, folder)


Around = Callable[[RunStage], AbstractContextManager[None]]
"""What is done around each stage."""


class Evaluator:
    """Carries out stages of the run that computes `work`.

    `staged`: what its staged rows stand for; None: what `work` says when the run begins. `started`: when that is.
    `around` is entered for each stage.
    """

    def __init__(
        self,
        work: Work,
        end_policy: EndPolicy,
        *,
        started: datetime | None = None,
        asked: Asked | None = None,
        staged: StagedRange | None = None,
        around: Around = lambda stage: nullcontext(),
    ) -> None:
        self.work, self.job, self.end_policy = work, work.job, end_policy
        self._started, self._asked, self._around = started or work.job.now(), asked or Asked(), around
        self._staged = staged
        self._stages: tuple[RunStage, ...] = ()
        self._open = ExitStack()
        self._replay: Replay | None = None
        self._verified: Verified | None = None
        self._to_begin: Callable[[], None] | None = None
        self._at: Stage | None = None

    @property
    def stages(self) -> tuple[RunStage, ...]:
        """All stages of the run."""
        return stages_of(self.job.pipeline, self.work.replay_stages, publishes=self.end_policy.ends_as is None)

    def evaluate(self, stages: Sequence[RunStage] | None = None) -> RunResult:
        """Carry out the stages; None: all of the run's. An error is recorded in the ledger and in the run's folder."""
        stages = self.stages if stages is None else stages
        self._stages = tuple(stage for stage in stages if not isinstance(stage, Deliver))
        with self.job.watched(lambda: self._at), shuffles_for(self.job.spark, self.job.rows), self._open:
            for stage in self._stages:
                if not (isinstance(stage, Publish) and self._ends_unpublished):
                    self._at = stage.name
                    with self._around(stage):
                        self._visit(stage)
        for stage in stages:
            if isinstance(stage, Deliver):  # whatever becomes of it, the run stands as it is
                with self._around(stage):
                    self.job.result.corrections = self.end_policy.delivered(
                        self.job.spark, self.job.pipeline, self.job.folder
                    )
        return self.job.result

    @property
    def _ends_unpublished(self) -> bool:
        """Whether a stage of this process has found that the run waits, or is dropped."""
        decision = self.job.result.decision
        return self._verified is not None and decision is not None and decision.action is not Action.PUBLISH

    def _visit(self, stage: RunStage) -> None:
        match stage:
            case Begin():
                self._begin()
            case MakeTimeline():
                self._make_timeline()
            case ReplayChunk() | ReplayTouched():
                self.work.stage(self._opened_replay(), stage)
            case CompareLive():
                self._compare()
            case Verify():
                self._verify()
            case Publish():
                self._publish(stage)
            case Deliver():
                pass

    def _opened_replay(self) -> Replay:
        """The run's replay; it stays open for the stages that follow."""
        if self._replay is None:
            goes_on = not any(isinstance(stage, MakeTimeline) for stage in self._stages)
            self._replay = self._open.enter_context(self.work.replay(goes_on=goes_on))
        return self._replay

    @property
    def staged(self) -> StagedRange:
        """What the run's staged rows stand for."""
        if self._staged is None:
            self._staged = self.work.staged()
        return self._staged

    def _begin(self) -> None:
        if self.end_policy.confirm_gate is not None:  # before anything is replayed
            self.end_policy.confirm_gate()
        staged = self.staged

        def enter() -> None:
            begin(self.job, self._asked, self._started)
            staged.write(self.job.folder)

        if self.work.begins_beside:
            self._to_begin = enter
        else:
            enter()

    def _make_timeline(self) -> None:
        beside = (self._to_begin, lambda: self.job.published) if self._to_begin else ()
        replay = self._opened_replay()
        make_timeline(self.job, replay, *beside)
        stage_quarantine(self.job, self.work.to_quarantine)
        if isinstance(self.work, FullWork) and not any(isinstance(stage, Verify) for stage in self._stages):
            self.work.share(replay)

    def _compare(self) -> None:
        windows = self.work.compared(keeps=self.end_policy.ends_as is None)
        compare_live(self.job, self._opened_replay(), self.end_policy.compare, windows)

    def _verify(self) -> None:
        """Verify what is staged, and let policy, gate and difference decide what becomes of it."""
        job, ends = self.job, self.end_policy
        policy = effective_policy(job.pipeline.publish, ends.policy)
        if not isinstance(self._stages[0], Verify):  # else the history has just been opened, and looked at
            confirm_files(job.spark, job.pipeline, job.plan)
        replay = self._opened_replay()
        self.work.keep(self.staged, replay)
        timeline = replay.timeline if job.is_faithful else None
        deduplicated = None if job.spec.deduplication is None else replay.deduplicated
        self._verified = self._open.enter_context(
            verified(
                job,
                self.staged,
                self.work.history.records,
                timeline,
                ends.gate,
                ends.collector,
                ends.unchecked,
                deduplicated,
                partial(self.work.account, replay),
            )
        )
        goes_on = any(isinstance(stage, Publish) for stage in self._stages)
        job.result.decision = conclude(job, policy, self._verified, ends_as=ends.ends_as, waits=not goes_on)

    def _publish(self, stage: Publish) -> None:
        known = self._verified
        publish(
            self.job,
            self.staged,
            difference=known and known.difference,
            evidence=known and known.evidence,
            reason=stage.reason,
            person=stage.person,
        )
