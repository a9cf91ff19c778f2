"""The tasks: each Spark stage by spark-submit, the approval by a person, and the report.

A task knows its run by the DAG run's id; everything else it hands on lies in the run store. XCom carries the chunks to
map over and a few lines for the approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator, HITLOperator
from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import RewindowError
from spark_jobs.orchestration.form import read_form, read_instant, read_reason
from spark_jobs.orchestration.links import LINKS
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.orchestration.settings import spark_submit_settings
from spark_jobs.orchestration.summary import approval_body
from spark_jobs.runs.store import (
    APPROVAL,
    DEFINITION,
    ENDED,
    OUTCOME,
    PLAN,
    REQUEST,
    RunFolder,
    RunStore,
    application_document,
)
from spark_jobs.submit.package import ENTRY

NON_RETRYABLE_EXIT_CODES = frozenset({2, 3, 5, 6})
"""Exit codes that a second try does not mend: definition, gate, history, empty range."""


def folder_of(context: Context) -> RunFolder:
    """The documents of the run that a DAG run carries out."""
    run = context["dag_run"]
    return RunStore.configured().folder(run_id_of(run.dag_id, run.run_id))


class SparkStage(SparkSubmitOperator):
    """One stage of a run, as a Spark application. `pipeline_file` is the YAML; `chunk` is mapped over."""

    template_fields: Sequence[str] = ()
    operator_extra_links = LINKS

    def __init__(
        self, *, stage: str, pipeline: str, pipeline_file: str, chunk: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(
            application=str(ENTRY), name=f"rewindow-{stage}-{pipeline}", **spark_submit_settings(), **kwargs
        )
        self.stage = stage
        self.pipeline = pipeline
        self.pipeline_file = pipeline_file
        self.chunk = chunk

    def execute(self, context: Context) -> Any:
        folder = folder_of(context)
        if self.chunk is not None:
            context["chunk_label"] = self.chunk["label"]
        try:
            self._prepare(folder, context)
        except RewindowError as problem:
            record = {"message": problem.what, "where": problem.where, "hint": problem.hint}
            folder.write(OUTCOME, {"run_id": folder.run_id, "status": "failed", "stage": self.stage, **record})
            raise AirflowFailException(str(problem)) from problem
        if folder.status() in ENDED:
            self.log.info("nothing to do: run %s has ended", folder.run_id)  # no reason to start Spark for that
        elif context["ti"].try_number == 1 and self._is_done(folder):
            self.log.info("done already: in the application of the plan, because the history is small")
        else:
            self._submit(folder, context, self.stage)
        return self._told(folder, context)

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        """What has to be there, or to be refused, before Spark starts."""
        if folder.status() == "dry_run":
            raise AirflowSkipException("a dry run: there is nothing more to do")

    def _is_done(self, folder: RunFolder) -> bool:
        """Whether another task's application has carried out this stage. A task that is cleared does it again."""
        if self.stage not in ("timeline", "replay"):
            return False
        told = folder.read(application_document(self.stage, self.chunk["number"] if self.chunk else None))
        return told is not None and told["seconds"] is not None

    def _submit(self, folder: RunFolder, context: Context, stage: str, *more: str) -> None:
        arguments = ["--run", folder.run_id, "--stage", stage, *more]
        if self.chunk is not None:
            arguments += ["--chunk", str(self.chunk["number"])]
        self.application_args = arguments
        self._hook = None
        try:
            super().execute(context)
        except AirflowException as problem:
            outcome = folder.read(OUTCOME) or {}
            if outcome.get("status") not in ("failed", "gate_failed") or not outcome.get("message"):
                raise
            where = f" ({outcome['where']})" if outcome.get("where") else ""
            message = f"{outcome['message']}{where}. {outcome.get('hint') or outcome.get('mend') or ''}".strip()
            lasts = outcome["status"] == "gate_failed" or outcome.get("exit_code") in NON_RETRYABLE_EXIT_CODES
            raise (AirflowFailException if lasts else AirflowException)(message) from problem

    def _told(self, folder: RunFolder, context: Context) -> Any:
        """What the task hands on."""
        return None


class Plan(SparkStage):
    """Check the form, decide all that the run will do; gives the chunks to map over."""

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        write_request(folder, self.pipeline_file, "backfill", read_form(context["params"]), context)

    def _told(self, folder: RunFolder, context: Context) -> list[dict[str, Any]]:
        status = folder.status()
        if status is not None and status != "failed":  # a dry run, or a run that was published before
            return []
        chunks = (folder.read(PLAN) or {})["chunks"]
        return [
            {"number": n, "label": f"{n}: {format_instant(c['start'])} to {format_instant(c['end'])}"}
            for n, c in enumerate(chunks, 1)
        ]


class Reconcile(SparkStage):
    """The whole reconciliation of a night but its publishing."""

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        run, params = context["dag_run"], context["params"]
        until = read_instant(params.get("until"), "Until")
        if until is None and run.run_type in ("scheduled", "backfill") and run.data_interval_end is not None:
            until = read_instant(run.data_interval_end.isoformat(), "interval end")
        asked = read_form(params)
        write_request(
            folder,
            self.pipeline_file,
            "reconcile",
            {"until": until, "publish": asked["publish"], "dry_run": asked["dry_run"]},
            context,
        )


class Publish(SparkStage):
    """Publish what is staged, or throw it away where a person has said no. The asset's event tells what changed."""

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        status = folder.status()
        if status in ("dry_run", "compared_only", "unchanged"):
            raise AirflowSkipException("there is nothing to publish")

    def _submit(self, folder: RunFolder, context: Context, stage: str, *more: str) -> None:
        approval = folder.read(APPROVAL) or {}
        if approval.get("decision") == "rejected":
            why = f"rejected by {approval['by']}" + (f": {approval['comment']}" if approval.get("comment") else "")
            super()._submit(folder, context, "discard", "--why", why)
            raise AirflowSkipException(f"{why}; nothing was published, what was staged is gone")
        super()._submit(folder, context, stage, *more)

    def _told(self, folder: RunFolder, context: Context) -> dict[str, Any]:
        outcome = folder.read(OUTCOME) or {}
        if outcome.get("status") == "unchanged":
            raise AirflowSkipException("nothing changed: all windows are as they were")
        plan = folder.read(PLAN) or {}
        facts = {
            "run_id": folder.run_id,
            "changes": outcome.get("changes", {}),
            "from": format_instant(plan["span"]["start"]),
            "to": format_instant(plan["span"]["end"]),
            "windows": outcome.get("counts", {}).get("windows"),
        }
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = facts
        return facts


class Approve(ApprovalOperator):
    """Ask a person, where policy and difference ask for one; else it is skipped. A "no" is an answer, not a failure."""

    operator_extra_links = (*LINKS, *ApprovalOperator.operator_extra_links)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(subject=f"Publish the restatement of {pipeline}?", body="", **kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> Any:
        folder = folder_of(context)
        outcome = folder.read(OUTCOME) or {}
        if outcome.get("status") != "awaiting_approval":
            raise AirflowSkipException(f"nobody has to approve: {outcome.get('message') or outcome.get('status')}")
        self.body = approval_body(folder)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        # Not ApprovalOperator's: it would skip the task that throws the staged windows away.
        answer = HITLOperator.execute_complete(self, context, event)
        user = answer.get("responded_by_user") or {}
        approved = answer["chosen_options"] == [self.APPROVE]
        folder_of(context).write(
            APPROVAL,
            {
                "decision": "approved" if approved else "rejected",
                "by": user.get("name") or user.get("id") or "unknown",
                "at": str(answer.get("responded_at")),
                "comment": "",
            },
        )
        return answer["chosen_options"]


class Report(BaseOperator):
    """Write the report of the run, whatever became of it."""

    operator_extra_links = LINKS

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> str:
        from spark_jobs.report.build import build_report
        from spark_jobs.runs.store import PAGE

        folder = folder_of(context)
        build_report(folder)
        outcome = folder.read(OUTCOME) or {}
        self.log.info("run %s is %s: %s", folder.run_id, outcome.get("status"), outcome.get("message"))
        self.log.info("report: %s", folder.address(PAGE))
        return folder.run_id


def write_request(folder: RunFolder, file: str, kind: str, asked: dict[str, Any], context: Context) -> None:
    """Write down what is asked for, and the definition as it is now; a run that has begun keeps its own."""
    from spark_jobs.runs.request import request_record

    pipeline = load_pipeline(file)
    run = context["dag_run"]
    record = request_record(
        folder.run_id,
        pipeline,
        kind,
        read_reason(context["params"]),
        datetime.now(UTC),
        asked,
        requested_by=str(getattr(run, "triggering_user_name", None) or getattr(run.run_type, "value", run.run_type)),
    )
    if folder.status() == "published":
        return
    folder.write(REQUEST, {**record, "dag_id": run.dag_id, "dag_run_id": run.run_id})
    folder.write_text(DEFINITION, pipeline.text or Path(file).read_text())
    _forget(folder)


def _forget(folder: RunFolder) -> None:
    """A run that begins again has no outcome and no answer yet."""
    for document in (OUTCOME, APPROVAL):
        folder.remove(document)
