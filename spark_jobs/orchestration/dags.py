"""Two DAGs for each pipeline: `backfill__<pipeline>`, started by its form, and `reconcile__<pipeline>`, each night.

plan -> timeline -> replay (one task a chunk) -> verify -> approve -> publish -> report
reconcile -> approve -> publish -> report
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, CronDataIntervalTimetable, Param, TriggerRule, get_parsing_context

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.policy import Policy
from spark_jobs.errors import DefinitionError
from spark_jobs.orchestration import settings
from spark_jobs.orchestration.form import BY_DEFINITION, DRY_RUNS, MAX_REASON, backfill_params
from spark_jobs.orchestration.notify import notified_approval, on_failure
from spark_jobs.orchestration.operators import Approve, Plan, Publish, Reconcile, Report, SparkStage
from spark_jobs.orchestration.run_ids import dag_id_of
from spark_jobs.spark.catalog import CATALOG

_START = datetime(2020, 1, 1, tzinfo=UTC)
"""Nights before are nobody's; catchup is off, so nothing runs because of it."""

_PRESETS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}


def pipeline_files(folder: Path) -> list[Path]:
    """The YAML files of a folder, by name."""
    return sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))


def dags_of(folder: Path) -> Iterator[DAG]:
    """The DAGs of all pipelines of a folder that can be read; `refused` tells of the others.

    Where Airflow asks for one DAG (a task about to run), only that one is built.
    """
    asked = get_parsing_context().dag_id
    seen: set[str] = set()
    for file in pipeline_files(folder):
        try:
            pipeline = load_pipeline(file)
        except DefinitionError:
            continue
        if pipeline.name in seen:
            continue
        seen.add(pipeline.name)
        for dag_id, make in (
            (dag_id_of("backfill", pipeline.name), backfill_dag),
            (dag_id_of("reconcile", pipeline.name), nightly_dag),
        ):
            if asked in (None, dag_id):
                yield make(dag_id, pipeline)


def refused(folder: Path) -> list[str]:
    """What is wrong with the pipelines of a folder, a line a problem: file, line, field, mend."""
    found, names = [], {}
    for file in pipeline_files(folder):
        try:
            pipeline = load_pipeline(file)
        except DefinitionError as problem:
            found += [str(p) for p in problem.problems] or [str(problem)]
            continue
        other = names.setdefault(pipeline.name, file)
        if other != file:
            found.append(f"{file}:1: name: `{pipeline.name}` is taken by {other}; choose another name")
    return found


def backfill_dag(dag_id: str, pipeline: Pipeline) -> DAG:
    """The DAG that a person starts with a form."""
    with DAG(
        dag_id,
        description=pipeline.description or f"Replay the history of {pipeline.name}.",
        doc_md=_doc(pipeline, "Replays a range of the history through the live job's own event-time rules."),
        schedule=None,
        params=backfill_params(pipeline),
        render_template_as_native_obj=False,
        **_common(pipeline, max_active_runs=4),
    ) as dag:
        stage = _stage_arguments(pipeline)
        plan = Plan(task_id="plan", stage="plan", doc_md="Check the form and decide all that the run will do.", **stage)
        timeline = SparkStage(
            task_id="timeline", stage="timeline", doc_md="When the watermark passed which value.", **stage
        )
        replay = SparkStage.partial(
            task_id="replay",
            stage="replay",
            map_index_template="{{ chunk_label }}",
            max_active_tis_per_dagrun=settings.parallel_chunks(),
            doc_md="Stage the windows of one chunk.",
            **stage,
        ).expand(chunk=plan.output)
        verify = SparkStage(
            task_id="verify", stage="verify", doc_md="What would change, and what the expectations say.", **stage
        )
        plan >> timeline >> replay >> verify
        _ending(pipeline, verify, [plan, timeline, replay])
    return dag


def nightly_dag(dag_id: str, pipeline: Pipeline) -> DAG:
    """The scheduled DAG: it takes what arrived before the end of its interval."""
    schedule = pipeline.schedule
    with DAG(
        dag_id,
        description=f"Bring the windows of {pipeline.name} to what has arrived.",
        doc_md=_doc(pipeline, "Reads what arrived since the last run, recomputes the windows that it touches."),
        schedule=CronDataIntervalTimetable(_PRESETS.get(schedule.cron, schedule.cron), timezone=schedule.time_zone),
        start_date=_START,
        catchup=False,
        params=_nightly_params(),
        **_common(pipeline, max_active_runs=1),
    ) as dag:
        reconcile = Reconcile(
            task_id="reconcile",
            stage="reconcile",
            doc_md="Recompute what new records touch.",
            **_stage_arguments(pipeline),
        )
        _ending(pipeline, reconcile, [])
    return dag


def asset_of(pipeline: Pipeline) -> Asset:
    """The published table, for DAGs that follow it."""
    name = f"{CATALOG}.{pipeline.output.namespace}.{pipeline.output.table}"
    return Asset(name=name, uri=f"rewindow://{pipeline.output.namespace}/{pipeline.output.table}")


def _ending(pipeline: Pipeline, checked: Any, before: list[Any]) -> None:
    """approve, publish, report, after the task that checks."""
    approve = Approve(
        task_id="approve",
        pipeline=pipeline.name,
        notifiers=notified_approval(),
        doc_md="A person decides, where the policy asks for one.",
    )
    publish = Publish(
        task_id="publish",
        stage="publish",
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        outlets=[asset_of(pipeline)],
        doc_md="One atomic commit.",
        **_stage_arguments(pipeline),
    )
    report = Report(
        task_id="report",
        pipeline=pipeline.name,
        trigger_rule=TriggerRule.ALL_DONE,
        doc_md="The report of the run, whatever became of it.",
    ).as_teardown()
    checked >> approve >> publish >> report
    checked >> publish
    for task in (*before, checked, approve):
        task >> report


def _stage_arguments(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "pipeline_file": pipeline.file,
        "pool": settings.pool(),
        "retries": 1,
        "retry_delay": timedelta(seconds=30),
    }


def _common(pipeline: Pipeline, max_active_runs: int) -> dict[str, Any]:
    return {
        "max_active_runs": max_active_runs,
        "tags": ["rewindow", pipeline.name],
        "default_args": {"owner": "rewindow", "on_failure_callback": on_failure},
    }


def _nightly_params() -> dict[str, Param]:
    return {
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            title="Until",
            description_md="Take what arrived before this instant, with its zone. Empty: the end of the run's "
            "interval; of a run started by hand, all that is there.",
        ),
        "publish": Param(
            BY_DEFINITION,
            type="string",
            enum=[BY_DEFINITION, *Policy],
            title="Publish",
            description_md="Who says that the result is published.",
        ),
        "dry_run": Param(
            "none",
            type="string",
            enum=[d for d in DRY_RUNS if d != "plan"],
            title="Dry run",
            description_md="**diff**: say what would change, and publish nothing.",
        ),
        "reason": Param(
            "",
            type="string",
            maxLength=MAX_REASON,
            title="Reason",
            description_md="Kept with the run.",
        ),
    }


def _doc(pipeline: Pipeline, what: str) -> str:
    table = asset_of(pipeline).name
    return f"{what}\n\nTable `{table}`, definition `{pipeline.file}` (`{pipeline.definition_hash[:12]}`)."
