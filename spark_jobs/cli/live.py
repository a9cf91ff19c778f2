"""Commands about the live job: `rewindow live check`."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.text import Text

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, PipelineArgument, console, errors, load, session

live_app = typer.Typer(help="What the live job emitted: whether the section `live:` fits it.", no_args_is_help=True)
app.add_typer(live_app, name="live")


@live_app.command("check")
def check(
    pipeline: PipelineArgument,
    rows: Annotated[int, typer.Option(min=10, max=100_000, help="How many emitted rows to look at.")] = 1000,
    as_json: JsonOption = False,
) -> None:
    """Look at a sample of the live job's rows: do keys, windows, units, time zones and values of `live:` fit them?

    Where they do not, says what is likely meant and what to write. Reads the history once, and writes nothing.
    Exit code 3 if something does not fit.
    """
    from spark_jobs.comparison.emitted import live_of
    from spark_jobs.comparison.live_check import check_live
    from spark_jobs.runs.progress import progress_for

    loaded = load(pipeline)
    live_of(loaded)
    found = check_live(session(loaded, "live check"), loaded, progress_for(errors), rows=rows)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        console.print(Text(f"{found.rows:,} rows of {found.emitted}"), soft_wrap=True)
        for finding in found.findings:
            mark = Text("fix  ", style="red") if finding.is_problem else Text("ok   ", style="green")
            console.print(mark + Text(f"{finding.subject}: {finding.what}"), soft_wrap=True)
            if finding.hint:
                console.print(Text(f"     {finding.hint}", style="dim"), soft_wrap=True)
        fits = "`live:` fits. Next: rewindow compare " if found.fits else "Correct `live:`, and check again. "
        console.print(Text(fits + (loaded.name if found.fits else "")), soft_wrap=True)
    raise typer.Exit(0 if found.fits else 3)
