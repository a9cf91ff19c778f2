"""What the gate found, in the Data Docs and through the checkpoints of a Great Expectations project."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.errors import DefinitionError
from spark_jobs.quality.data_docs import build_data_docs
from spark_jobs.quality.gx import quiet
from spark_jobs.runs.life.store import RunStore
from tests.browser import launched_or_skipped
from tests.report.documents import request

AT = datetime(2026, 11, 26, 3, 0, tzinfo=UTC)


def checked(suite: str, data: str, kind: str, **more: Any) -> dict[str, Any]:
    """One result as `gate.json` has it."""
    return {
        "suite": suite, "data": data, "expectation": kind, "name": "a-name", "description": "A window has records",
        "severity": "critical", "success": True, "column": "n", "columns": {"column": "n"}, "observed": 3,
        "threshold": {}, "checked": None, "unexpected_count": None, "unexpected_percent": None, "samples": [],
        "error": None,
    } | more  # fmt: skip


GATE = {
    "results": [
        checked("windows", "windows", "expect_column_max_to_be_between", threshold={"max_value": 5}),
        checked(
            "windows", "windows", "expect_column_values_to_not_be_null", success=False, observed=2, checked=10,
            unexpected_count=2, unexpected_percent=20.0, samples=[{"k": "<b>a</b>", "n": None}],
        ),
        checked(
            "windows", "windows", "expect_rows_to_be_unique_by_columns", column=None,
            columns={"column_list": ["k", "window_start"]}, observed=0, checked=10, unexpected_count=0,
        ),
        checked(
            "orders", "reconciliation", "expect_column_values_to_be_between", success=False, error="no such column",
            threshold={"min_value": 1},
        ),
    ]
}  # fmt: skip


def pages(project: Path) -> dict[str, str]:
    site = project / "gx/uncommitted/data_docs/local_site"
    return {page.stem: page.read_text() for page in (site / "validations").rglob("*.html")}


def test_a_project_gets_the_results_as_its_own_and_their_pages(tmp_path: Path) -> None:
    for _ in range(2):  # once more replaces them
        sites = build_data_docs(GATE, "orders-1", AT, tmp_path)
    assert sites["local_site"].endswith("local_site/index.html")
    found = pages(tmp_path)
    assert sorted(found) == ["reconciliation", "windows"]
    assert "A window has records" in found["windows"]
    assert "<b>a</b>" not in found["windows"]
    stored = list((tmp_path / "gx/uncommitted/validations").rglob("*.json"))
    assert sorted(path.parts[-4] for path in stored) == ["orders_reconciliation", "windows"]
    windows = json.loads(next(path for path in stored if path.parts[-4] == "windows").read_text())
    assert windows["success"] is False
    assert windows["statistics"]["successful_expectations"] == 2
    assert windows["results"][0]["expectation_config"]["kwargs"] == {"column": "n", "max_value": 5}


@pytest.fixture
def slack() -> Iterator[tuple[str, list[Any]]]:
    """The address of a server that answers as Slack does, and what it was sent."""
    sent: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/hook", sent
    server.shutdown()


def test_the_actions_of_a_checkpoint_are_carried_out(tmp_path: Path, slack: tuple[str, list[Any]]) -> None:
    address, sent = slack
    with quiet():
        import great_expectations as gx
        from great_expectations.checkpoint.actions import SlackNotificationAction

        context = gx.get_context(mode="file", project_root_dir=str(tmp_path))
        action = SlackNotificationAction(name="tell", slack_webhook=address, notify_on="failure")
        context.checkpoints.add(gx.Checkpoint(name="nightly", validation_definitions=[], actions=[action]))
    build_data_docs(GATE, "orders-1", AT, tmp_path, "nightly")
    assert "nightly" in json.dumps(sent)
    with pytest.raises(DefinitionError, match="Known here: nightly"):
        build_data_docs(GATE, "orders-1", AT, tmp_path, "daily")


def test_a_bad_day_is_a_result_of_its_own(tmp_path: Path) -> None:
    day = {"day": "2013-02-08", "observed": 2, "checked": 10, "unexpected_count": 2, "unexpected_percent": 20.0}
    rows = [{"rw_day": "2013-02-08", "n": 7}]
    one = checked(
        "windows", "windows", "expect_column_values_to_be_between", success=False, threshold={"max_value": 5},
        checked=30, unexpected_count=2, samples=rows, days=3, days_failed=1, failed_days=[day],
    )  # fmt: skip
    build_data_docs({"results": [one]}, "orders-1", AT, tmp_path)
    [stored] = [json.loads(path.read_text()) for path in (tmp_path / "gx/uncommitted/validations").rglob("*.json")]
    bad, others = stored["results"]
    assert (bad["success"], others["success"]) == (False, True)
    assert "2013-02-08" in json.dumps(bad["expectation_config"]["kwargs"]["row_condition"])
    assert bad["result"]["partial_unexpected_index_list"] == rows
    assert "A window has records: 2013-02-08" in pages(tmp_path)["windows"]
    assert "A window has records: 2 other days" in pages(tmp_path)["windows"]


def test_what_is_no_project_is_refused(tmp_path: Path) -> None:
    (tmp_path / "gx").mkdir()
    (tmp_path / "gx/great_expectations.yml").write_text("stores: 3")
    with pytest.raises(DefinitionError, match="not a GX project"):
        build_data_docs(GATE, "orders-1", AT, tmp_path)


EVIL = """x"'><img src=x onerror=boom('%s')><svg/onload=boom('%s')></script><script>boom('%s')</script><!-- ${a} $b"""
EVIL += "\u202egnp.exe\x00\x1b]52;c;aGk=\x07\n- a: b"


def evil(place: str) -> str:
    """A text that says where it is when a browser takes it for markup."""
    return EVIL % (place, place, place)


def kwarg(name: str) -> Any:
    """A value for a kwarg of GX by its name: hostile, where it can be a text."""
    plain = {
        "mostly": 0.9, "min_value": 1, "max_value": 3, "value": 3, "sum_total": 3, "threshold": 3, "column_index": 2,
        "double_sided": True, "condition_parser": "spark", "strftime_format": "%Y<img src=x onerror=boom('strftime')>",
        "unexpected_rows_query": "{batch}" + evil(name), "json_schema": {evil(name): evil(name)}, "multiplier": 2,
        "quantile_ranges": {"quantiles": [0.1], "value_ranges": [[1, 2]]}, "method": "std",
        "partition_object": {"values": ["a"], "weights": [1.0]}, "value_pairs_set": [(evil(name), evil(name))],
    }  # fmt: skip
    several = ("value_set", "column_set", "type_list", "regex_list", "like_pattern_list", "column_list")
    return plain.get(name, [evil(name), evil(name + "2")] if name in several else evil(name))


OPTIONAL = ("row_condition", "condition_parser", "mostly", "min_value", "max_value")


def hostile_results() -> list[dict[str, Any]]:
    """Each type of expectation that GX knows: met, unmet and failed, with hostile texts in each place of `gate.json`.

    Each is in a suite of its own, since GX leaves out a page that it cannot write.
    """
    with quiet():
        import great_expectations.expectations.core
        from great_expectations.expectations.registry import (
            get_expectation_impl,
            list_registered_expectation_implementations,
        )

        del great_expectations
        kinds = {kind: get_expectation_impl(kind) for kind in list_registered_expectation_implementations()}
    found = []
    for kind in sorted(kinds):
        fields: Any = kinds[kind].__fields__  # pyright: ignore[reportAttributeAccessIssue]
        names = [name for name, field in fields.items() if field.required or name in OPTIONAL]
        used = {name: kwarg(name) for name in names}
        rows = {"checked": 10, "unexpected_count": 2, "unexpected_percent": 20.0, "samples": [{evil("k"): evil("v")}]}
        for number, (observed, error, more) in enumerate((
            (evil("observed"), None, rows), ([evil("observed list")], evil("error"), {}),
            ({evil("observed name"): {"deep": [evil("observed deep")]}}, None, {}),
        )):  # fmt: skip
            said = evil("description") if number else ""
            found.append(checked(
                kind, kind, kind, name=evil("name"), description=said, success=not number,
                observed=observed, error=error, threshold=used, columns={}, column=None, **more,
            ))  # fmt: skip
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched_or_skipped()


def test_no_text_of_a_record_or_a_suite_is_markup_in_the_pages(tmp_path: Path, browser: Any) -> None:
    results = hostile_results()
    build_data_docs({"results": results}, "orders-1", AT, tmp_path)
    site = tmp_path / "gx/uncommitted/data_docs/local_site"
    ran: list[str] = []
    page = browser.new_page()
    page.expose_function("boom", lambda place: ran.append(place))
    page.route("**", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    seen = set()
    for file in (site / "index.html", *(site / "validations").rglob("*.html")):
        page.goto(file.as_uri(), wait_until="load")
        seen.add(file.stem)
        assert page.locator("[onerror], [onload], [onmouseover], img[src=x]").count() == 0, file
    page.close()
    assert ran == []
    assert {one["expectation"] for one in results} <= seen


def test_a_page_shows_texts_as_they_are(tmp_path: Path, browser: Any) -> None:
    one = checked("windows", "windows", "expect_column_distinct_values_to_be_in_set", success=False,
                  observed=["<b>a</b>", "x < y & z"], description="a <i>b", error=None,
                  threshold={"value_set": ["<u>c"]})  # fmt: skip
    build_data_docs({"results": [one]}, "orders-1", AT, tmp_path)
    page = browser.new_page()
    [file] = (tmp_path / "gx/uncommitted/data_docs/local_site/validations").rglob("*.html")
    page.goto(file.as_uri())
    text = page.locator("body").inner_text()
    page.close()
    assert "['<b>a</b>', 'x < y & z']" in text
    assert "a <i>b" in text


def test_the_command_names_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWINDOW_HOME", str(tmp_path))
    folder = RunStore.configured().folder("orders-1")
    folder.write("request.json", request(run_id="orders-1"))
    refused = CliRunner().invoke(app, ["expectations", "docs", "orders-1"])
    assert isinstance(refused.exception, DefinitionError)
    assert "no results of expectations" in str(refused.exception)
    folder.write("gate.json", GATE | {"verdict": "failed", "blocks": True})
    done = CliRunner().invoke(app, ["expectations", "docs", "orders-1"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "Data Docs (local_site): file://" in done.stdout
    assert sorted(pages(tmp_path / "data_docs")) == ["reconciliation", "windows"]
