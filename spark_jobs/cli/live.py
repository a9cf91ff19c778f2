"""Commands about the live job: `rewindow live check`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, PipelineArgument, console, errors, load, session

if TYPE_CHECKING:
    from spark_jobs.comparison.live_check import LiveCheck

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
    from spark_jobs.comparison.emitted import refuse_without_live
    from spark_jobs.comparison.live_check import check_live
    from spark_jobs.definition.deployments import deployments_of
    from spark_jobs.runs.work.progress import progress_for

    loaded = load(pipeline)
    refuse_without_live(loaded)
    spark, progress = session(loaded, "live check"), progress_for(errors)
    checks = {one.name: check_live(spark, one, progress, rows=rows) for one in deployments_of(loaded)}
    fit = all(found.fits for found in checks.values())
    if as_json and None in checks:
        print(json.dumps(checks[None].to_dict(), indent=2))
    elif as_json:
        each = [{"deployment": name, **found.to_dict()} for name, found in checks.items()]
        print(json.dumps({"pipeline": loaded.name, "fits": fit, "deployments": each}, indent=2))
    else:
        for name, found in checks.items():
            _print(name, found)
        words = f"`live:` fits. Next: rewindow compare {loaded.name}" if fit else "Correct `live:`, and check again."
        console.print(Text(words))
    raise typer.Exit(0 if fit else 3)


def _print(deployment: str | None, found: LiveCheck) -> None:
    of = "" if deployment is None else f"{deployment}: "
    console.print(Text(f"{of}{found.rows:,} rows of {found.emitted}"))
    for finding in found.findings:
        mark = Text("fix  ", style="red") if finding.is_problem else Text("ok   ", style="green")
        console.print(mark + Text(f"{finding.subject}: {finding.what}"))
        if finding.hint:
            console.print(Text(f"     {finding.hint}", style="dim"))
