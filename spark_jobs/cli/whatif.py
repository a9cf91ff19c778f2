"""`rewindow what-if`: several definitions side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, PipelineArgument, console, errors, load, session

if TYPE_CHECKING:
    from spark_jobs.whatif.found import WhatIf


@app.command("what-if")
def what_if(
    pipeline: PipelineArgument,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", help="Another definition: `watermark.bound=15min`; more fields of it behind a comma."),
    ] = None,
    against: Annotated[list[Path] | None, typer.Option(help="Another definition: a YAML file.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare definitions over one reading of the history: what each drops, how late its values come, what differs.

    The first is the pipeline's own; each --set and each --against is one more, five at most. Nothing is published.
    """
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.work.progress import progress_for
    from spark_jobs.whatif.definitions import variants_of
    from spark_jobs.whatif.measure import measure
    from spark_jobs.whatif.page import render

    loaded = load(pipeline)
    variants = variants_of(loaded, sets or [], against or [])
    found = measure(session(loaded, "what-if"), variants, progress_for(errors))
    folder = RunStore.configured().of_pipeline(loaded.name)
    folder.write_text("what-if.html", render(found))
    folder.write("what-if.json", found.model_dump(mode="json"))
    if as_json:
        print(found.model_dump_json())
        return
    _print(found)
    console.print(f"Page: {folder.address('what-if.html')}")


def _print(found: WhatIf) -> None:
    from spark_jobs.whatif.words import COLUMNS, in_words

    table = Table(*COLUMNS)
    for one in found.definitions:
        table.add_row(*map(escape, in_words(one)))
    console.print(table)
