"""The command `corrections`: what the readers of the live job's output got, and what they would get."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, PipelineArgument, console, errors, load, session
from spark_jobs.errors import DefinitionError

if TYPE_CHECKING:
    from spark_jobs.corrections.delivery import Delivered
    from spark_jobs.runs.work.corrected import DeliveredCorrections


class Verb(StrEnum):
    """What the command does."""

    LIST = "list"
    DELIVER = "deliver"
    REPEAT = "repeat"
    REVERT = "revert"


@app.command("corrections")
def show_corrections(
    pipeline: PipelineArgument,
    verb: Annotated[
        Verb,
        typer.Argument(
            help="list: what was delivered. deliver: what is due. repeat: all of it again, to a sink that has lost it. "
            "revert: bring back what readers had before."
        ),
    ] = Verb.LIST,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what `deliver` would deliver; write nothing.")
    ] = False,
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Only corrections of this run (not deliver).")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most corrections to list.")] = 50,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, with a header line.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List what was delivered to the readers of the live job's output; deliver, repeat or revert it.

    A run delivers by itself once it is published. A delivery that was killed goes on with the next one: each revision
    of a window arrives exactly once.
    """
    from spark_jobs.cli.rows import print_as
    from spark_jobs.corrections.due import sections_of
    from spark_jobs.operations.looking import delivered_rows, due_rows

    if as_csv and as_json:
        raise DefinitionError("--csv and --json: choose one of them")
    if dry_run and verb not in (Verb.LIST, Verb.DELIVER):
        raise DefinitionError(f"--dry-run: there is none of {verb.value}", hint="It says what `deliver` would deliver.")
    if run is not None and (dry_run or verb is Verb.DELIVER):
        raise DefinitionError("--run: `deliver` delivers all that is due", hint="Leave it out.")
    loaded = load(pipeline)
    sections_of(loaded)
    spark = session(loaded, "corrections", short=True)
    if verb is not Verb.LIST and not dry_run:
        from spark_jobs.corrections.delivery import deliver, repeat, revert

        if verb is Verb.DELIVER:
            done = deliver(spark, loaded)
        else:
            done = (repeat if verb is Verb.REPEAT else revert)(spark, loaded, run_id=run)
        _print_delivered(done, as_json)
        return
    found = due_rows(spark, loaded, limit) if dry_run else delivered_rows(spark, loaded, limit, run)
    print_as(found, console, as_csv=as_csv, as_json=as_json)


def _print_delivered(done: Delivered, as_json: bool) -> None:
    if as_json:
        print(json.dumps(asdict(done)))
        return
    for note in done.notes:
        console.print(f"[yellow]note[/]: {escape(note)}")
    if done.resumed:
        console.print(f"went on with what was prepared before: delivery {', '.join(done.resumed)}")
    counts = ", ".join(f"{count:,} {action}" for action, count in done.rows.items())
    said = f"{counts} delivered to {done.destination}" if counts else f"nothing is due at {done.destination}"
    console.print(said)


def end_of_corrections(corrections: DeliveredCorrections | None) -> None:
    """End with the error's exit code where corrections could not be delivered."""
    if corrections is not None and corrections.exit_code:
        errors.print(f"[bold red]error[/]: {escape(corrections.sentence())}")
        raise typer.Exit(corrections.exit_code)


def print_corrections(corrections: DeliveredCorrections | None) -> None:
    """What the run brings to the readers of the live job's output, in a line."""
    if corrections is not None and not corrections.problem:
        for note in corrections.notes:
            console.print(f"[yellow]note[/]: {escape(note)}")
        console.print(f"Corrections: {escape(corrections.sentence())}")
