"""The tasks at the end of a run that need no Spark: an approval or a decision by another way, and the report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.providers.standard.triggers.hitl import HITLTrigger
from airflow.sdk import BaseOperator, Context, Param
from airflow.triggers.base import TriggerEvent

from spark_jobs.errors import RewindowError
from spark_jobs.orchestration.airflow_names import (
    AirflowFailException,
    AirflowSkipException,
    TaskAwaitingInput,
    TaskDeferred,
)
from spark_jobs.orchestration.describe import approval_body
from spark_jobs.orchestration.links import LINKS, report_path
from spark_jobs.orchestration.notify import say_before_traceback
from spark_jobs.orchestration.operators import folder_of, what_became, write_unread_request
from spark_jobs.runs.life.documents import Answer, Approval, Outcome, Request, StagedRange
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunFolder, RunStore
from spark_jobs.runs.life.unfinished import record_end
from spark_jobs.runs.planning.last_run import remember
from spark_jobs.runs.work.corrected import DeliveredCorrections

COMMENT = "comment"
_LONGEST = 1000


def comment_params() -> dict[str, Param]:
    """The field beside the two answers. An operator cannot add it itself: Airflow takes it for the DAG's then."""
    title, description = "Comment", "Why. It is kept with the run and shown in its report."
    return {COMMENT: Param(None, type=["null", "string"], title=title, description=description, maxLength=_LONGEST)}


class Approve(ApprovalOperator):
    """Ask a person, where policy and difference ask for one; else it is skipped. A "no" is an answer, not a failure.

    It is skipped, too, where the run is published or dropped while it waits. `corrects`: publishing delivers
    corrections.
    """

    operator_extra_links = (*LINKS, *ApprovalOperator.operator_extra_links)

    def __init__(self, *, pipeline: str, corrects: bool, **kwargs: Any) -> None:
        super().__init__(subject=f"Publish what this run of {pipeline} has computed?", body="", **kwargs)
        self.pipeline = pipeline
        self.corrects = corrects

    def execute(self, context: Context) -> Any:
        folder = folder_of(context)
        outcome = Outcome.read(folder)
        if outcome is None or outcome.status is not RunStatus.AWAITING_APPROVAL:
            why = outcome and (outcome.message or outcome.status.value)
            raise AirflowSkipException(f"no approval is required: {why or 'the run has no outcome'}")
        self.body = approval_body(folder)
        try:
            return super().execute(context)
        except (TaskAwaitingInput, TaskDeferred):
            ti: Any = context.get("ti")
            self.defer(
                trigger=AnsweredOrDecided(
                    run_id=folder.run_id,
                    corrects=self.corrects,
                    ti_id=ti.id,
                    options=self.options,
                    defaults=self.defaults,
                    params=self.serialized_params,
                    multiple=self.multiple,
                    timeout_datetime=None,
                ),
                method_name="execute_complete",
            )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        if (status := decided_status(event)) is not None:
            self.log.info("no answer is needed any more: the run is %s", status.in_words)
            raise AirflowSkipException(f"the run is {status.in_words}")
        # Not ApprovalOperator's: it would skip the task that drops the staged windows.
        answer = HITLOperator.execute_complete(self, context, event)
        user = answer.get("responded_by_user") or {}
        approved = answer["chosen_options"] == [self.APPROVE]
        folder = folder_of(context)
        staged = StagedRange.read(folder)
        Approval(
            decision=Answer.APPROVED if approved else Answer.REJECTED,
            by=user.get("name") or user.get("id") or "unknown",
            at=str(answer.get("responded_at")),
            comment=str((answer.get("params_input") or {}).get(COMMENT) or "").strip()[:_LONGEST],
            attempt=staged and staged.attempt,
        ).write(folder)
        return answer["chosen_options"]


class Report(BaseOperator):
    """Write the report of the run, whatever became of it. It fails where the run has not done its work.

    That is also where its corrections did not arrive. Where a person has said no it is skipped: then nothing was to be
    done.

    Airflow takes the state of the DAG run from this task: as a teardown it also runs where a person has marked tasks,
    or the whole DAG run, as failed.
    """

    operator_extra_links = LINKS

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> str:
        from spark_jobs.report.build import build_report
        from spark_jobs.runs.life.store import PAGE

        folder = folder_of(context)
        if Request.read(folder) is None:  # it was ended before its first task began
            write_unread_request(folder, self.pipeline, context)
        record_end(folder, datetime.now(UTC))
        build_report(folder)
        remember(folder)
        self.log.info("report: %s (%s)", report_path(folder.run_id), folder.address(PAGE))
        outcome = Outcome.read(folder)
        if outcome is not None and outcome.status.is_refused:
            raise AirflowSkipException(f"{what_became(outcome)}; the report is written")
        if outcome is None or not outcome.status.is_success:
            self._fail(what_became(outcome))
        corrections = DeliveredCorrections.read(folder)
        if corrections is not None and corrections.problem:
            self._fail(f"{what_became(outcome)}, but {corrections.sentence()}")
        self.log.info("%s", what_became(outcome))
        return folder.run_id

    def _fail(self, why: str) -> NoReturn:
        failed = AirflowFailException(f"{why}; the report is written")
        say_before_traceback(self.log, failed)
        raise failed


_LOG = logging.getLogger(__name__)
_DECIDED = "decided"
_EVERY = 10.0
"""Seconds between two looks at the run."""
_DELIVERY = timedelta(minutes=10)
"""How long corrections are waited for: who publishes a run delivers them behind that."""


class AnsweredOrDecided(HITLTrigger):
    """The answer of a person; or that the run was published or dropped without one, see `decided_status`.

    Args:
        run_id: Rewindow's run.
        corrects: Whether corrections are delivered when it is published.
        given: What Airflow's trigger takes.
    """

    def __init__(self, *, run_id: str, corrects: bool, **given: Any) -> None:
        super().__init__(**given)
        self.run_id = run_id
        self.corrects = corrects

    def serialize(self) -> tuple[str, dict[str, Any]]:
        _, given = super().serialize()
        mine = {"run_id": self.run_id, "corrects": self.corrects}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**given, **mine}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Airflow's event of an answer, or one with the status of the run; then it ends."""
        answer = asyncio.ensure_future(anext(aiter(super().run())))
        try:
            while not (await asyncio.wait([answer], timeout=_EVERY))[0]:
                status = await asyncio.to_thread(self._decided)
                if status is not None:
                    yield TriggerEvent({_DECIDED: status.value})
                    return
            yield answer.result()
        finally:
            answer.cancel()

    def _decided(self) -> RunStatus | None:
        try:
            return decided(RunStore.configured().folder(self.run_id), datetime.now(UTC), corrects=self.corrects)
        except (OSError, ValueError, RewindowError) as problem:  # the answer is still waited for
            _LOG.warning("run %s cannot be looked at: %s", self.run_id, problem)
            return None


def decided(folder: RunFolder, now: datetime, *, corrects: bool) -> RunStatus | None:
    """The status of a run that was published or dropped, and nothing works on it any more; None: it waits.

    `corrects`: its corrections are waited for, but not for ever.
    """
    outcome = Outcome.read(folder)
    if outcome is None or not outcome.status.is_final:
        return None
    if corrects and outcome.status.is_published and DeliveredCorrections.read(folder) is None:
        written = outcome.finished_at
        if written is not None and now - datetime.fromisoformat(written) < _DELIVERY:
            return None
    return outcome.status


def decided_status(event: Mapping[str, Any]) -> RunStatus | None:
    """What an event of `AnsweredOrDecided` says of the run; None: it is a person's answer."""
    found = event.get(_DECIDED)
    return None if found is None else RunStatus(found)
