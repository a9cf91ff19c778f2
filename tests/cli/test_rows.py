"""What `sql`, `history` and the end of a run print, on a terminal of 80 columns. No Spark."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from datetime import datetime

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from spark_jobs.cli.options import PlainConsole
from spark_jobs.cli.output import Stopwatch, columns_to_query
from spark_jobs.cli.revisions import history_records, print_history
from spark_jobs.cli.rows import print_csv, print_json, print_rows
from spark_jobs.definition import load_pipeline
from spark_jobs.operations.query import Rows
from spark_jobs.operations.window_history import Revision

AT = datetime(2013, 2, 1, 10)
NARROW = Rows(("carrier", "flights", "at"), (("UA", 7, AT.replace(microsecond=250_000)), (None, 12, AT)), True)
WIDE = Rows(
    ("carrier", "window_start", "window_end", "flights", "distance", "run_id", "reason"),
    (("UA", AT, AT, 7, 10_500.5, "departures_hourly-reconcile-scheduled__2013-02-01T11", None),),
    False,
)
FIRST = Revision(
    1, "backfill", AT, AT, AT, AT.replace(hour=11), {"carrier": "UA", "flights": 7, "records_dropped": 3},
    "departures_hourly-backfill-manual__2026-11-25T10_00_00.123456-with-a-long-name", {0: 5}, "0123456789ab", "a fix",
)  # fmt: skip


def printed(rows: Rows) -> list[str]:
    console = Console(width=80, file=io.StringIO())
    print_rows(rows, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_rows_that_fit_are_a_table_and_wide_ones_are_blocks_of_which_nothing_is_cut() -> None:
    table = printed(NARROW)
    assert all(len(line) <= 80 for line in table)
    assert "2013-02-01 10:00:00.25" in table[3] and "null" in table[4]
    assert table[-1] == "2 rows, and there are more: see --limit"
    assert printed(WIDE) == [
        "row 1",
        "  carrier       UA",
        "  window_start  2013-02-01 10:00:00",
        "  window_end    2013-02-01 10:00:00",
        "  flights       7",
        "  distance      10500.5",
        "  run_id        departures_hourly-reconcile-scheduled__2013-02-01T11",
        "null in every row: reason",
        "1 row",
    ]


def test_the_query_that_a_run_prints_has_few_columns() -> None:
    defined = load_pipeline("dags/pipelines/departures_hourly.yaml")
    assert columns_to_query(defined) == ", ".join(["carrier", "window_start", *list(defined.aggregates)[:3]])
    assert columns_to_query(None) == "*"


def test_rows_for_machines_are_whole_and_missing_ones_are_said_beside_them(capfd: pytest.CaptureFixture[str]) -> None:
    print_csv(NARROW)
    out, err = capfd.readouterr()
    assert out.splitlines() == ["carrier,flights,at", "UA,7,2013-02-01 10:00:00.25", ",12,2013-02-01 10:00:00"]
    assert "only the first 2 rows, and there are more: see --limit" in err
    print_json(replace(NARROW, has_more=False))
    out, err = capfd.readouterr()
    assert json.loads(out.splitlines()[1]) == {"carrier": None, "flights": 12, "at": "2013-02-01 10:00:00"}
    assert not err


def test_a_history_shows_what_each_revision_changed_and_whole_run_ids() -> None:
    late = replace(FIRST, revision=2, cause="late_arrivals", values=FIRST.values | {"flights": 10}, valid_to=None)
    closed = replace(late, revision=3)
    console = Console(width=80, soft_wrap=True, file=io.StringIO())
    print_history([FIRST, late, closed], ["carrier"], console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[0] == "Window 2013-02-01 10:00:00 to 2013-02-01 11:00:00 UTC, carrier UA"
    assert f"    run         {FIRST.run_id}" in lines
    assert "    changed     flights 7 -> 10 (+3)" in lines
    assert "    changed     no number: only when the window closed (closed_at)" in lines
    assert "    the same    records_dropped 3" in lines
    records = history_records([FIRST, late], ["carrier"])
    assert [record["changed"] for record in records] == [{}, {"flights": {"before": 7, "after": 10}}]


def test_the_seconds_of_a_command_are_those_of_all_stages_and_the_total() -> None:
    stopwatch = Stopwatch()
    for stage in ("start", "plan", "report"):
        with stopwatch.timed(stage):
            pass
    timings = stopwatch.around({"windows": 2.5, "publish": 0.5})
    assert list(timings) == ["start", "plan", "windows", "publish", "report", "total"]
    assert timings["windows"] == 2.5 and timings["total"] >= timings["start"] + timings["report"]


ESCAPES = [
    "\x1b]52;c;aGk=\x07",
    "\x1b[2J",
    "\x9b31m",
    "\r",
    "\x08\x08",
    "\u202egnp",
    "\x1b]8;;http://x\x1b\\\\",
    "\x7f",
    "\x0c",
]


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_obeys_nothing_that_data_hold(escape: str, is_terminal: bool) -> None:
    """Whatever the console is given: a table, a block, a message with markup."""
    file = io.StringIO()
    console = PlainConsole(width=80, file=file, force_terminal=is_terminal, highlight=False, soft_wrap=True)
    hostile = f"a{escape}b"
    print_rows(Rows((hostile, "n"), ((hostile, 1), ("c", 2)), False), console)
    print_rows(Rows((hostile, "n"), ((hostile * 40, 1), (f"c\n{hostile}", 2)), False), console)
    console.print(hostile, Text(hostile), f"[bold]{hostile}[/bold]", style="red")
    table = Table(title=hostile)
    table.add_column(hostile)
    table.add_row(hostile)
    console.print(table)
    own = re.sub("\x1b\\[[0-9;]*m", "", file.getvalue()) if is_terminal else file.getvalue()
    assert not {letter for letter in escape if not letter.isprintable()} & set(own)


def test_csv_is_visible_on_a_terminal_and_as_it_is_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = Rows(("a\x1bb",), (("c\x1bd",),), False)
    for is_terminal, letter in ((True, "\ufffd"), (False, "\x1b")):
        out = io.StringIO()
        monkeypatch.setattr(out, "isatty", lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr("sys.stdout", out)
        print_csv(rows)
        assert out.getvalue() == f"a{letter}b\nc{letter}d\n"
