"""Prints the life of a window in the live job: each row that it emitted, and what the comparisons said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from spark_jobs.cli.rows import shown
from spark_jobs.definition.instants import format_instant

if TYPE_CHECKING:
    from spark_jobs.operations.live_history import EmittedPane, WindowVerdict


def print_live_history(panes: Sequence[EmittedPane], verdicts: Sequence[WindowVerdict], console: Console) -> None:
    """Each emitted row and each verdict in a line or two; times are in UTC and never cut."""

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    line("What the live job emitted" if panes else "The live job has emitted no row for it", "bold")
    for pane in panes:
        keys = ", ".join(shown(value) for value in pane.keys.values())
        values = ", ".join(f"{name} {shown(value)}" for name, value in pane.values.items())
        number = "" if pane.pane is None else f" pane {pane.pane},"
        at = "" if pane.emitted_at is None else f" at {format_instant(pane.emitted_at)}"
        line(f"  {keys}:{number} {'deleted' if pane.deleted else values}{at}")
    line("What the comparisons found" if verdicts else "No comparison has found it to be anything but match", "bold")
    for found in verdicts:
        keys = ", ".join(shown(value) for value in found.keys.values())
        until = f"until {shown(found.valid_to)}" if found.valid_to else "true now"
        label = f" ({found.label})" if found.label else ""
        line(f"  {keys}: {found.verdict}{label}, from {shown(found.valid_from)}, {until}", "cyan")
        for name, values in found.values.items():
            emitted, faithful, complete = map(shown, values)
            line(f"    {name}: emitted {emitted}, faithful {faithful}, complete {complete}")
        line(f"    run {found.run_id}")


def live_records(panes: Sequence[EmittedPane], verdicts: Sequence[WindowVerdict]) -> list[dict[str, Any]]:
    """The same for machines; `live` says what a line is: `emitted` or `verdict`."""
    emitted = [{"live": "emitted", **asdict(pane)} for pane in panes]
    return [*emitted, *({"live": "verdict", **asdict(found)} for found in verdicts)]
