"""The tutorial: its Python and its commands are run as they stand on the page, and its table shows what they give."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from spark_jobs import cli

PAGE = (Path(__file__).parents[2] / "docs/tutorial.md").read_text()


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", list(words))
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def test_the_commands_of_the_page(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    for kind, block in re.findall(r"^```(python|console)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if kind == "python":
            exec(compile(block, "tutorial.md", "exec"), {})
            continue
        for line in block.splitlines():
            assert call(monkeypatch, *shlex.split(line)) == 0, capfd.readouterr().err
    assert "fidelity log_order" in capfd.readouterr().out
    capfd.readouterr()
    (query,) = re.findall(r'^rewindow sql "(.*)"$', PAGE, re.MULTILINE)
    assert call(monkeypatch, "rewindow", "sql", query, "--json") == 0
    found = [[str(cell) for cell in json.loads(line).values()] for line in capfd.readouterr().out.splitlines()]
    table = PAGE.partition("| shop | window_start |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in table] == found
