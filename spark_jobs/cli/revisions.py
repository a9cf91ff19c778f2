"""Prints the revisions of a window: one block for each, with what it changed in the one before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from spark_jobs.formatting import difference, shown

if TYPE_CHECKING:
    from spark_jobs.operations.window_history import Revision


def print_history(revisions: Sequence[Revision], keys: Sequence[str], console: Console) -> None:
    """Each revision in a block of lines; times are in UTC and never cut."""
    from spark_jobs.operations.window_history import with_previous

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

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
