"""Prints the life of a window in the live job: each row that it emitted, what was found, and what readers then got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from spark_jobs.definition.instants import format_instant
from spark_jobs.formatting import shown

if TYPE_CHECKING:
    from spark_jobs.operations.live_history import EmittedPane, WindowCorrection, WindowVerdict


def print_live_history(
    panes: Sequence[EmittedPane],
    verdicts: Sequence[WindowVerdict],
    corrections: Sequence[WindowCorrection],
    console: Console,
) -> None:
    """Each emitted row, each verdict and each correction in a line or two; times are in UTC and never cut."""

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

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
    """The same for machines; `live` says what a line is: `emitted`, `verdict` or `correction`."""
    return [
        *({"live": "emitted", **asdict(pane)} for pane in panes),
        *({"live": "verdict", **asdict(found)} for found in verdicts),
        *({"live": "correction", **asdict(one)} for one in corrections),
    ]
