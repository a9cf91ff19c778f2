"""Prints the report of a comparison on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spark_jobs.cli.options import GATE_CLOSED
from spark_jobs.lakehouse.verdict import Verdict
from spark_jobs.runs.life.verdicts import Verdicts


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
    _print_rows(console, "Largest changes", [one for row in report.top for one in _by_value(row)])
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


_OF_THREE = ("emitted", "faithful", "complete")
_NOT_SHOWN = frozenset(
    {"window_end", "emitted_rows", "differs", "basis", "records_undecided", "fit_keys", "fit_left_out"}
)


def _by_value(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A window as one row for each aggregate whose three values are not all the same; else one row without them."""
    aggregates = [name.removesuffix("__emitted") for name in row if name.endswith("__emitted")]
    values = {a: (row[f"{a}__emitted"], row[a], row[f"{a}__complete"]) for a in aggregates}
    of_values = {column for a in aggregates for column in (a, f"{a}__emitted", f"{a}__complete")}
    window = {name: value for name, value in row.items() if name not in of_values | _NOT_SHOWN}
    differing = [a for a in aggregates if a in (row.get("differs") or ()) or len(set(map(str, values[a]))) > 1]
    rows = [window | {"value": a} | dict(zip(_OF_THREE, values[a], strict=True)) for a in differing]
    return rows or [window | dict.fromkeys(("value", *_OF_THREE))]


def _print_rows(console: Console, title: str, rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    shown = [name for name in rows[0] if any(row[name] not in (None, []) for row in rows)]
    table = Table(title=title, title_justify="left")
    for name in shown:
        table.add_column(name, overflow="fold")  # a digit that is cut off may be the one that differs
    for row in rows:
        cells = (row[name] for name in shown)
        table.add_row(*("" if c is None else escape(", ".join(c) if isinstance(c, list) else str(c)) for c in cells))
    console.print(table, soft_wrap=False)
