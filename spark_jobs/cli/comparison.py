"""Prints the report of a comparison on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_jobs.lakehouse.verdict import Verdict
from spark_jobs.runs.life.verdicts import Verdicts

GATE_CLOSED = 3


def print_report(pipeline: str, report: Verdicts, console: Console) -> None:
    """Print the report as tables and sentences."""
    table = Table("verdict", "windows", "meaning", title=f"Emitted against replayed: {pipeline}")
    table.title_justify = "left"
    for verdict, count in report.counts.items():
        labels = report.labels.get(verdict, {})
        details = ", ".join(f"{n} {label}" for label, n in sorted(labels.items(), key=lambda item: -item[1]))
        meaning = Verdict(verdict).meaning + (f" ({details})" if details else "")
        table.add_row(verdict, f"{count:,}", escape(meaning))
    console.print(table, soft_wrap=False)
    console.print(f"{report.windows:,} windows compared with {escape(report.emitted)}; fidelity {report.fidelity}")
    for one in report.deployments:
        counts = ", ".join(f"{n:,} {verdict}" for verdict, n in one.verdicts.items())
        rules = "its own rules" if one.own_rules else "the definition"
        line = (
            f"{one.name}: {one.start or 'the first'} to {one.end or 'now'}, judged by {rules}: {counts or 'no windows'}"
        )
        console.print(escape(line))
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
        console.print(f"[yellow]note[/]: {escape(note)}")
    _print_rows(console, "Largest changes (emitted / faithful / complete)", [_short(row) for row in report.top])
    _print_rows(console, "Some of the late records", report.late_record_samples)
    console.print(f"Next: {escape(report.next_step)}")


def as_json(pipeline: str, report: Verdicts) -> dict[str, Any]:
    """The JSON of `rewindow compare`, with the older names of two fields."""
    names = (
        "emitted", "fidelity", "windows", "labels", "windows_in_doubt", "contradicted", "fits", "lags", "late_records",
        "rows_unreadable", "top", "late_record_samples", "next_step", "notes", "deployments",
    )  # fmt: skip
    found = report.to_dict()
    return {
        "pipeline": pipeline,
        "verdicts": report.counts,
        "rows_outside_range": report.rows_outside_range,
        "exit_code": exit_code(report),
        **{name: found[name] for name in names},
        "not_told": report.windows_in_doubt,
        "causes": report.late_record_samples,
    }


def exit_code(report: Verdicts) -> int:
    """3 where some window differs and the log gives no reason."""
    return GATE_CLOSED if report.unexplained else 0


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
    console.print(table, soft_wrap=False)
