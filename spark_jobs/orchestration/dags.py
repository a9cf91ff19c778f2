"""Five DAGs for each pipeline.

`backfill__<pipeline>` is started by its form, `reconcile__<pipeline>` runs each night, `decide__<pipeline>` publishes
or discards a run that waits, `look__<pipeline>` answers questions, and `maintain__<pipeline>` cleans up each week.

plan -> timeline -> replay (one task a chunk) -> compare -> verify -> approve -> publish -> report
reconcile -> approve -> publish -> report, and reconcile -> compare

The task `compare` is there where the definition has a section `live:`, and `correct`, behind `publish`, where it has a
section `corrections:`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, Param, TriggerRule, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict
from croniter import croniter

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.loading import table_of
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.orchestration.airflow_names import CronDataIntervalTimetable
from spark_jobs.orchestration.describe import described, known_last_run
from spark_jobs.orchestration.ending import Approve, Report, comment_params
from spark_jobs.orchestration.form import backfill_params, decide_params, look_params, maintain_params, nightly_params
from spark_jobs.orchestration.look import LookAt
from spark_jobs.orchestration.notify import notified_approval, on_failure, say_why
from spark_jobs.orchestration.operators import (
    PERIODS,
    Compare,
    Correct,
    Decide,
    Maintain,
    Plan,
    Publish,
    Reconcile,
    SparkStage,
)
from spark_jobs.orchestration.run_ids import dag_id_of
from spark_jobs.runs.life.status import Stage
from spark_jobs.runs.planning.last_run import LastRun
from spark_jobs.runs.work.stages import Begin, CompareLive, ReplayChunk, RunStage, Verify, chunk_stages, stages_of
from spark_jobs.settings import settings
from spark_jobs.spark.catalog import CATALOG

_START = datetime(2020, 1, 1, tzinfo=UTC)
"""The first possible night. Catchup is off, so no run starts because of it."""

_MAX_REASON = 300
"""Characters shown of an error that is not ours."""

_MAINTENANCE = "0 3 * * 0"
"""Sundays at 03:00 UTC."""

_PRESETS = {"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@weekly": "0 0 * * 0", "@monthly": "0 0 1 * *"}


def pipeline_files(folder: Path) -> list[Path]:
    """The YAML files of a folder, by name."""
    return sorted(file for file in folder.iterdir() if file.suffix in (".yaml", ".yml"))


def dags_of(folder: Path) -> Iterator[DAG]:
    """The DAGs of all pipelines of a folder that can be read; `refused` names the others.

    Where Airflow requests one DAG (a task is about to run), only that one is built.
    """
    for read in _files_read(folder, get_parsing_context().dag_id):
        yield from read.dags


def refused(folder: Path) -> list[str]:
    """What is wrong with the pipelines of a folder, one line for each problem: file, line, field, what to write."""
    return [problem for read in _files_read(folder, None) for problem in read.problems]


@dataclass(frozen=True, slots=True)
class _FileRead:
    """One YAML file: its DAGs, or the problems that keep it from having any."""

    dags: tuple[DAG, ...] = ()
    problems: tuple[str, ...] = ()


def _files_read(folder: Path, requested: str | None) -> Iterator[_FileRead]:
    """The files of a folder, each on its own: whatever one of them raises, the others are read."""
    names: dict[str, Path] = {}
    tables: dict[str, Path] = {}
    for file in pipeline_files(folder):
        try:
            yield _FileRead(dags=_dags_of_file(file, names, tables, requested))
        except DefinitionError as error:
            yield _FileRead(problems=tuple(str(problem) for problem in error.problems) or (str(error),))
        except (Exception, SystemExit) as error:  # a definition can name a class, and importing that can raise anything
            reason = next(iter(str(error).splitlines()), "")[:_MAX_REASON]
            yield _FileRead(problems=(f"{file}:1: no DAG can be made of it: {type(error).__name__}: {reason}",))


def _dags_of_file(
    file: Path, names: dict[str, Path], tables: dict[str, Path], requested: str | None
) -> tuple[DAG, ...]:
    """The DAGs of one file. Raises DefinitionError.

    `names` and `tables` say which file has which name and table, and get this one's.
    """
    pipeline = load_pipeline(file)
    table = table_of(pipeline)
    if other := names.get(pipeline.name):
        raise _refused(pipeline, ("name",), f"`{pipeline.name}` is taken by {other}", "choose another name")
    if other := tables.get(table):
        raise _refused(pipeline, ("output", "table"), f"`{table}` is taken by {other}", "choose another table")
    names[pipeline.name] = tables[table] = file
    _refuse_bad_cron(pipeline)
    makers = {"backfill": backfill_dag, "reconcile": nightly_dag, "decide": decide_dag, "look": look_dag}
    makers["maintain"] = maintain_dag
    made = {dag_id_of(kind, pipeline.name): make for kind, make in makers.items()}
    return tuple(make(dag_id, pipeline) for dag_id, make in made.items() if requested in (None, dag_id))


def _refused(pipeline: Pipeline, field: tuple[str, ...], what: str, hint: str) -> DefinitionError:
    return DefinitionError.listing([pipeline.problem(field, what, hint)])


def _refuse_bad_cron(pipeline: Pipeline) -> None:
    """Raise DefinitionError for a schedule that Airflow's own parser refuses, or that no date ever meets."""
    try:
        croniter(_cron_of(pipeline), _START).get_next()
    except ValueError as error:
        what = f"`{pipeline.schedule.cron}` is no schedule: {error}"
        raise _refused(pipeline, ("schedule",), what, "write five cron fields like `0 5 * * *`, or @daily") from None


def _cron_of(pipeline: Pipeline) -> str:
    return _PRESETS.get(pipeline.schedule.cron, pipeline.schedule.cron)


def backfill_dag(dag_id: str, pipeline: Pipeline) -> DAG:
    """The DAG that a person starts with a form. Its form and its description say what the last run has seen."""
    last = None if get_parsing_context().dag_id else known_last_run(pipeline)  # a task needs neither
    said = pipeline.description or f"Replay the history of {pipeline.name}."
    what = "Replays a range of the history through the live job's own event-time rules."
    with _dag(dag_id, pipeline, said, what, backfill_params(pipeline, last), runs=4, last=last) as dag:
        stages = stages_of(pipeline, chunk_stages([TimeRange(0, 1)]))  # the plan says which chunks there are
        tasks: list[Any] = []
        for stage in stages[: stages.index(Verify()) + 1]:
            tasks.append(_task(pipeline, stage, tasks))
            if len(tasks) > 1:
                tasks[-2] >> tasks[-1]
        _ending(pipeline, tasks[-1], tasks[:-1])
    return dag


def nightly_dag(dag_id: str, pipeline: Pipeline) -> DAG:
    """The scheduled DAG: it takes what arrived before the end of its interval.

    Its description links to the page that says what the last run has seen. If it said that itself, Airflow would keep
    another version of the DAG for each night.
    """
    schedule = CronDataIntervalTimetable(_cron_of(pipeline), timezone=pipeline.schedule.time_zone)
    said = f"Bring the windows of {pipeline.name} to what has arrived."
    what = "Reads what arrived since the last run, recomputes the windows that it touches."
    with _dag(dag_id, pipeline, said, what, nightly_params(pipeline), runs=1, schedule=schedule) as dag:
        reconcile = Reconcile(
            task_id="reconcile",
            stage=Stage.RECONCILE,
            doc_md="Recompute what new records touch.",
            **_stage_arguments(pipeline),
        )
        others = [_task(pipeline, CompareLive(), [])] if pipeline.live is not None else []
        for task in others:
            reconcile >> task
        _ending(pipeline, reconcile, others)
    return dag


def decide_dag(dag_id: str, pipeline: Pipeline) -> DAG:
    """The DAG by which a person publishes or discards a run that waits; its own permission says who may."""
    said = f"Publish or discard a run of {pipeline.name} that waits for an approval, or whose gate is closed."
    what = "Publishes what a run has staged, even if its gate is closed, or drops it."
    params = decide_params(pipeline.corrections is not None)
    with _dag(dag_id, pipeline, said, what, params, runs=1, is_paused_upon_creation=False) as dag:
        Decide(
            task_id="decide",
            stage=Stage.PUBLISH,
            outlets=[asset_of(pipeline)],
            doc_md="Publish or discard the run.",
            **{**_stage_arguments(pipeline), "retries": 0},
        )
    return dag


def look_dag(dag_id: str, pipeline: Pipeline) -> DAG:
    """The DAG that answers a person's question; a page of the plugin shows the answer. It changes no table."""
    said = f"Look at windows, records or corrections of {pipeline.name}, or at what its runs need."
    what = "Answers a question. The answer is in the tab *Rewindow report* of its run."
    with _dag(dag_id, pipeline, said, what, look_params(pipeline), runs=4, is_paused_upon_creation=False) as dag:
        LookAt(task_id="look", doc_md="One Spark application.", **{**_stage_arguments(pipeline), "retries": 0})
    return dag


def maintain_dag(dag_id: str, pipeline: Pipeline) -> DAG:
    """The weekly DAG that cleans up a pipeline's tables. By its form it archives, where there is something to."""
    archives = ", or archives its history" if pipeline.is_archived else ""
    schedule = CronDataIntervalTimetable(_MAINTENANCE, timezone="UTC")
    said = f"Clean up the tables of {pipeline.name}{archives}."
    what = f"Clears up killed runs, expires snapshots, compacts small files, removes orphan files{archives}."
    params = maintain_params(archives=pipeline.is_archived)
    with _dag(dag_id, pipeline, said, what, params, runs=1, schedule=schedule) as dag:
        said = "One Spark application."
        Maintain(task_id="maintain", archives=pipeline.is_archived, doc_md=said, **_stage_arguments(pipeline))
    return dag


def asset_of(pipeline: Pipeline) -> Asset:
    """The published table, for DAGs that follow it.

    Its URI is its name, as in `Asset("rewindow...")`. Of two assets with one name Airflow takes one for inactive, and
    fails the tasks that name it.
    """
    return Asset(f"{CATALOG}.{pipeline.output.namespace}.{pipeline.output.table}")


def asset_of_periods(pipeline: Pipeline) -> Asset:
    """The days or hours of the published table that changed, as partitions of an asset, for DAGs that follow those.

    It is an asset of its own: an event with a partition key starts no DAG that follows its asset without partitions.
    """
    return Asset(f"{asset_of(pipeline).name}{PERIODS}")


def asset_of_verdicts(pipeline: Pipeline) -> Asset:
    """The table of verdicts on the live job's windows, for DAGs that follow it."""
    return Asset(f"{asset_of(pipeline).name}__verdicts")


def _task(pipeline: Pipeline, stage: RunStage, before: Sequence[Any]) -> Any:
    """The task of a stage. That of the chunks is mapped over the list that the first one of the tasks before gives."""
    arguments = {"task_id": stage.name.value, "stage": stage.name, **_stage_arguments(pipeline)}
    match stage:
        case Begin():
            return Plan(
                doc_md="Check the form and decide all that the run will do. Of a small history its application also "
                "does what follows, and the tasks behind it end at once; its log says in which stage it is.",
                **arguments,
            )
        case ReplayChunk():
            mapped = SparkStage.partial(
                map_index_template="{{ chunk_label }}",
                max_active_tis_per_dagrun=settings().parallel_chunks,
                doc_md="Stage the windows of one chunk.",
                **arguments,
            )
            return mapped.expand(chunk=before[0].output)
        case CompareLive():
            said = "What the live job emitted, against what its own rules give."
            return Compare(outlets=[asset_of_verdicts(pipeline)], doc_md=said, **arguments)
        case Verify():
            return SparkStage(doc_md="What would change, and what the expectations say.", **arguments)
        case _:
            return SparkStage(doc_md="When the watermark passed which value.", **arguments)


def _ending(pipeline: Pipeline, checked: Any, before: list[Any]) -> None:
    """approve, publish, correct, report, after the task that checks."""
    approve = Approve(
        task_id="approve",
        pipeline=pipeline.name,
        corrects=pipeline.corrections is not None,
        assigned_users=[{"id": name, "name": name} for name in pipeline.publish.approvers] or None,
        params=comment_params(),
        notifiers=notified_approval(),
        doc_md="A person decides, if the policy requires an approval.",
    )
    publish = Publish(
        task_id="publish",
        stage=Stage.PUBLISH,
        trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS,
        outlets=[asset_of(pipeline), asset_of_periods(pipeline)],
        doc_md="One atomic commit.",
        **_stage_arguments(pipeline),
    )
    report = Report(
        task_id="report",
        pipeline=pipeline.name,
        trigger_rule=TriggerRule.ALL_DONE,
        on_failure_callback=say_why,
        doc_md="The report of the run, whatever became of it. Red where the run has not done its work: "
        "the DAG run's state follows this task.",
    ).as_teardown(on_failure_fail_dagrun=True)
    checked >> approve >> publish >> report
    checked >> publish
    if pipeline.corrections is not None:
        correct = Correct(
            task_id="correct",
            stage=Stage.CORRECT,
            trigger_rule=TriggerRule.NONE_FAILED,
            doc_md="The readers of the live job's output get what changed.",
            **_stage_arguments(pipeline),
        )
        publish >> correct >> report
    for task in (*before, checked, approve):
        task >> report


def _stage_arguments(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "pipeline_file": pipeline.file,
        "pool": settings().pool,
        "retries": 1,
        "retry_delay": timedelta(seconds=30),
    }


def _dag(
    dag_id: str,
    pipeline: Pipeline,
    description: str,
    what: str,
    params: dict[str, Param],
    *,
    runs: int,
    schedule: CronDataIntervalTimetable | None = None,
    last: LastRun | None = None,
    **more: Any,
) -> DAG:
    """A DAG without tasks; `runs` of it may be at work at a time. One without a schedule is started by a person alone.

    Airflow would register a DAG by itself as soon as one is begun, also a half-built one.
    """
    owner = pipeline.owner or "rewindow"
    by_schedule = {} if schedule is None else {"start_date": _START, "catchup": False}
    return DAG(
        dag_id,
        description=description,
        doc_md=described(pipeline, what, last),
        schedule=schedule,
        params=ParamsDict(params),
        auto_register=False,
        max_active_runs=runs,
        tags=sorted({"rewindow", pipeline.name, *pipeline.tags}),
        owner_links={owner: f"mailto:{owner}"} if "@" in owner else {},
        default_args={"owner": owner, "on_failure_callback": on_failure},
        **by_schedule,
        **more,
    )
