"""The command `rewindow report`."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, console, known_pipelines, known_runs, say_home, starting
from spark_jobs.cli.runs import all_runs
from spark_jobs.errors import DefinitionError, EnvironmentSetupError

if TYPE_CHECKING:
    from spark_jobs.runs.store import RunFolder, RunStore


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
    from spark_jobs.runs.store import PAGE, RunStore

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
        console.print(f"[bold]{escape(verdict.title)}[/]: {escape(verdict.sentence)}", soft_wrap=True)
        for step in verdict.next:
            line = f"{step.text} {step.command or ''}".strip()
            console.print(f"  {escape(line)}", soft_wrap=True, highlight=False)
        console.print(escape(page), soft_wrap=True, highlight=False)
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
