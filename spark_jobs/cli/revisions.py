"""Prints the life of a window: its revisions, and what the live job emitted, what was found, what readers then got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from spark_jobs.definition.instants import format_instant
from spark_jobs.formatting import difference, shown

if TYPE_CHECKING:
    from spark_jobs.operations.live_history import EmittedPane, WindowCorrection, WindowVerdict
    from spark_jobs.operations.window_history import Revision


def print_history(revisions: Sequence[Revision], keys: Sequence[str], console: Console) -> None:
    """Each revision in a block of lines; times are in UTC and never cut."""
    from spark_jobs.operations.window_history import with_previous

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style))

    window = None
    for revision, before in with_previous(revisions, keys):
        named = [f"{name} {shown(revision.values.get(name))}" for name in keys]
        now = ", ".join([f"{shown(revision.window_start)} to {shown(revision.window_end)} UTC", *named])
        if now != window:
            line(f"Window {now}", "bold")
            window = now
        until = f"until {shown(revision.valid_to)}" if revision.valid_to else "valid now"
        line(f"  revision {revision.revision}, {revision.cause}, from {shown(revision.valid_from)}, {until}", "cyan")
        line(f"    run         {revision.run_id}")
        line(f"    definition  {(revision.definition_hash or 'unknown')[:12]}")
        if revision.reason:
            line(f"    reason      {revision.reason}")
        values = {name: value for name, value in revision.values.items() if name not in keys}
        if before is None:
            line(f"    values      {', '.join(f'{name} {shown(value)}' for name, value in values.items())}")
            continue
        changed = revision.changed(before)
        for name, change in changed.items():
            by = difference(change.before, change.after)
            line(f"    changed     {name} {shown(change.before)} -> {shown(change.after)}" + (f" ({by})" if by else ""))
        if not changed:
            line("    changed     no number: only when the window closed (closed_at)")
        same = [f"{name} {shown(value)}" for name, value in values.items() if name not in changed]
        if same:
            line(f"    the same    {', '.join(same)}", "dim")


def history_records(revisions: Sequence[Revision], keys: Sequence[str]) -> list[dict[str, Any]]:
    """The revisions for machines; `changed` has the columns that changed, each with `before` and `after`."""
    from spark_jobs.operations.window_history import with_previous

    return [
        {**asdict(revision), "changed": {name: asdict(pair) for name, pair in revision.changed(before).items()}}
        for revision, before in with_previous(revisions, keys)
    ]


def print_live_history(
    panes: Sequence[EmittedPane],
    verdicts: Sequence[WindowVerdict],
    corrections: Sequence[WindowCorrection],
    console: Console,
) -> None:
    """Each emitted row, each verdict and each correction in a line or two; times are in UTC and never cut."""

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style))

    line("What the live job emitted" if panes else "The live job has emitted no row for it", "bold")
    for pane in panes:
        keys = ", ".join(shown(value) for value in pane.keys.values())
        values = ", ".join(f"{name} {shown(value)}" for name, value in pane.values.items())
        number = "" if pane.pane is None else f" pane {pane.pane},"
        at = "" if pane.emitted_at is None else f" at {format_instant(pane.emitted_at)}"
        of = "" if pane.deployment is None else f", by {pane.deployment}"
        line(f"  {keys}:{number} {'deleted' if pane.deleted else values}{at}{of}")
    line("What the comparisons found" if verdicts else "No comparison has found it to be anything but match", "bold")
    for found in verdicts:
        keys = ", ".join(shown(value) for value in found.keys.values())
        until = f"until {shown(found.valid_to)}" if found.valid_to else "true now"
        label = f" ({found.label})" if found.label else ""
        label += f", judged as of {found.deployment}" if found.deployment else ""
        line(f"  {keys}: {found.verdict}{label}, from {shown(found.valid_from)}, {until}", "cyan")
        for name, values in found.values.items():
            emitted, faithful, complete = map(shown, values)
            line(f"    {name}: emitted {emitted}, faithful {faithful}, complete {complete}")
        line(f"    run {found.run_id}")
    if corrections:
        line("What readers got", "bold")
    for one in corrections:
        keys = ", ".join(shown(value) for value in one.keys.values())
        at = f"delivered {shown(one.delivered_at)}" if one.delivered_at else one.status
        line(f"  {keys}: {one.kind} of revision {one.revision} ({one.cause}), {at}, to {one.destination}", "cyan")
        for name, (old, new) in one.values.items():
            line(f"    {name}: {shown(old)} -> {'deleted' if one.deleted else shown(new)}")
        line(f"    run {one.run_id}")


def live_records(
    panes: Sequence[EmittedPane], verdicts: Sequence[WindowVerdict], corrections: Sequence[WindowCorrection]
) -> list[dict[str, Any]]:
    """What the live job did with a window, for machines; `live`: `emitted`, `verdict` or `correction`."""
    return [
        *({"live": "emitted", **asdict(pane)} for pane in panes),
        *({"live": "verdict", **asdict(found)} for found in verdicts),
        *({"live": "correction", **asdict(one)} for one in corrections),
    ]
