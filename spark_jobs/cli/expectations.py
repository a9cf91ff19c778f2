"""Commands about expectations: draft a suite, check the files, list what a run is checked against."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, PipelineArgument, console, load, session

expectations_app = typer.Typer(help="What a run is checked against before it is published.", no_args_is_help=True)
app.add_typer(expectations_app, name="expectations")


@expectations_app.command("check")
def check_files(pipeline: PipelineArgument) -> None:
    """Check the suites of a pipeline without reading data: JSON, types, arguments, columns, placeholders."""
    from spark_jobs.quality.gate import check_suites
    from spark_jobs.quality.suites import load_suites

    loaded = load(pipeline)
    suites = load_suites(loaded)
    check_suites(suites, loaded)
    count = sum(len(suite.expectations) for suite in suites.suites)
    files = ", ".join(suite.file for suite in suites.suites)
    console.print(f"[green]ok[/] {count} expectations for {loaded.name} ({escape(files)})")


@expectations_app.command("list")
def list_expectations(pipeline: PipelineArgument, as_json: JsonOption = False) -> None:
    """List what a run of a pipeline is checked against: on which data, at which severity, from which file."""
    from spark_jobs.quality.resolve import SuiteScope, fit
    from spark_jobs.quality.suites import Data, load_suites

    loaded = load(pipeline)
    fitted, left_out = fit(load_suites(loaded), SuiteScope(loaded))
    if as_json:
        rows = [
            {
                "suite": one.suite.name,
                "file": one.suite.file,
                "data": one.written.data,
                "name": one.written.name,
                "severity": one.written.severity,
                "type": one.written.type,
                "kwargs": dict(one.kwargs),
                "when": list(one.written.when),
                "description": one.written.description,
            }
            for one in fitted
        ]
        unchecked = [
            {"suite": one.suite.name, "data": one.written.data, "name": one.written.name, "reason": one.reason}
            for one in left_out
        ]
        print(json.dumps({"expectations": rows, "left_out": unchecked}, indent=2))
        return
    colours = {"critical": "red", "warning": "yellow", "info": "cyan"}
    for data in Data:
        console.print(f"[bold]{data}[/]")
        for one in fitted:
            written = one.written
            if written.data is not data:
                continue
            called = written.name or written.type
            when = f" (only when: {', '.join(written.when)})" if written.when else ""
            own = "" if one.suite.name == data else f" [dim]{escape(one.suite.name)}[/]"
            about = f" {escape(one.column)}:" if one.column else ""
            text = escape((written.description or json.dumps(dict(one.kwargs))) + when)
            colour = colours[written.severity]
            console.print(f"  [{colour}]{written.severity:8}[/] {escape(called)}:{about} {text}{own}")
    for one in left_out:
        name = one.written.name or one.written.type
        console.print(escape(f"left out: {one.written.data}/{name}: {one.reason}"))
    console.print("A critical expectation that fails keeps the run from being published; see docs/gate.md.")


@expectations_app.command("new")
def new_suite(
    pipeline: PipelineArgument,
    run: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Profile what this run has staged. Default: published.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a suite that is there.")] = False,
) -> None:
    """Draft a pipeline's own suite from its windows: ranges with some slack, shares of nulls, values of small keys."""
    from spark_jobs.errors import DefinitionError
    from spark_jobs.lakehouse.tables import Tables
    from spark_jobs.quality import draft
    from spark_jobs.quality.suites import expectations_folder
    from spark_jobs.runs.life.documents import StagedRange
    from spark_jobs.runs.life.store import RunStore, checked_run_id

    loaded = load(pipeline)
    path = expectations_folder(loaded) / f"{loaded.name}.json"
    tables = Tables.of(loaded)
    name = tables.windows
    if run is not None:
        staged = StagedRange.read(RunStore.configured().folder(run))
        name = tables.staging(checked_run_id(run), staged and staged.attempt)
    if path.exists() and not force:  # before Spark starts
        raise DefinitionError(
            "there is a suite already", str(path), "It may hold what somebody has reviewed: --force overwrites it."
        )
    spark = session(loaded, "expectations")
    if not spark.catalog.tableExists(name):
        hint = "Run the pipeline first, or write the suite by hand: docs/gate.md."
        raise DefinitionError("there are no windows to draft expectations from", name, hint)
    profile = draft.profile(spark.table(name), loaded)
    suite = draft.drafted(loaded, profile, name)
    draft.write(suite, path, force=force)
    console.print(
        f"drafted {len(suite['expectations'])} expectations from {profile.rows:,} windows into {escape(str(path))}"
    )
    console.print(
        "[yellow]A person has to edit it[/]: the ranges are what was there, not what is right. Then: "
        f"rewindow expectations check {escape(pipeline)}"
    )


@expectations_app.command("docs")
def data_docs(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, as `run` and `reconcile` print it.")],
    project: Annotated[
        Path | None,
        typer.Option(help="The folder of your Great Expectations project. Default: one of Rewindow's own in its home."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="A checkpoint of that project: its actions (Slack, mail, ...) are carried out for this run."),
    ] = None,
) -> None:
    """Put what the gate found into a GX project as its own validation results, and build its Data Docs."""
    from datetime import UTC, datetime

    from spark_jobs.errors import DefinitionError
    from spark_jobs.quality.data_docs import build_data_docs
    from spark_jobs.runs.life.documents import Gate, Request
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.settings import settings

    if checkpoint is not None and project is None:
        raise DefinitionError("--checkpoint: no project has it", hint="Name the project too: --project FOLDER.")
    folder = RunStore.configured().folder(run)
    request, gate = Request.required(folder), folder.read(Gate.FILE)
    if not gate or not gate.get("results"):
        raise DefinitionError("the run has no results of expectations", run, "It was not checked, or it ended before.")
    at = datetime.fromisoformat(request.requested_at) if request.requested_at else datetime.now(UTC)
    sites = build_data_docs(gate, run, at, project or Path(settings().home) / "data_docs", checkpoint)
    for name, address in sites.items():
        console.print(f"Data Docs ({escape(name)}): {escape(address)}")
    if not sites:
        console.print("The results are stored; the project has no site of Data Docs.")
