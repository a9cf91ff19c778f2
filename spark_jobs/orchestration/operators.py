"""The tasks that start Spark: each stage of a run by spark-submit.

A task finds its run by the DAG run's id; all else that tasks pass on is in the run store. XCom carries the chunks to
map over and a few lines for the approval.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Asset, Context

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import format_instant, parse_instant
from spark_jobs.errors import DefinitionError, RewindowError
from spark_jobs.orchestration.airflow_names import AirflowException, AirflowFailException, AirflowSkipException
from spark_jobs.orchestration.form import (
    CORRECTING,
    decide_params,
    read_form,
    read_maintain_form,
    read_nightly_form,
    read_reason,
    refuse_late_decision,
    refuse_unknown,
    require_reason,
)
from spark_jobs.orchestration.links import LINKS, report_path
from spark_jobs.orchestration.notify import notify, say_before_traceback
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.orchestration.spark_log import end_of, quiet, spark_submit_settings
from spark_jobs.runs.life.documents import (
    Answer,
    Approval,
    Changes,
    Outcome,
    Request,
    failure_fields,
    instant_of,
    status_of,
)
from spark_jobs.runs.life.permission import effective_policy
from spark_jobs.runs.life.status import RunKind, RunStatus, Stage
from spark_jobs.runs.life.store import DEFINITION, RunFolder, RunStore
from spark_jobs.runs.life.unfinished import BEGIN_AGAIN, ended_by_force
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.form_words import in_form_words
from spark_jobs.runs.planning.plan_document import Plan as RunPlan
from spark_jobs.runs.planning.requesting import check_order, check_range, check_until
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.runs.work.figures import changes_in_words
from spark_jobs.runs.work.stages import RunStage, applications_of, stages_of
from spark_jobs.submit.package import ENTRY

NON_RETRYABLE_EXIT_CODES = frozenset({2, 3, 5, 6, 9})
"""Exit codes that a second try does not change: definition, gate, history, empty range, state."""

_EXPLAINED = (RunStatus.FAILED, RunStatus.GATE_FAILED, RunStatus.AWAITING_APPROVAL)
"""What an application that ended with an error has written into the outcome, if it could."""


def dag_run_of(context: Context) -> Any:
    """The DAG run of a task; Airflow's type of the context calls every key optional."""
    return cast(Any, context.get("dag_run"))


def person_of(run: Any) -> str:
    """Who started a DAG run: a user, or what did."""
    kind = str(getattr(run.run_type, "value", run.run_type))
    return str(getattr(run, "triggering_user_name", None) or _NOBODY.get(kind, kind))


def deciding_person(context: Context) -> str:
    """The user who has sent the form of `decide__`.

    Raises DefinitionError where no user has, as when another DAG triggers it, and where the task is repeated: whoever
    cleared it is not the one whose name the DAG run has.
    """
    run, task = dag_run_of(context), cast(Any, context.get("ti"))
    person = str(getattr(run, "triggering_user_name", None) or "")
    if not person:
        raise DefinitionError("no user has decided this", run.run_id, f"A person sends the form of {run.dag_id}.")
    if task is not None and task.try_number > 1:
        what = f"a decision is not repeated: {person} has made it once"
        raise DefinitionError(what, run.run_id, f"Send the form of {run.dag_id} once more.")
    return person


_NOBODY = {"scheduled": "the schedule", "backfill": "a backfill of Airflow", "asset_triggered": "an asset"}
"""Who has started a run that no user has started, by its type."""


def _requested_at(run: Any) -> datetime:
    """When a DAG run was asked for: before its first task began."""
    return getattr(run, "queued_at", None) or datetime.now(UTC)


def params_of(context: Context) -> Any:
    """The form of the DAG run."""
    return cast(Any, context.get("params"))


def folder_of(context: Context) -> RunFolder:
    """The documents of the run that a DAG run carries out."""
    run = dag_run_of(context)
    return RunStore.configured().folder(run_id_of(run.dag_id, run.run_id))


class SparkTask(SparkSubmitOperator):
    """Work on a pipeline as a Spark application. A task that fails says why in one line before Airflow's traceback.

    `work` names the application; `pipeline_file` is the YAML.
    """

    template_fields: Sequence[str] = ()

    def __init__(self, *, work: str, pipeline: str, pipeline_file: str, **kwargs: Any) -> None:
        super().__init__(
            application=str(ENTRY), name=f"rewindow-{work}-{pipeline}", **spark_submit_settings(), **kwargs
        )
        self.pipeline = pipeline
        self.pipeline_file = pipeline_file

    def _get_hook(self) -> SparkSubmitHook:
        return quiet(super()._get_hook())

    def execute(self, context: Context) -> Any:
        try:
            return self._carry_out(context)
        except AirflowException as problem:
            say_before_traceback(self.log, problem)
            raise

    def _carry_out(self, context: Context) -> Any:
        """What the task does and passes on."""
        raise NotImplementedError

    def _run_application(self, context: Context, arguments: list[str]) -> None:
        """Run the application to its end. Raises AirflowException where it fails."""
        self.application_args = arguments
        super().execute(context)


def _failure(sentence: str, is_final: bool) -> AirflowException:
    """The error with which a task ends. `is_final`: another try would end in the same way, so there is none."""
    return (AirflowFailException if is_final else AirflowException)(sentence)


class SparkStage(SparkTask):
    """One stage of a run, as a Spark application. `pipeline_file` is the YAML; `chunk` is mapped over."""

    operator_extra_links = LINKS

    def __init__(
        self, *, stage: Stage, pipeline: str, pipeline_file: str, chunk: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(work=stage.value, pipeline=pipeline, pipeline_file=pipeline_file, **kwargs)
        self.stage = stage
        self.chunk = chunk
        self.worked_on = ""

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """The task's lineage, for OpenLineage's provider, which calls this also for a task that has failed."""
        from spark_jobs.orchestration.lineage import lineage_of

        return lineage_of(RunStore.configured().folder(self.worked_on), self.stage) if self.worked_on else None

    def _carry_out(self, context: Context) -> Any:
        folder, task_instance = self._folder(context), cast(Any, context.get("ti"))
        self.worked_on = folder.run_id
        self.log.info("%s of %s: run %s", self.stage.value, self.pipeline, folder.run_id)
        if self.chunk is not None:
            context.update({"chunk_label": self.chunk["label"]})  # pyright: ignore[reportCallIssue,reportArgumentType]
        try:
            self._prepare(folder, context)
        except RewindowError as problem:
            self._refused(folder, in_form_words(problem), context)
            raise AirflowFailException(str(problem)) from None
        self.log.info("its report: %s", report_path(folder.run_id))
        status = status_of(folder)
        if status is not None and status.is_final and not self._follows_the_end(context):
            self.log.info("nothing to do: run %s has ended", folder.run_id)  # no reason to start Spark for that
        elif task_instance.try_number == 1 and not self._is_own_application(folder):
            self.log.info("this stage has run inside another task's application; clear this task to run it again")
            if self.stage is Stage.VERIFY and status is RunStatus.GATE_FAILED:
                outcome = Outcome.read(folder)
                raise AirflowFailException(outcome.sentence() if outcome else "the gate is closed")
        else:
            self._submit(folder, context, self.stage)
        result = self._result(folder, context)
        self.log.info("%s has ended: %s", self.stage.value, what_became(Outcome.read(folder)))
        return result

    def _folder(self, context: Context) -> RunFolder:
        """The run that the task works on."""
        return folder_of(context)

    def _follows_the_end(self, context: Context) -> bool:
        """Whether the task has work at a run that has ended."""
        return self.stage.follows_the_end

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        """Check what has to be there, or is refused, before Spark starts."""
        if status_of(folder) is RunStatus.DRY_RUN:
            raise AirflowSkipException("a dry run: there is nothing more to do")

    def _refused(self, folder: RunFolder, problem: RewindowError, context: Context) -> None:
        """Write down why the stage was refused before Spark started, so that the run has a report."""
        if Request.read(folder) is None:  # the definition itself cannot be read
            write_unread_request(folder, self.pipeline, context, self.pipeline_file)
        Outcome(
            run_id=folder.run_id,
            status=RunStatus.FAILED,
            stage=self.stage,
            finished_at=datetime.now(UTC).isoformat(),
            **failure_fields(problem),
        ).write(folder)

    def _is_own_application(self, folder: RunFolder) -> bool:
        """Whether the run's plan has an application that begins with this stage.

        Who publishes is decided by policy and gate alone: then the run's status says whether that is left to do.
        """
        return self.stage in (Stage.PLAN, Stage.RECONCILE, Stage.PUBLISH, Stage.DISCARD) or self.stage in (
            stages[0].name for stages in self._applications(folder)
        )

    def _applications(self, folder: RunFolder) -> tuple[tuple[RunStage, ...], ...]:
        """The run's stages by application; a night has one, and no plan in stages."""
        plan, request = RunPlan.read(folder), Request.read(folder)
        if plan is None or request is None or request.kind is RunKind.RECONCILE:
            return ()
        return applications_of(stages_of(load_pipeline(self.pipeline_file), plan.replay_stages), plan.records)

    def _submit(self, folder: RunFolder, context: Context, stage: Stage, *more: str) -> None:
        arguments = ["--run", folder.run_id, "--stage", stage.value, *more]
        if self.chunk is not None:
            arguments += ["--chunk", str(self.chunk["number"])]
        self._hook = None
        try:
            self._run_application(context, arguments)
        except AirflowException as problem:
            outcome = Outcome.read(folder)
            sentence = why_it_ended(outcome)
            if outcome is None or not sentence:
                raise AirflowException(self._silent_end(folder, outcome, problem)) from None
            is_final = outcome.status is not RunStatus.FAILED or outcome.exit_code in NON_RETRYABLE_EXIT_CODES
            raise _failure(sentence, is_final) from None

    def _silent_end(self, folder: RunFolder, outcome: Outcome | None, problem: AirflowException) -> str:
        """What is said where the application left no message: it was killed, or did not start."""
        end = end_of(self._hook, problem)
        said = Outcome(
            run_id=folder.run_id,
            status=RunStatus.FAILED,
            stage=self.stage,
            message=ended_by_force(self.stage) if end.is_killed else end.sentence.rstrip("."),
            hint=BEGIN_AGAIN if end.is_killed else "Read this task's log: the end of Spark's output says more",
            finished_at=datetime.now(UTC).isoformat(),
        )
        if outcome is None:
            said.write(folder)
        return said.sentence()

    def _result(self, folder: RunFolder, context: Context) -> Any:
        """What the task passes on."""
        return None

    def _tell_followers(self, context: Context, facts: dict[str, Any]) -> None:
        """Put the facts into the event of the task's asset, which other DAGs may follow."""
        outlet_events = cast(Any, context.get("outlet_events"))
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                outlet_events[outlet].extra = facts


class Plan(SparkStage):
    """Check the form, decide all that the run will do; gives the chunks to map over."""

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        if status_of(folder) is RunStatus.PUBLISHED:
            return  # it keeps its request
        params = params_of(context)
        pipeline = write_request(folder, self.pipeline_file, RunKind.BACKFILL, context)
        requested = read_form(params)
        require_reason(params)
        Request.required(folder).model_copy(update={"requested": requested}).write(folder)
        check_range(pipeline, instant_of(requested.start), instant_of(requested.end))
        check_order(pipeline, requested.mode or pipeline.mode)
        effective_policy(pipeline.publish, requested.publish)

    def _result(self, folder: RunFolder, context: Context) -> list[dict[str, Any]]:
        if status_of(folder) is RunStatus.DRY_RUN:
            return []
        plan = RunPlan.read(folder)
        return [] if plan is None else [{"number": s.number, "label": s.label} for s in plan.replay_stages]


class Reconcile(SparkStage):
    """The whole reconciliation of a night but its publishing."""

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        if status_of(folder) is RunStatus.PUBLISHED:
            return  # it keeps its request
        run, params = dag_run_of(context), params_of(context)
        pipeline = write_request(folder, self.pipeline_file, RunKind.RECONCILE, context)
        requested = read_nightly_form(params)
        check_until(pipeline, instant_of(requested.until))
        check_order(pipeline, pipeline.mode)
        has_arrivals = "arrival" not in pipeline.history.position.missing
        is_scheduled = run.run_type in ("scheduled", "backfill") and run.data_interval_end
        if requested.until is None and has_arrivals and is_scheduled:
            end = format_instant(parse_instant(run.data_interval_end.isoformat()))
            requested = requested.model_copy(update={"until": end})
        Request.required(folder).model_copy(update={"requested": requested}).write(folder)
        effective_policy(pipeline.publish, requested.publish)


class Compare(SparkStage):
    """Judge the live job's windows. The asset's event says how many have which verdict.

    A reconciliation has compared them already; then the task only says what was found, also when it is cleared.
    """

    def _submit(self, folder: RunFolder, context: Context, stage: Stage, *more: str) -> None:
        request = Request.read(folder)
        if request is None or request.kind is not RunKind.RECONCILE:
            super()._submit(folder, context, stage, *more)

    def _result(self, folder: RunFolder, context: Context) -> dict[str, Any]:
        verdicts = Verdicts.read(folder)
        if verdicts is None:
            raise AirflowSkipException("nothing was compared")
        if verdicts.problem:
            self.log.warning("not compared: %s", verdicts.problem)
        facts = {name: getattr(verdicts, name) for name in ("windows", "problem")}
        facts |= {"run_id": folder.run_id, "verdicts": verdicts.counts}
        self._tell_followers(context, facts)
        if verdicts.unexplained:
            notify("live_mismatch", context)
        return facts


class Publish(SparkStage):
    """Publish what is staged. Where a person has said no, drop it, and be skipped: a "no" is no failure.

    The asset's event says what changed.
    """

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        if status_of(folder) in (RunStatus.DRY_RUN, RunStatus.COMPARED_ONLY, RunStatus.UNCHANGED):
            raise AirflowSkipException("there is nothing to publish")

    def _submit(self, folder: RunFolder, context: Context, stage: Stage, *more: str) -> None:
        approval = Approval.read(folder)
        if approval is not None and approval.decision is Answer.REJECTED:
            super()._submit(folder, context, Stage.DISCARD, f"--why={approval.why}")
            raise AirflowSkipException(f"{approval.why}; nothing was published, what was staged is dropped")
        super()._submit(folder, context, stage, *more)

    def _result(self, folder: RunFolder, context: Context) -> dict[str, Any]:
        outcome = Outcome.read(folder)
        if outcome is not None and outcome.status in (RunStatus.REJECTED, RunStatus.DISCARDED):
            raise AirflowSkipException(f"the run is {outcome.status.value}: nothing was published")
        if outcome is None or outcome.status is RunStatus.UNCHANGED:
            raise AirflowSkipException("nothing changed: all windows are as they were")
        facts = {"run_id": folder.run_id, "changes": outcome.changes, "windows": outcome.counts.windows}
        facts |= changed_range(folder)
        changes = Changes.read(folder)
        periods = list(changes.changed_periods) if changes is not None else []
        self._tell_followers(context, facts | {"periods": periods})
        tell_periods(self.outlets, context, periods)
        if changes is not None and changes.of_readers.windows:
            notify("restated", context)
        return facts


PERIODS = "__periods"
"""The suffix of the asset whose partitions are the periods that changed."""


def tell_periods(outlets: Sequence[Any], context: Context, periods: list[str]) -> None:
    """Give the event of the asset of periods a partition key for each; Airflow knows them from 3.2 on."""
    outlet_events = cast(Any, context.get("outlet_events"))
    for outlet in outlets:
        if isinstance(outlet, Asset) and outlet.name.endswith(PERIODS) and periods:
            accessor = outlet_events[outlet]
            if hasattr(accessor, "add_partitions"):
                accessor.add_partitions(periods)


def changed_range(folder: RunFolder) -> dict[str, str | None]:
    """`from`: the start of the first window that the run changes; `to`: the end of the last one, exclusive.

    The range of the plan where no window changes for readers.
    """
    changes, plan = Changes.read(folder), RunPlan.read(folder)
    span = changes.changed_span if changes is not None else None
    span = span or (plan and plan.span)
    return {"from": span and format_instant(span.start), "to": span and format_instant(span.end)}


class Correct(SparkStage):
    """Deliver to the readers of the live job's output what the run has changed.

    The application that published the run has tried that already; where it could not, this task tries again.
    """

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        status = status_of(folder)
        if status is None or not status.is_published:
            raise AirflowSkipException("the run is not published: nothing is delivered")

    def _is_own_application(self, folder: RunFolder) -> bool:
        found = DeliveredCorrections.read(folder)
        return found is None or not found.is_delivered

    def _submit(self, folder: RunFolder, context: Context, stage: Stage, *more: str) -> None:
        try:
            super()._submit(folder, context, stage, *more)
        except AirflowException:
            found = DeliveredCorrections.read(folder)
            if found is None or not found.problem:
                raise
            raise _failure(found.sentence(), found.exit_code in NON_RETRYABLE_EXIT_CODES) from None

    def _result(self, folder: RunFolder, context: Context) -> dict[str, Any]:
        found = DeliveredCorrections.read(folder)
        if found is None:
            raise AirflowSkipException("nothing was delivered")
        self.log.info("%s", found.sentence())
        return {"run_id": folder.run_id, "destination": found.destination, "rows": found.delivered}


def refuse_other_approver(pipeline: Pipeline, person: str, action: str) -> None:
    """Raises DefinitionError where the definition names who may publish, and it is somebody else."""
    approvers = pipeline.publish.approvers
    if action == Stage.PUBLISH.value and approvers and person not in approvers:
        raise DefinitionError(
            f"{person} may not publish a run of {pipeline.name}", "the form", f"Ask one of {', '.join(approvers)}."
        )


class Decide(SparkStage):
    """Publish or discard the run that the form names: a person's decision, with a reason."""

    operator_extra_links = ()

    def _folder(self, context: Context) -> RunFolder:
        return RunStore.configured().folder(str(params_of(context)["run"]))

    def _prepare(self, folder: RunFolder, context: Context) -> None:
        params = params_of(context)
        refuse_unknown(params, decide_params(corrects=True))
        request = Request.read(folder)
        if request is None or request.pipeline != self.pipeline:
            raise DefinitionError(
                f"{self.pipeline} has no run {folder.run_id}", "the form", "Copy its id from its report."
            )
        require_reason(params)
        refuse_other_approver(load_pipeline(self.pipeline_file), deciding_person(context), params["action"])
        refuse_late_decision(folder.run_id, status_of(folder), params["action"])

    def _follows_the_end(self, context: Context) -> bool:
        return params_of(context)["action"] in CORRECTING

    def _refused(self, folder: RunFolder, problem: RewindowError, context: Context) -> None:
        """Nothing: the run that the form names stays as it is."""

    def _submit(self, folder: RunFolder, context: Context, stage: Stage, *more: str) -> None:
        params = params_of(context)
        chosen = Stage(params["action"])
        super()._submit(folder, context, chosen, f"--why={read_reason(params)}", f"--person={deciding_person(context)}")

    def _result(self, folder: RunFolder, context: Context) -> str:
        from spark_jobs.report.build import build_report

        build_report(folder)
        status, corrections = status_of(folder), DeliveredCorrections.read(folder)
        self.log.info("run %s is %s", folder.run_id, status and status.value)
        if status is not None and status.is_published and corrections is not None and corrections.problem:
            raise AirflowFailException(f"the run is published, but {corrections.sentence()}")
        return folder.run_id


class Maintain(SparkTask):
    """Clean up a pipeline's tables, as `rewindow maintain` does, or archive, as `rewindow archive` does."""

    def __init__(self, *, pipeline: str, pipeline_file: str, archives: bool, **kwargs: Any) -> None:
        super().__init__(work="maintain", pipeline=pipeline, pipeline_file=pipeline_file, **kwargs)
        self.archives = archives

    def _carry_out(self, context: Context) -> None:
        try:
            arguments = read_maintain_form(params_of(context), self.pipeline_file, archives=self.archives)
        except DefinitionError as problem:
            raise AirflowFailException(str(problem)) from None
        try:
            self._run_application(context, arguments)
        except AirflowException as problem:
            end = end_of(self._hook, problem)
            raise _failure(end.sentence, end.code in NON_RETRYABLE_EXIT_CODES) from None


def why_it_ended(outcome: Outcome | None) -> str:
    """Why an application ended with an error, by what it has written; empty where it left no message.

    A run that waits and that could not be published, or discarded, stays as it was: then the refusal counts, not why it
    waits.
    """
    if outcome is None:
        return ""
    if outcome.status.waits and outcome.refusal:
        return outcome.refusal
    return outcome.sentence() if outcome.message and outcome.status in _EXPLAINED else ""


def what_became(outcome: Outcome | None) -> str:
    """Where a run stands, in a sentence for its log."""
    if outcome is None:
        return "the run goes on"
    said = outcome.sentence() if outcome.message else outcome.note
    if outcome.status.is_published:
        said = "; ".join(filter(None, (changes_in_words(outcome.changes), said)))
    return f"the run is {outcome.status.in_words}" + (f": {said.rstrip('.')}" if said else "")


def write_request(folder: RunFolder, file: str, kind: RunKind, context: Context) -> Pipeline:
    """Write down who starts the run and why, and the definition as it is now; what is requested follows."""
    pipeline = load_pipeline(file)
    run = dag_run_of(context)
    reason = read_reason(params_of(context))
    request = Request.of(folder.run_id, pipeline, kind, reason, _requested_at(run), requested_by=person_of(run))
    request.model_copy(update={"dag_id": run.dag_id, "dag_run_id": run.run_id}).write(folder)
    folder.write_text(DEFINITION, pipeline.text or Path(file).read_text())
    for document in (Outcome.FILE, Approval.FILE, Verdicts.FILE, DeliveredCorrections.FILE):  # of the run before
        folder.remove(document)
    return pipeline


def write_unread_request(folder: RunFolder, pipeline: str, context: Context, file: str | None = None) -> None:
    """Write down who started a run that has not got as far as its form and its definition, so that it has a report."""
    run = dag_run_of(context)
    Request(
        run_id=folder.run_id,
        pipeline=pipeline,
        file=file,
        kind=RunKind(run.dag_id.partition("__")[0]),
        requested_by=person_of(run),
        requested_at=_requested_at(run).isoformat(),
        dag_id=run.dag_id,
        dag_run_id=run.run_id,
    ).write(folder)
