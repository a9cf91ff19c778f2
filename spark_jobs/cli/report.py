"""The command `rewindow report`."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, console
from spark_jobs.errors import DefinitionError, EnvironmentSetupError


@app.command()
def report(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as `rewindow run` prints it.")],
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
    from spark_jobs.runs.store import PAGE, REPORT, RunStore

    store = RunStore.configured()
    folder = store.folder(run)
    if not folder.documents():
        known = [run_id for _, run_id in zip(range(5), store.run_ids(), strict=False)]
        hint = f"The last runs: {', '.join(known)}." if known else "There are no runs there yet."
        raise DefinitionError(f"there is no run {run!r}", store.url, hint)
    build_report(folder)
    built = folder.read(REPORT) or {}
    if junit is not None:
        try:
            junit.write_bytes(junit_xml(built))
        except OSError as problem:
            raise EnvironmentSetupError(
                f"cannot write: {problem.strerror}", str(junit), "Name a file in an existing folder."
            ) from problem
    page = folder.address(PAGE)
    if as_json:
        print(json.dumps(built, ensure_ascii=False))
    else:
        verdict = built["verdict"]
        console.print(f"[bold]{escape(verdict['title'])}[/]: {escape(verdict['sentence'])}", soft_wrap=True)
        for step in verdict["next"]:
            line = f"{step['text']} {step['command'] or ''}".strip()
            console.print(f"  {escape(line)}", soft_wrap=True, highlight=False)
        console.print(escape(page), soft_wrap=True, highlight=False)
    if show:
        webbrowser.open(Path(page).as_uri() if Path(page).is_absolute() else page)
