"""The command `rewindow upgrade`: tables of an earlier layout become tables of this version."""

from __future__ import annotations

from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import PipelineArgument, console, load, session


@app.command()
def upgrade(pipeline: PipelineArgument) -> None:
    """Bring a pipeline's tables to this version's layout: missing columns and revisions.

    Runs add the columns that they need by themselves; this does it for all tables at once, while no run is at work. A
    table of windows without revisions gets them: each window becomes revision 1. End offsets that are maps become
    text, verdicts get their names of today. It can be repeated.
    """
    from spark_jobs.operations.upgrade import upgrade as upgrade_tables

    loaded = load(pipeline)
    done = upgrade_tables(session(loaded, "upgrade", short=True), loaded)
    for one in done:
        got = [f"columns {', '.join(one.columns)}"] if one.columns else []
        got += [f"{one.windows:,} windows are revision 1"] if one.windows else []
        got += [f"{one.verdicts:,} rows have the verdicts' names of today"] if one.verdicts else []
        console.print(f"[green]upgraded[/] {escape(one.table)}: {'; '.join(got)}", soft_wrap=True, highlight=False)
    if not done:
        console.print(f"The tables of {escape(loaded.name)} have this version's layout already.", soft_wrap=True)
