"""The task that answers a person's question about a pipeline, as a Spark application that only reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context

from spark_jobs.definition import load_pipeline
from spark_jobs.errors import DefinitionError, RewindowError
from spark_jobs.orchestration.airflow_names import AirflowException, AirflowFailException
from spark_jobs.orchestration.form import look_params, refuse_unknown
from spark_jobs.orchestration.links import AnswerLink, answer_path
from spark_jobs.orchestration.operators import SparkTask, dag_run_of, params_of, person_of
from spark_jobs.orchestration.spark_log import end_of
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.looks import Look, Looks, Question, Subject
from spark_jobs.whatif.definitions import OF_FORMS, variants_of


class LookAt(SparkTask):
    """Check the form, then let an application answer; what goes wrong is the answer too."""

    operator_extra_links = (AnswerLink(),)

    def __init__(self, *, pipeline: str, pipeline_file: str, **kwargs: Any) -> None:
        super().__init__(work="look", pipeline=pipeline, pipeline_file=pipeline_file, **kwargs)

    def _carry_out(self, context: Context) -> None:
        run, now = dag_run_of(context), datetime.now(UTC)
        looks = Looks(RunStore.configured(), self.pipeline)
        name = looks.name_of(run.run_id, now)
        asked = Look(dag_run_id=run.run_id, asked_by=person_of(run), asked_at=now.isoformat())
        try:
            asked = asked.model_copy(update={"question": self._question(context)})
        except RewindowError as problem:
            looks.write(name, asked.model_copy(update={"problem": problem.what, "hint": problem.hint}))
            raise AirflowFailException(str(problem)) from None
        looks.write(name, asked)
        self.log.info("the answer: %s", answer_path(self.pipeline, run.run_id))
        try:
            self._run_application(context, ["--look", self.pipeline_file, "--question", name])
        except AirflowException as problem:
            said, end = looks.read(name), end_of(self._hook, problem)
            if said is None or not said.problem:  # it was killed, or did not start
                looks.write(
                    name, asked.model_copy(update={"problem": end.sentence, "hint": "See the log of the task."})
                )
            raise AirflowFailException(end.sentence) from None

    def _question(self, context: Context) -> Question:
        """The question of the form. Raises DefinitionError that names the field."""
        params, pipeline = params_of(context), load_pipeline(self.pipeline_file)
        fields = look_params(pipeline)
        refuse_unknown(params, fields)
        question = Question.of(params)
        question.refuse_other_keys(tuple(pipeline.keys))
        if question.what is Subject.WHAT_IF:
            variants_of(pipeline, question.sets, only=OF_FORMS)
        if question.what not in fields["what"].schema["enum"]:
            raise DefinitionError(
                f"What: {pipeline.name} has no section `{question.what}`", "the form", "Choose something else."
            )
        return question
