"""Prints the rows of a query: a table where it fits the terminal, else one block for each row; CSV and JSON."""

from __future__ import annotations

import csv
import json
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from spark_jobs.cli.options import errors
from spark_jobs.formatting import plural, shown, visible

if TYPE_CHECKING:
    from spark_jobs.operations.query import Rows

_BORDERS = 3
"""Characters that a table needs beside each column's text."""


def print_as(found: Rows, console: Console, *, as_csv: bool, as_json: bool) -> None:
    """As the options say."""
    if as_csv:
        print_csv(found)
    elif as_json:
        print_json(found)
    else:
        print_rows(found, console)


def print_rows(found: Rows, console: Console) -> None:
    """A table where its lines fit the terminal, else each row as a block of lines; nothing is cut."""
    texts = [[shown(value) for value in row] for row in found.rows]
    widths = [max(map(len, column)) for column in zip(found.columns, *texts, strict=True)]
    if sum(widths) + _BORDERS * len(widths) + 1 <= console.width and not any("\n" in t for row in texts for t in row):
        if texts:
            _print_table(found, texts, console)
    else:
        _print_blocks(found, texts, console)
    more = ", and there are more: see --limit" if found.has_more else ""
    console.print(f"{plural(len(found.rows), 'row')}{more}")


def print_csv(found: Rows) -> None:
    """Comma-separated values with a header line; null is empty. A terminal gets visible texts only."""
    written = visible if sys.stdout.isatty() else str
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(written, found.columns))
    writer.writerows(["" if value is None else written(shown(value)) for value in row] for row in found.rows)
    _say_more(found)


def print_json(found: Rows) -> None:
    """One JSON object a line."""
    for row in found.rows:
        print(json.dumps(dict(zip(found.columns, row, strict=True)), default=str))
    _say_more(found)


def _say_more(found: Rows) -> None:
    """Say on standard error that rows are missing: what reads the rows would not know."""
    if found.has_more:
        errors.print(f"only the first {plural(len(found.rows), 'row')}, and there are more: see --limit")


def _print_table(found: Rows, texts: list[list[str]], console: Console) -> None:
    table = Table()
    for index, name in enumerate(found.columns):
        of_column = [row[index] for row in found.rows]
        is_number = any(isinstance(v, (int, float)) for v in of_column) and not any(
            isinstance(v, str) for v in of_column
        )
        table.add_column(escape(name), justify="right" if is_number else "left", no_wrap=True)
    for row in texts:
        table.add_row(*map(escape, row))
    console.print(table, soft_wrap=False)


def _print_blocks(found: Rows, texts: list[list[str]], console: Console) -> None:
    is_empty = [all(row[index] is None for row in found.rows) for index in range(len(found.columns))]
    width = max((len(name) for name, empty in zip(found.columns, is_empty, strict=True) if not empty), default=0)
    for number, row in enumerate(texts, 1):
        console.print(Text(f"row {number}", style="bold"))
        for name, text, empty in zip(found.columns, row, is_empty, strict=True):
            if not empty:
                console.print(Text(f"  {name:<{width}}  {text}"))
    if found.rows and any(is_empty):
        names = ", ".join(name for name, empty in zip(found.columns, is_empty, strict=True) if empty)
        console.print(Text(f"null in every row: {names}", style="dim"))
