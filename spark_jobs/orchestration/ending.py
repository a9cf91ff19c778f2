"""The tasks at the end of a run that need no Spark: a person's approval, and the report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import BaseOperator, Context, Param

from spark_jobs.orchestration.airflow_names import (
    AirflowFailException,
    AirflowSkipException,
    TaskAwaitingInput,
    TaskDeferred,
)
from spark_jobs.orchestration.links import LINKS, report_path
from spark_jobs.orchestration.notify import say_before_traceback
from spark_jobs.orchestration.operators import folder_of, what_became, write_unread_request
from spark_jobs.orchestration.summary import approval_body
from spark_jobs.orchestration.waiting import AnsweredOrDecided, decided_status
from spark_jobs.runs.documents import Answer, Approval, Outcome, Request, StagedRange
from spark_jobs.runs.last_run import remember
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.unfinished import record_end

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

    Airflow takes the state of the DAG run from this task: as a teardown it also runs where a person has marked tasks,
    or the whole DAG run, as failed.
    """

    operator_extra_links = LINKS

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> str:
        from spark_jobs.report.build import build_report
        from spark_jobs.runs.store import PAGE

        folder = folder_of(context)
        if Request.read(folder) is None:  # it was ended before its first task began
            write_unread_request(folder, self.pipeline, context)
        record_end(folder, datetime.now(UTC))
        build_report(folder)
        remember(folder)
        self.log.info("report: %s (%s)", report_path(folder.run_id), folder.address(PAGE))
        outcome = Outcome.read(folder)
        if outcome is None or not outcome.status.is_success:
            failed = AirflowFailException(f"{what_became(outcome)}; the report is written")
            say_before_traceback(self.log, failed)
            raise failed
        self.log.info("%s", what_became(outcome))
        return folder.run_id
