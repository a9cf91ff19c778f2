"""What `make setup` says while pip works."""

from __future__ import annotations

import io

from tests.tools.packages import main, show


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


LINES = [
    *(f"Collecting name-{number}==1.{number} (from -r requirements.txt (line {number}))\n" for number in range(60)),
    "Requirement already satisfied: pip==24.0 in ./lib (24.0)\n", "  Downloading name.whl (1 kB)\n",
    "Installing collected packages: name-1, name-2\n",
]  # fmt: skip


def test_a_log_gets_a_line_for_every_25_packages_and_a_terminal_one_line_that_counts() -> None:
    log, terminal = io.StringIO(), _Terminal()
    assert show(LINES, 61, log) == show(LINES, 61, terminal) == LINES
    assert [line.strip() for line in log.getvalue().splitlines()] == [
        "25 of about 61 packages: name-24", "50 of about 61 packages: name-49", "61 packages are here; installing them",
    ]  # fmt: skip
    assert "\r  60 of about 61 packages: name-59" in terminal.getvalue() and terminal.getvalue().count("\n") == 1


def test_what_pip_says_is_shown_where_it_fails(tmp_path, capfd) -> None:
    odd = tmp_path / "requirements.txt"
    odd.write_text("name with spaces==1\n")
    assert main(str(odd)) != 0
    assert "Invalid requirement" in capfd.readouterr().err
