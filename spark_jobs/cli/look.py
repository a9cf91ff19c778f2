"""Commands that read and change nothing: check, schema, plan, compare, report, history, sql, doctor."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import (
    AnotherLogOption,
    AsOfOption,
    BeyondLimitsOption,
    ChunksOption,
    FromOption,
    JsonOption,
    ModeOption,
    PipelineArgument,
    ToOption,
    console,
    errors,
    known_pipelines,
    known_runs,
    load,
    requested_of,
    say_home,
    session,
    starting,
)
from spark_jobs.cli.output import print_plan, program
from spark_jobs.cli.runs import all_runs
from spark_jobs.errors import DefinitionError, EnvironmentSetupError

if TYPE_CHECKING:
    from spark_jobs.definition import Pipeline
    from spark_jobs.runs.life.store import RunFolder, RunStore


@app.command()
def check(
    pipeline: PipelineArgument,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Start Spark too, and check expressions and columns against the history.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check a definition without reading data: fields, durations, expectations; with --thorough expressions, columns.

    `plan` and `run` refuse a wrong expression too, before they write anything. Only this command refuses a draft with a
    comment that still says CHECK.
    """
    from spark_jobs.cli.output import print_checked, print_refused
    from spark_jobs.definition.custom import check_class
    from spark_jobs.definition.loading import refuse_shared, refuse_unchecked

    try:
        loaded = load(pipeline)
        check_class(loaded)
        refuse_shared(loaded)
        refuse_unchecked(loaded)
        if thorough:
            _check_with_spark(loaded)
    except DefinitionError as refused:
        if not as_json:
            raise
        print_refused(refused)
        raise typer.Exit(refused.exit_code) from None
    print_checked(loaded, as_json, thorough)


def _check_with_spark(pipeline: Pipeline) -> None:
    """Raise DefinitionError for what Spark refuses: expressions, columns that history or table does not have."""
    from spark_jobs.runs.planning.published_columns import refuse_other_columns
    from spark_jobs.sources import canonical, check_expressions, empty_history

    spark = session(pipeline, "check", short=True)
    problems = check_expressions(spark, pipeline)
    if problems:
        raise DefinitionError.listing(problems)
    refuse_other_columns(spark, pipeline, canonical(empty_history(spark, pipeline), pipeline))


@app.command()
def schema() -> None:
    """Print the JSON Schema of pipeline files, for editors."""
    from spark_jobs.definition import json_schema

    print(json.dumps(json_schema(), indent=2))


@app.command()
def plan(
    pipeline: PipelineArgument,
    start: FromOption = None,
    end: ToOption = None,
    as_of: AsOfOption = None,
    mode: ModeOption = None,
    chunks: ChunksOption = None,
    as_json: JsonOption = False,
    quarantined: Annotated[
        bool, typer.Option(help="Count records that go to quarantine by reason, with examples.")
    ] = False,
    beyond_limits: BeyondLimitsOption = False,
    another_log: AnotherLogOption = False,
) -> None:
    """Show what a run would do: its source, end offsets, chunks and fidelity. Writes nothing."""
    from spark_jobs.runs.planning.definition_change import with_change
    from spark_jobs.runs.planning.plan import make_plan, read_planned
    from spark_jobs.runs.planning.requesting import check_order, check_range
    from spark_jobs.runs.work.stages import chunk_stages, stages_of
    from spark_jobs.sources import names_of

    loaded = load(pipeline)
    requested = requested_of(
        loaded, start=start, end=end, as_of=as_of, mode=mode, chunks=chunks, beyond_limits=beyond_limits,
        another_log=another_log,
    )  # fmt: skip
    options = requested.plan_options(loaded)
    check_range(loaded, options["start"], options["end"])
    check_order(loaded, options["mode"])
    spark = session(loaded, "plan")
    planned = make_plan(spark, loaded, counts_undecided=True, **options)
    planned = with_change(spark, loaded, planned)
    if as_json:
        print(planned.to_json())
        return
    print_plan(planned, stages_of(loaded, chunk_stages(planned.chunks)), names_of(loaded))
    if quarantined:
        from spark_jobs.cli.output import print_reasons
        from spark_jobs.runs.work.quarantine import reasons_of
        from spark_jobs.sources import quarantined as quarantine_of

        print_reasons(reasons_of(quarantine_of(read_planned(spark, loaded, planned))), names_of(loaded))
    elif planned.quarantined:
        name = escape(pipeline)
        console.print(f"Why: {program()} plan {name} --quarantined")


@app.command()
def compare(
    pipeline: PipelineArgument,
    start: FromOption = None,
    end: ToOption = None,
    as_of: AsOfOption = None,
    limit: Annotated[int, typer.Option(min=1, help="The most windows to list.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """Compare what the live job emitted with its replay, window by window. Writes nothing.

    Exit code 3 if some window differs and the log gives no reason: mismatch, missing or extra.
    """
    from spark_jobs.cli.comparison import as_json as comparison_json
    from spark_jobs.cli.comparison import exit_code, print_report
    from spark_jobs.comparison.compare import run_compare
    from spark_jobs.runs.planning.requesting import check_range
    from spark_jobs.runs.work.progress import progress_for

    loaded = load(pipeline)
    options = requested_of(loaded, start=start, end=end, as_of=as_of).plan_options(loaded)
    span = {name: options[name] for name in ("start", "end", "as_of")}
    check_range(loaded, span["start"], span["end"])
    spark = session(loaded, "compare")
    report = run_compare(spark, loaded, progress_for(errors), **span, limit=limit)
    if as_json:
        print(json.dumps(comparison_json(loaded.name, report)))
    else:
        print_report(loaded.name, report, console)
    raise typer.Exit(exit_code(report))


@app.command("revisions")
def revisions_of_a_window(
    pipeline: PipelineArgument,
    window: Annotated[str, typer.Option(help="The start of the window, with a time zone: 2013-02-01T10:00:00Z.")],
    key: Annotated[
        list[str] | None, typer.Option(help="name=value, once for each key column; null for a null. Default: all keys.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also what the live job emitted, what was found, and what readers then got.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the revisions of a window: what each one changed, when, why, and from which run. Times are in UTC."""
    from spark_jobs.cli.revisions import history_records, live_records, print_history, print_live_history
    from spark_jobs.operations.window_history import check_keys, window_history
    from spark_jobs.runs.planning.requesting import instant_from

    loaded = load(pipeline)
    start = instant_from(window, "--window")
    pairs = [(name, value) for name, equals, value in (text.partition("=") for text in key or []) if equals]
    if len(pairs) != len(key or []):
        raise DefinitionError("--key: write name=value", hint=f"The keys: {', '.join(loaded.keys)}.")
    check_keys(loaded, pairs)
    spark = session(loaded, "history", short=True)
    revisions = window_history(spark, loaded, pairs, start)
    panes, verdicts, corrections = [], [], []
    if live:
        from spark_jobs.operations.live_history import emitted_panes, window_corrections, window_verdicts

        panes = emitted_panes(spark, loaded, pairs, start)
        verdicts = window_verdicts(spark, loaded, pairs, start)
        corrections = window_corrections(spark, loaded, pairs, start)
    if as_json:
        for record in history_records(revisions, list(loaded.keys)):
            print(json.dumps(record, default=str))
        for record in live_records(panes, verdicts, corrections):
            print(json.dumps(record, default=str))
    else:
        print_history(revisions, list(loaded.keys), console)
        if live:
            print_live_history(panes, verdicts, corrections, console)


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the tables of the catalog `rewindow`.")],
    limit: Annotated[int, typer.Option(min=1, help="The most rows to print.")] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, with a header line.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For machines: one JSON object a line.")] = False,
) -> None:
    """Query the tables with Spark SQL. It only reads: other statements are refused. Times are in UTC.

    Rows that are too wide for the terminal are printed one below the other.
    """
    from spark_jobs.cli.rows import print_as
    from spark_jobs.operations.query import query as rows_of

    if as_csv and as_json:
        raise DefinitionError("--csv and --json: choose one of them")
    found = rows_of(session(None, "sql"), query, limit)
    print_as(found, console, as_csv=as_csv, as_json=as_json)


@app.command()
def doctor(
    pipeline: Annotated[str | None, typer.Argument(help="Check its source, too.")] = None,
) -> None:
    """Check Java, Spark, the jars, the catalog and the source of a pipeline. Prints how to fix each problem."""
    from spark_jobs.operations.doctor import Status, run_doctor

    checks = run_doctor(load(pipeline) if pipeline else None)
    marks = {Status.OK: "[green]ok[/]  ", Status.WARN: "[yellow]warn[/]", Status.FAIL: "[red]fail[/]"}
    for item in checks:
        hint = f" {item.hint}" if item.hint else ""
        console.print(f"{marks[item.status]} {item.name}: {escape(item.what)}{escape(hint)}")
    raise typer.Exit(8 if any(item.status is Status.FAIL for item in checks) else 0)


@app.command()
def report(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|PIPELINE]",
            help="A run's id as `rewindow run` prints it, or a pipeline: its last run.",
            autocompletion=starting(lambda: [*known_pipelines(), *known_runs()]),
        ),
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="The last run of all.")] = False,
    show: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    as_json: JsonOption = False,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML: a test case for each expectation.")
    ] = None,
) -> None:
    """Build the report of a run from the run's documents, and print its verdict and its path. Needs no Spark.

    The page is one HTML file without links to other files. report.json beside it has the same content as JSON.
    """
    from spark_jobs.report.build import build_report
    from spark_jobs.report.junit import junit_xml
    from spark_jobs.runs.life.store import PAGE, RunStore

    if (run is None) is not last:
        raise DefinitionError("which run?", hint="Name a run or a pipeline, or write --last. See `rewindow runs`.")
    say_home()
    store = RunStore.configured()
    folder = _folder_of(store, run)
    built = build_report(folder)
    if junit is not None:
        try:
            junit.write_bytes(junit_xml(built))
        except OSError as problem:
            raise EnvironmentSetupError(
                f"cannot write: {problem.strerror}", str(junit), "Name a file in an existing folder."
            ) from problem
    page = folder.address(PAGE)
    if as_json:
        print(json.dumps(built.to_dict(), ensure_ascii=False))
    else:
        verdict = built.verdict
        console.print(f"[bold]{escape(verdict.title)}[/]: {escape(verdict.sentence)}")
        for step in verdict.next:
            line = f"{step.text} {step.command or ''}".strip()
            console.print(f"  {escape(line)}")
        console.print(escape(page))
    if show:
        webbrowser.open(Path(page).as_uri() if Path(page).is_absolute() else page)


def _folder_of(store: RunStore, name: str | None) -> RunFolder:
    """The folder of a run by its id, of a pipeline's last run by the pipeline's name, of the last run by None."""
    if name is not None:
        folder = store.folder(name)
        if folder.documents():
            return folder
    found = all_runs()
    latest = next((run for run in found if name in (None, run.pipeline)), None)
    if latest is not None:
        return store.folder(latest.run_id)
    hint = f"The last runs: {', '.join(run.run_id for run in found[:5])}." if found else "There are no runs there yet."
    what = "there is no run yet" if name is None else f"there is no run {name!r}, and no run of a pipeline of that name"
    raise DefinitionError(what, store.url, hint)
