"""Prints what `rewindow check` has found."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.markup import escape

from spark_jobs.cli.options import console
from spark_jobs.errors import DefinitionError, Problem

if TYPE_CHECKING:
    from spark_jobs.definition import Pipeline


def print_checked(pipeline: Pipeline, as_json: bool, thorough: bool) -> None:
    """A definition without problems, with what its users should know. `thorough`: Spark has checked it too."""
    notes = notes_of(pipeline)
    if as_json:
        record = {"pipeline": pipeline.name, "file": pipeline.file, "definition_hash": pipeline.definition_hash}
        print(
            json.dumps(
                {"ok": True, **record, "thorough": thorough, "problems": [], "notes": [asdict(note) for note in notes]}
            )
        )
        return
    console.print(
        f"[green]ok[/] {pipeline.name} ({escape(pipeline.file)}), definition {pipeline.definition_hash[:12]}",
        soft_wrap=True,
        highlight=False,
    )
    if not thorough:
        console.print("[dim]Expressions and columns are checked by `plan`, or here with --thorough.[/]", soft_wrap=True)
    for note in notes:
        console.print(f"[yellow]note[/] {escape(str(note))}", soft_wrap=True, highlight=False)


def print_refused(error: DefinitionError) -> None:
    """The problems of a definition for machines; one that concerns the whole file has line 1 and no field."""
    problems = error.problems or (Problem(error.where, 1, "", error.what, error.hint),)
    print(json.dumps({"ok": False, "problems": [asdict(problem) for problem in problems], "notes": []}))


def notes_of(pipeline: Pipeline) -> list[Problem]:
    """What is allowed, and refused later for some uses; what the definition does to what an earlier one published."""
    from spark_jobs.definition.mode import Mode
    from spark_jobs.runs.definition_change import since_last_run
    from spark_jobs.runs.requirements import WITHOUT_ORDER

    notes = [Problem(pipeline.file, 1, "", said, "see `rewindow plan`") for said in since_last_run(pipeline)]
    missing = pipeline.missing_positions
    if not missing or pipeline.mode is Mode.COMPLETE:
        return notes
    file, _, line = pipeline.source_of(("history",)).rpartition(":")
    what = f"there is no {', no '.join(missing)}: which records were late cannot be known, so that runs refuse"
    return [Problem(file, int(line or 1), "history.position", f"{what} faithful values", WITHOUT_ORDER), *notes]
