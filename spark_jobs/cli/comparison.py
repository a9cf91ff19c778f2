"""Prints the report of a comparison on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_jobs.comparison.report import Report
from spark_jobs.comparison.verdicts import Verdict

_MEANING = {
    Verdict.MATCH: "emitted = faithful = complete",
    Verdict.LATE_ARRIVALS: "emitted = faithful; late records would change it",
    Verdict.TIMING: "the live job's own clock decided; one cut of the log explains all keys",
    Verdict.MISMATCH: "emitted differs: the definition or the source changed, or the live job failed",
    Verdict.MISSING: "no emitted row, but there should be one",
    Verdict.EXTRA: "an emitted row, but there should be none",
    Verdict.ALL_LATE: "no emitted row, as expected: every record was late",
    Verdict.UNDECIDED: "differs, and the log does not show whether by timing",
    Verdict.NOT_CLOSED: "still open at the end offsets; not counted",
}


def print_report(report: Report, console: Console) -> None:
    """Print the report as tables and sentences."""
    table = Table("verdict", "windows", "meaning", title=f"Emitted against replayed: {report.pipeline}")
    table.title_justify = "left"
    for verdict, count in report.verdicts.items():
        labels = report.labels.get(verdict, {})
        details = ", ".join(f"{n} {label}" for label, n in sorted(labels.items(), key=lambda item: -item[1]))
        meaning = _MEANING[Verdict(verdict)] + (f" ({details})" if details else "")
        table.add_row(verdict, f"{count:,}", escape(meaning))
    console.print(table)
    console.print(f"{report.windows:,} windows compared with {escape(report.emitted)}; fidelity {report.fidelity}")
    for one in report.deployments:
        until = "now" if one["to"] is None else one["to"]
        counts = ", ".join(f"{n:,} {verdict}" for verdict, n in one["verdicts"].items())
        rules = "its own rules" if one["own_rules"] else "the definition"
        line = f"{one['name']}: {one['from'] or 'the first'} to {until}, judged by {rules}: {counts or 'no windows'}"
        console.print(escape(line), soft_wrap=True)
    if report.late_records:
        console.print(f"{report.late_records:,} late records behind late_arrivals (pairs of record and window)")
    if report.windows_in_doubt:
        console.print(
            f"{report.windows_in_doubt:,} windows have undecided records, where the log alone shows no difference"
        )
    for fit in report.fits:
        console.print(
            f"{fit['window_ends']} window ends are explained by {fit['fit']}, each from at least "
            f"{fit['fewest_keys']} keys (median {fit['median_keys']:.0f}); {fit['keys_left_out']} keys are left out"
        )
    for note in report.notes:
        console.print(f"[yellow]note[/]: {escape(note)}", soft_wrap=True)
    _print_rows(console, "Largest changes (emitted / faithful / complete)", [_short(row) for row in report.top])
    _print_rows(console, "Some of the late records", report.late_record_samples)
    console.print(f"Next: {escape(report.next_step)}", soft_wrap=True)


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """A window in fewer columns: the three values of an aggregate in one column, and no end."""
    short: dict[str, Any] = {}
    for name, value in row.items():
        aggregate = name.removesuffix("__emitted")
        if aggregate != name and f"{aggregate}__complete" in row:
            three = (value, row[aggregate], row[f"{aggregate}__complete"])
            short[aggregate] = " / ".join("-" if v is None else str(v) for v in three)
        elif name not in ("window_end", "emitted_rows") and name not in short and not name.endswith("__complete"):
            short[name] = value
    return short


def _print_rows(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    shown = [name for name in rows[0] if any(row[name] not in (None, []) for row in rows)]
    table = Table(*shown, title=title, title_justify="left")
    for row in rows:
        cells = (row[name] for name in shown)
        table.add_row(*("" if c is None else escape(", ".join(c) if isinstance(c, list) else str(c)) for c in cells))
    console.print(table)
