"""The tutorial, the short ways, and the page of a query.

Python, commands and YAML are used as they stand on the pages, in their order.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from spark_jobs import cli

DOCS = Path(__file__).parents[2] / "docs"
PAGE, WAYS = (DOCS / "tutorial.md").read_text(), (DOCS / "how-to.md").read_text()
WAITS = {"rewindow run orders --run-id south-late", "rewindow run orders --run-id largest"}
"""How the commands begin that end with exit code 3, as the page says."""


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", list(words))
    with pytest.raises(SystemExit) as left:
        cli.main()
    return int(left.value.code or 0)


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """Language and text of each block that is used."""
    yield from re.findall(r"^```(python|console|yaml)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def follow(page: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Paste each block: YAML into the definition of `orders`, in the place of the keys of the same names."""
    yaml, names = YAML(), {}
    for kind, block in blocks(page):
        if kind == "python":
            exec(compile(block, "page", "exec"), names)
        elif kind == "yaml":
            file = Path("dags/pipelines/orders.yaml")
            definition: Any = yaml.load(file)
            definition.update(yaml.load(block))
            yaml.dump(definition, file)
        else:
            for line in block.splitlines():
                code = call(monkeypatch, *shlex.split(line))
                waits = any(line.startswith(beginning) for beginning in WAITS)
                assert code == (3 if waits else 0), (line, capfd.readouterr().err[-2000:])


def test_the_commands_of_the_page(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    follow(PAGE, monkeypatch, capfd)
    assert "fidelity log_order" in capfd.readouterr().out
    capfd.readouterr()
    (query,) = re.findall(r'^rewindow sql "(.*)"$', PAGE, re.MULTILINE)
    assert call(monkeypatch, "rewindow", "sql", query, "--json") == 0
    found = [[str(cell) for cell in json.loads(line).values()] for line in capfd.readouterr().out.splitlines()]
    table = PAGE.partition("| shop | window_start |")[2].partition("\n\n")[0].splitlines()[2:]
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in table] == found


@pytest.mark.long
def test_the_short_ways_go_on_where_the_tutorial_ends(spark, tmp_path: Path, monkeypatch, capfd) -> None:
    monkeypatch.chdir(tmp_path)
    for page in (PAGE, WAYS):  # in a namespace of their own: the test before has published the same pipeline
        follow(re.sub(r"(--namespace |rewindow\.)tutorial\b", r"\1short_ways", page), monkeypatch, capfd)
    capfd.readouterr()
    noon = "window_start = '2024-03-01 12:00:00'"
    query = (
        f"SELECT shop, records, records__complete, largest FROM rewindow.short_ways.orders WHERE {noon} ORDER BY shop"
    )
    assert call(monkeypatch, "rewindow", "sql", query, "--json") == 0
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [(row["shop"], row["records"], row["records__complete"]) for row in rows] == [
        ("north", 238, 245), ("south", 120, 126),
    ]  # fmt: skip
    assert {row["largest"] for row in rows} == {8}


@pytest.mark.long
def test_the_page_of_a_structured_streaming_query(spark, tmp_path: Path, monkeypatch, capfd) -> None:
    """Its query runs, and what it has emitted is compared and published as the page says."""
    monkeypatch.chdir(tmp_path)
    page = (DOCS / "structured-streaming.md").read_text().partition("\n## Where do I find")[0]
    for written in ('json("landing")', '"hourly"', '"checkpoints/orders"', "path: landing", '"hourly/*.json"'):
        assert written in page  # the JVM of all tests was started in another folder
        page = page.replace(written, re.sub(r"(landing|hourly|checkpoints)", rf"{tmp_path}/\1", written))
    page = page.replace("checkpoint: checkpoints", f"checkpoint: {tmp_path}/checkpoints")
    namespace = "aggregates: {n: count(*), total: sum(amount)}\noutput: {namespace: page_of_a_query}"
    page = page.replace("aggregates: {n: count(*), total: sum(amount)}", namespace)
    follow(page, monkeypatch, capfd)
    shown = capfd.readouterr().out
    assert "fidelity recorded" in shown and "2 windows compared: 2 late_arrivals, 1 not_closed" in shown
    rows = spark.table("rewindow.page_of_a_query.orders").where("state = 'closed'").orderBy("window_start").collect()
    assert [(row["n"], row["n__complete"]) for row in rows] == [(3, 4), (2, 3)]
