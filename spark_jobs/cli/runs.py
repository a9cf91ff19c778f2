"""Commands about runs that need no Spark: the list of runs, and where each pipeline stands."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from spark_jobs.cli.app import app
from spark_jobs.cli.options import JsonOption, console, known_pipelines, say_home, starting
from spark_jobs.errors import DefinitionError
from spark_jobs.formatting import told

if TYPE_CHECKING:
    from spark_jobs.web.summary import Run

NamedPipeline = Annotated[
    str | None,
    typer.Argument(metavar="[PIPELINE]", help="Only this pipeline's.", autocompletion=starting(known_pipelines)),
]
_STYLES = {"good": "green", "note": "cyan", "waiting": "yellow", "bad": "red"}


@app.command()
def runs(
    pipeline: NamedPipeline = None,
    status: Annotated[str | None, typer.Option(help="Only with this status, such as failed or published.")] = None,
    since: Annotated[str | None, typer.Option(metavar="DAY", help="Requested on this day (UTC) or later.")] = None,
    until: Annotated[str | None, typer.Option(metavar="DAY", help="Requested on this day (UTC) or earlier.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The most runs to list.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the runs, the last one first: when, what became of it, what it changed, its id. Needs no Spark."""
    from spark_jobs.runs.life.status import RunStatus
    from spark_jobs.web.runs import Wanted

    if status is not None and status not in list(RunStatus):
        raise DefinitionError(f"--status: {status!r}", hint=f"Use {', '.join(RunStatus)}.")
    wanted = Wanted(pipeline or "", status or "", _day(since, "--since"), _day(until, "--until"))
    say_home()
    every = all_runs()
    names = {*known_pipelines(), *(run.pipeline for run in every)}
    if pipeline is not None and pipeline not in names:
        known = f"Known: {', '.join(sorted(names)) or 'none'}."
        raise DefinitionError(f"there is no pipeline {pipeline!r}, and no run of one", hint=known)
    found = [run for run in every if wanted.takes(run)]
    if as_json:
        for run in found[:limit]:
            print(json.dumps(asdict(run), default=str))
        return
    for run in found[:limit]:
        _print_run(run)
    more = f", {len(found) - limit:,} more: see --limit" if len(found) > limit else ""
    console.print(f"{min(len(found), limit):,} of {len(found):,} runs{more}" if found else "there are no such runs")


@app.command("status")
def show_status(pipeline: NamedPipeline = None, as_json: JsonOption = False) -> None:
    """Show where each pipeline stands: its last run, what is published, which runs wait and why. Needs no Spark."""
    say_home()
    found = all_runs()
    names = {*known_pipelines(), *(run.pipeline for run in found)}
    if pipeline is not None and pipeline not in names:
        raise DefinitionError(
            f"there is no pipeline {pipeline!r}", hint=f"Known: {', '.join(sorted(names)) or 'none'}."
        )
    records = []
    for name in sorted(names if pipeline is None else [pipeline]):
        own = [run for run in found if run.pipeline == name]
        published = next((run for run in own if run.is_published), None)
        waiting = [run for run in own if run.known_status and run.known_status.waits]
        working = [run for run in own if run.known_status and run.known_status.has_work]
        records.append((name, own[0] if own else None, published, waiting, working))
    if as_json:
        for name, last, published, waiting, working in records:
            record: dict[str, Any] = {"pipeline": name, "last": last and asdict(last)}
            record |= {"published": published and asdict(published)}
            record |= {"waiting": [asdict(run) for run in waiting], "working": [asdict(run) for run in working]}
            print(json.dumps(record, default=str))
        return
    for name, last, published, waiting, working in records:
        console.print(Text(name, style="bold"))
        if last is None:
            console.print("  no run yet")
            continue
        _print_run(last, indent="  last       ")
        if published is not None and published is not last:
            _print_run(published, indent="  published  ")
        for run in waiting:
            if run is not last:
                _print_run(run, indent="  waits      ")
            line = f"  rewindow publish {run.run_id} --reason ..., or rewindow discard {run.run_id}"
            console.print(Text(line, style="yellow"))
        for run in working:
            if run is not last:
                _print_run(run, indent="  works      ")
    if not records:
        console.print("there are no pipelines here, and no runs")


def all_runs() -> list[Run]:
    """All runs of the store, the last requested first."""
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.web.runs import Runs
    from spark_jobs.web.summary import kept_summaries

    store = RunStore.configured()
    return Runs(store, kept=kept_summaries(store.url)).all()


def _print_run(run: Run, indent: str = "") -> None:
    """Two or three lines: when and what became of it, its id, and what it changed or why it ended so."""
    from spark_jobs.runs.work.figures import changes_in_words

    line = Text(indent)
    line.append(_minute(run.requested_at)).append("  ")
    line.append(run.title, style=_STYLES.get(run.level, ""))
    by = told(run.requested_by) or "the command line"
    line.append(f"  {run.kind}  {told(run.pipeline)}  by {by}", style="dim")
    console.print(line)
    below = " " * (len(indent) + 2)
    console.print(Text(f"{below}{run.run_id}"))
    would = "" if run.is_published else "would change: "
    remarks = [f"{would}{changes_in_words(run.changed)}"] if run.changed and any(run.changed.values()) else []
    remarks += [told(text) for text in (run.message, run.reason and f"reason: {run.reason}") if text]
    if remarks:
        console.print(Text(below + "; ".join(remarks), style="dim"))


def _minute(at: datetime | None) -> str:
    return "unknown time    " if at is None else f"{at:%Y-%m-%d %H:%M}"


def _day(text: str | None, option: str) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise DefinitionError(f"{option}: {text!r} is not a day", hint="Write it like 2013-02-01.") from None
