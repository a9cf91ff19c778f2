"""What README and pages show is run as it stands there, and gives what they say."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from spark_jobs import cli
from spark_jobs.runs.life.store import RunStore
from spark_jobs.spark.session import spark_session

ROOT = Path(__file__).parents[2]
Rewindow = Callable[..., str]


@pytest.fixture
def rewindow(spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rewindow:
    """Run a line of a page in this process, with a home of its own; gives what it prints."""
    monkeypatch.setenv("REWINDOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def call(line: str, code: int = 0, **words: str) -> str:
        found = [words.get(word, word) for word in shlex.split(line, comments=True)]
        assert found[0].endswith("rewindow")
        monkeypatch.setattr("sys.argv", ["rewindow", *found[1:]])
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfd.readouterr()
        assert int(left.value.code or 0) == code, f"{line}: {err}"
        return out

    return call


def page(name: str) -> str:
    return (ROOT / name).read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(block: str) -> list[str]:
    """The lines of a block of commands; one that goes on in the next line, or in quotes over several, is one."""
    found = re.findall(r"^\S*rewindow(?:\"[^\"]*\"|[^\"\n])*", block.replace("\\\n", " "), re.MULTILINE)
    return [re.sub(r"\s+", " ", line) for line in found]


def table(text: str, first: str) -> list[list[str]]:
    """The cells of the table whose head begins so."""
    rows = text[text.index(f"| {first} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.long
def test_the_readme_and_the_pages_of_tables_and_reports(
    rewindow: Rewindow, spark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    readme, tables = page("README.md"), page("docs/tables.md")
    run, query = commands(blocks(readme, "console")[1])
    assert "/report.html" in rewindow(run)
    rows = [json.loads(row) for row in rewindow(f"{query} --json").splitlines()]
    assert [[str(cell) for cell in row.values()] for row in rows] == table(readme, "carrier")

    activate, *tried = blocks(readme, "console")[2].splitlines()
    assert activate == ". .venv/bin/activate"
    for line in commands("\n".join(tried)):
        assert rewindow(line)

    # docs/tables.md: the tables without Rewindow, with Spark, and the verdicts of the live job.
    seen: dict = {}
    for block in blocks(tables, "python"):
        exec(block.replace("/data/rewindow/catalog.db", str(tmp_path / "home/catalog.db")), seen)
    assert seen["now"].num_rows == seen["every"].num_rows > 100
    dropped = sum(seen["now"]["records_dropped"].to_pylist())
    assert dropped == sum(seen["missed"]["windows_missed"].to_pylist()) > 0
    (history,) = re.findall(r"`(rewindow revisions [^`]*)`", tables)
    assert "UA" in rewindow(history, PIPELINE="departures_hourly")
    current, every = blocks(tables, "sql")[0].splitlines()
    shown, late = blocks(tables, "sql")[1].replace(";", "").splitlines()
    session = spark_session("tests", home=tmp_path / "home")
    snapshot = session.sql(shown).collect()[0]["value"]
    (verdicts,) = re.findall(r"^ {4}(SELECT .*__verdicts .*)$", tables, re.MULTILINE)
    assert session.sql(verdicts).columns[:2] == ["carrier", "window_start"]
    found = [session.sql(text).count() for text in (current, every, re.sub(r"\d{12,}", snapshot, late))]
    assert found == [seen[name].num_rows for name in ("now", "every", "missed")]

    # docs/report.md, elsewhere than in the project.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BROWSER", "true")
    (run_id,) = RunStore.configured().run_ids()
    printed = [rewindow(line, RUN=run_id) for line in commands(blocks(page("docs/report.md"), "console")[0])]
    assert run_id in printed[0]
    assert json.loads(printed[4])["run"]["run_id"] == run_id
    assert "<testsuite" in (tmp_path / "junit.xml").read_text()


@pytest.mark.long
def test_the_hour_of_one_late_airline_on_the_page_of_the_three_truths() -> None:
    """United's flights of Friday, 8 March 2013, 22:00 UTC: what the page says of them, from the records."""
    start, end = datetime(2013, 3, 8, 22, tzinfo=UTC), datetime(2013, 3, 8, 23, tzinfo=UTC)
    latest: dict[int, datetime] = {}
    closed: datetime | None = None
    before: list[int] = []
    after: list[datetime] = []
    records = pq.read_table(ROOT / "tests/data/flights/events.parquet").to_pylist()
    for record in sorted(records, key=lambda one: (one["arrival"], one["partition"], one["offset"])):
        value = json.loads(record["value"])
        time = datetime.fromisoformat(value["sched_dep"])
        if record["key"] == "UA" and start <= time < end:
            if closed is None:
                before.append(value["distance"])
            else:
                after.append(record["arrival"])
        latest[record["partition"]] = max(time, latest.get(record["partition"], time))
        if closed is None and len(latest) == 3 and min(latest.values()) - timedelta(minutes=30) >= end:
            closed = record["arrival"]
    assert closed is not None
    text = " ".join(page("docs/three-truths.md").partition("## One day, one late airline")[2].split())
    assert (len(before) + len(after), len(before), len(after)) == (17, 10, 7)
    assert "17 of United's flights" in text and "ten of them have left" in text and "Their seven records" in text
    assert f"By {closed + timedelta(milliseconds=500):%H:%M:%S} UTC" in text
    assert round((after[0] - closed).total_seconds()) == 8 and "leaves eight seconds later" in text
    assert f"the last one at {after[-1]:%H:%M}." in text
    row = {"flights": len(before), "distance": sum(before), "shortest": min(before), "longest": max(before)}
    assert json.dumps(row, separators=(",", ":"))[:-1] in text
