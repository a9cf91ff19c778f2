"""`rewindow forget`: what a person's deletion request needs."""

from __future__ import annotations

import getpass
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, PipelineArgument, console, errors, load, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.definition import Pipeline
    from spark_jobs.erasure.forget import Forgetting, Forgotten, Found


@app.command()
def forget(
    pipeline: PipelineArgument,
    where: Annotated[
        str, typer.Option(help="Whose records: equalities of columns, such as \"user_id = 'u-17'\"; IN, AND, OR.")
    ],
    delete: Annotated[bool, typer.Option("--delete", help="Delete. Without it, say what there is.")] = False,
    reason: Annotated[str, typer.Option(help="Why, such as a ticket's number; kept. Needed with --delete.")] = "",
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Then compute all windows without the person, with cause `erasure`.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a person's records from tables, runs and reports; later runs leave them out.

    It says first what there is; nothing changes without --delete. Who asked, when and why is kept, the value is not.
    """
    from datetime import UTC, datetime

    from spark_jobs.erasure.forget import Forgetting, Request
    from spark_jobs.runs.work.job import chosen_run_id
    from spark_jobs.runs.work.progress import progress_for

    loaded = load(pipeline)
    spark = session(loaded, "forget")
    forgetting = Forgetting(spark, loaded, where)
    if not delete:
        _say_found(forgetting, as_json)
        return
    run_id = chosen_run_id(loaded, None, datetime.now(UTC)) if recompute else None
    done = forgetting.carry_out(
        Request(where, getpass.getuser(), reason, run_id), progress_for(errors), lambda: datetime.now(UTC)
    )
    if run_id is not None:
        _recompute(spark, loaded, run_id, done.erasure)
    _say_done(done, run_id, as_json)


def _recompute(spark: SparkSession, pipeline: Pipeline, run_id: str, erasure: str) -> None:
    """A run over the whole history, to its report; it ends as the definition's policy says."""
    from spark_jobs.cli.options import asked_for, end_policy_of
    from spark_jobs.report.build import build_report
    from spark_jobs.runs.life.documents import Requested
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.planning.plan import planned_records
    from spark_jobs.runs.work.backfill import execute
    from spark_jobs.runs.work.progress import progress_for

    requested = Requested()
    ends, asked = end_policy_of(pipeline, requested, gate=True), asked_for(f"erasure {erasure}", requested)
    with planned_records(spark, pipeline) as (plan, records):
        progress = progress_for(errors)
        execute(spark, pipeline, plan, progress, records=records, run_id=run_id, asked=asked, end_policy=ends)
    build_report(RunStore.configured().folder(run_id))


def _say_found(forgetting: Forgetting, as_json: bool) -> None:
    found = forgetting.find()
    remains = forgetting.remains(found)
    if as_json:
        print(json.dumps({"found": asdict(found), "remains": remains}))
        return
    _print_found(found)
    _print_lines(remains)
    console.print("Nothing was deleted. Add --delete and --reason to delete it.")


def _say_done(done: Forgotten, run_id: str | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps({**asdict(done), "recomputed_by": run_id}))
        return
    _print_found(done.found)
    console.print(f"All of it is deleted; the request is kept as {escape(done.erasure)}.")
    if run_id is not None:
        console.print(f"The windows were computed again by run {escape(run_id)}.")
    _print_lines(done.remains)


def _print_found(found: Found) -> None:
    for name, rows in found.tables.items():
        if rows:
            console.print(f"{escape(name)}: {rows} rows")
    for name, rows in found.files.items():
        if rows:
            console.print(f"{escape(name)}: {rows} rows in its files, earlier states too")
    documents = sum(found.documents.values())
    console.print(f"runs: {documents} documents of {len(found.documents)} runs")


def _print_lines(lines: tuple[str, ...]) -> None:
    for line in lines:
        console.print(escape(line))
