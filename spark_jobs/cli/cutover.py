"""`rewindow cutover`: a new live job takes over from a backfill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from spark_jobs.cli.app import app
from spark_jobs.cli.options import (
    GATE_CLOSED,
    AsOfOption,
    JsonOption,
    PipelineArgument,
    console,
    errors,
    load,
    requested_of,
    session,
)
from spark_jobs.errors import DefinitionError, EnvironmentSetupError

if TYPE_CHECKING:
    from spark_jobs.cutover.document import CutoverPlan
    from spark_jobs.cutover.meeting import Meeting
    from spark_jobs.definition import Pipeline


@app.command()
def cutover(
    pipeline: PipelineArgument,
    at: Annotated[
        str | None,
        typer.Option(help="The new job gives the windows that start then or later: 2026-12-01T00:00:00Z, with a zone."),
    ] = None,
    as_of: AsOfOption = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Afterwards: do both sides meet? Each key and window once, with the replay's values. "
            "Without --at: at the cutover that was planned last.",
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Also write the offsets and the filter as files there.")
    ] = None,
    dry_run: Annotated[
        str | None, typer.Option("--dry-run", metavar="", help="Keep no plan and write no file.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Plan how a new live job takes over: the offset of each partition that it begins at, and whether that is exact.

    A replay proves it: from these offsets, with an empty state, it gives the windows of the whole history. Where one
    differs the plan is refused (exit code 3) with the first later time from which none does. `--check` ends with 3
    where a window is missing, is there twice, or has another value.
    """
    from spark_jobs.cutover.planning import plan_cutover
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.planning.requesting import instant_from
    from spark_jobs.runs.work.progress import progress_for

    loaded = load(pipeline)
    if check:
        raise typer.Exit(_check(loaded, at, as_json))
    if at is None:
        raise DefinitionError("from which window on does the new job take over?", hint="Write --at with its start.")
    start = instant_from(at, "--at")
    ends = requested_of(loaded, as_of=as_of).plan_options(loaded)["as_of"]
    planned = plan_cutover(session(loaded, "cutover"), loaded, start, progress_for(errors), ends)
    if planned.is_exact and dry_run is None:
        planned.write(RunStore.configured().of_pipeline(loaded.name))
        if out is not None:
            _write(planned, out)
    if as_json:
        print(json.dumps(_as_json(planned), indent=2))
    else:
        _print(planned, loaded.name)
    raise typer.Exit(0 if planned.is_exact else GATE_CLOSED)


def _check(loaded: Pipeline, at: str | None, as_json: bool) -> int:
    from spark_jobs.cutover.meeting import check_meeting, planned_at
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.planning.requesting import instant_from
    from spark_jobs.runs.work.progress import progress_for

    folder = RunStore.configured().of_pipeline(loaded.name)
    start = planned_at(folder, loaded) if at is None else instant_from(at, "--at")
    found = check_meeting(session(loaded, "cutover"), loaded, start, progress_for(errors))
    if as_json:
        print(json.dumps(found.to_dict() | {"is_clean": found.is_clean}, indent=2))
    else:
        _print_meeting(found)
    return 0 if found.is_clean else GATE_CLOSED


def _print_meeting(found: Meeting) -> None:
    from spark_jobs.cutover.meeting import Side

    table = Table("label", "windows", "meaning", title=f"Both sides of the cutover of {found.pipeline} at {found.at}")
    table.title_justify = "left"
    for side in Side:
        table.add_row(side.value, f"{found.counts[side]:,}", side.meaning)
    console.print(table, soft_wrap=False)
    if found.by_timing:
        console.print(f"{found.by_timing:,} windows differ by the new job's own timing: the log does not decide them.")
    if found.is_clean:
        console.print("Both sides meet.")
        return
    console.print(f"[red]Both sides do not meet[/]; {found.differing:,} windows have other values than the replay.")
    for one in found.samples:
        keys = ", ".join(f"{key}={value}" for key, value in one.key.items())
        console.print(escape(f"  {one.label}: {one.start} to {one.end} ({keys})"))


def _as_json(planned: CutoverPlan) -> dict[str, Any]:
    from spark_jobs.cutover.formats import as_files

    texts = as_files(planned.topics, planned.at) if planned.is_exact else {}
    totals = {"read_again": planned.read_again, "earlier": planned.earlier, "is_exact": planned.is_exact}
    return planned.to_dict() | totals | {"texts": texts}


def _write(planned: CutoverPlan, folder: Path) -> None:
    from spark_jobs.cutover.formats import as_files

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in as_files(planned.topics, planned.at).items():
            (folder / name).write_text(text)
    except OSError as problem:
        raise EnvironmentSetupError(
            f"cannot write: {problem.strerror}", str(folder), "Name a folder that can be written."
        ) from problem


def _print(planned: CutoverPlan, name: str) -> None:
    from spark_jobs.cutover.formats import as_files
    from spark_jobs.cutover.words import said

    if not planned.is_exact:
        _print_refused(planned, name)
        return
    table = Table("topic", "partition", "offset", "appended", "kept until", "read again", "before the cutover")
    table.title, table.title_justify = f"Where the new job of {name} begins", "left"
    for one in planned.offsets:
        numbers = (f"{one.read_again:,}", f"{one.earlier:,}")
        when = (one.arrival or "to come", one.kept_until or "")
        table.add_row(escape(one.topic), str(one.partition), str(one.offset), *when, *numbers)
    console.print(table, soft_wrap=False)
    for line in said(planned, name):
        console.print(escape(line))
    for file, text in as_files(planned.topics, planned.at).items():
        console.print(f"\n[bold]{file}[/]")
        console.print(escape(text.rstrip()))


def _print_refused(planned: CutoverPlan, name: str) -> None:
    from spark_jobs.cutover.words import refused

    first, *others = refused(planned, name)
    console.print(f"[red]not exact[/]: {escape(first)}")
    for line in others:
        console.print(escape(line))
