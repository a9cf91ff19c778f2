"""Reads the drawings of these tests: windows on a time line, and tables of what comes in and what comes out.

A time line begins with the time of its first column and a bar; each column is one millisecond:

    0|  a  b         records at 2 and 5
    0| [==)          the window [1, 4): "[" is the first instant inside, ")" the first one after
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spark_jobs.eventtime.windows import Window

_LINE = re.compile(r"\s*(-?\d+)\|(.*)")
_WINDOW = re.compile(r"\[=*\)")
_MARK = re.compile(r"[a-z]")


@dataclass(frozen=True, slots=True)
class Drawing:
    """A time line: the windows, top to bottom and left to right, and the time of each lettered mark."""

    windows: list[Window]
    marks: dict[str, int]


def drawn(text: str) -> Drawing:
    """Read a time line of any number of lines; empty lines do not count."""
    windows: list[Window] = []
    marks: dict[str, int] = {}
    for line in filter(str.strip, text.splitlines()):
        found = _LINE.fullmatch(line)
        assert found, f"a line begins with the time of its first column and a bar: {line!r}"
        first, content = int(found[1]), found[2]
        windows += [Window(first + m.start(), first + m.end() - 1) for m in _WINDOW.finditer(content)]
        rest = _WINDOW.sub(lambda m: " " * len(m[0]), content)
        marks |= {m[0]: first + m.start() for m in _MARK.finditer(rest)}
    return Drawing(windows, marks)


def table(text: str) -> Iterator[dict[str, str]]:
    """The columns of a table, left to right: by the name of the row, the cell. A dot is an empty cell.

    record    | 7 . 9
    watermark | . 6 8
    """
    rows: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        name, _, cells = line.partition("|")
        rows[name.strip()] = ["" if cell == "." else cell for cell in cells.split()]
    assert len({len(cells) for cells in rows.values()}) == 1, f"the rows have different lengths: {rows}"
    for column in zip(*rows.values(), strict=True):
        yield dict(zip(rows, column, strict=True))
