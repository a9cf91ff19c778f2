"""The pages and the JSON of runs, asked over HTTP and in Chromium, inside a real Airflow with a permission a DAG."""

# pyright: reportArgumentType=false

from __future__ import annotations

import http.client
import json
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page

from spark_jobs.demo.airflow import Airflow
from spark_jobs.demo.supervised import Supervised
from spark_jobs.orchestration.run_ids import dag_id_of, run_id_of
from spark_jobs.report.build import build_report
from spark_jobs.runs.life.documents import Outcome, Request
from spark_jobs.runs.life.store import REPORT, RunStore
from spark_jobs.runs.planning.last_run import remember
from spark_jobs.runs.planning.looks import Answer, Look, Looks, Question, Table
from tests.browser import launched_or_skipped
from tests.report.documents import outcome, request, written
from tests.sampling import first_of

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{6007*7}}\x00\ud800"
HOURLY, KAFKA = "departures_hourly-backfill-tab-1", "departures_kafka-backfill-tab-1"
NIGHT = "departures_hourly-reconcile-night-1"
ADDRESSES = (
    "/rewindow/", "/rewindow/?pipeline=departures_hourly", f"/rewindow/runs/{HOURLY}",
    "/rewindow/tab?dag_id=backfill__departures_hourly&run_id=tab-1", "/rewindow/api/runs",
    f"/rewindow/api/runs/{HOURLY}", "/rewindow/openapi.json", "/rewindow/runs/no-such-run",
    "/rewindow/pipelines/departures_hourly", f"/rewindow/decide/{KAFKA}", "/rewindow/looks/departures_hourly",
    "/rewindow/looks/departures_hourly/asked-1",
)  # fmt: skip

PLAIN_DAG = """
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator

with DAG("somebody_elses", schedule=None):
    EmptyOperator(task_id="nothing")
"""


class Server:
    """An API server of Airflow, its run store, and its people."""

    def __init__(self, url: str, passwords: Path, runs: Path) -> None:
        self.url = url
        self.runs = runs
        self.store = RunStore(str(runs))
        self._passwords = passwords
        self._tokens: dict[str, str] = {}

    def password(self, user: str) -> str:
        return json.loads(self._passwords.read_text())[user]

    def token(self, user: str) -> str:
        if user not in self._tokens:
            login = {"username": user, "password": self.password(user)}
            answer = httpx.post(f"{self.url}/auth/token", json=login, timeout=60)
            self._tokens[user] = answer.raise_for_status().json()["access_token"]
        return self._tokens[user]

    def get(self, path: str, user: str | None = "admin", method: str = "GET", **more: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token(user)}"} if user else {}
        return httpx.request(method, f"{self.url}{path}", headers=headers, timeout=60, **more)

    def ids(self, query: str = "", user: str = "admin") -> list[str]:
        """The runs that the API lists."""
        answer = self.get(f"/rewindow/api/runs?per_page=200{query}", user)
        assert answer.status_code == 200, answer.text
        return [run["run_id"] for run in answer.json()["runs"]]

    def run(self, pipeline: str, dag_run_id: str, *, kind: str = "backfill", day: int = 1, **documents: object) -> str:
        """Leave the documents of a run, as its stages do."""
        run_id = run_id_of(dag_id_of(kind, pipeline), dag_run_id)
        asked = request(
            run_id=run_id, pipeline=pipeline, kind=kind, dag_id=f"{kind}__{pipeline}", dag_run_id=dag_run_id,
            requested_at=f"2026-11-{day:02}T05:00:00+00:00",
        )  # fmt: skip
        written(self.runs, run_id, **({"request": asked} | documents))
        return run_id


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Airflow's API server with the project's DAGs and plugin, one DAG of somebody else's, and a few runs.

    `airflow standalone` would put its own auth manager in place of the one that denies; and nothing runs here.
    """
    project, home = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("home")
    shutil.copytree(ROOT / "dags", project / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "dags" / "somebody_elses.py").write_text(PLAIN_DAG)
    airflow = Airflow(tmp_path_factory.mktemp("airflow"), project=project)
    environ = airflow.environ() | {
        "REWINDOW_HOME": str(home), "PYTHONPATH": str(ROOT),
        "AIRFLOW__CORE__AUTH_MANAGER": "tests.web.auth_manager.SomeDenied",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,viewer:viewer,outsider:viewer",
    }  # fmt: skip
    for command in (["db", "migrate"], ["dags", "reserialize"]):
        subprocess.run(["airflow", *command], env=environ, cwd=project, check=True, capture_output=True, timeout=300)
    with airflow.log.open("ab") as log:
        process = Supervised(["airflow", "api-server"], environ=environ, log=log, folder=project)
    try:
        server = Server(airflow.url, airflow.directory / "passwords.json", home / "runs")
        deadline = time.monotonic() + 240
        while not _answers(server):
            assert not process.has_ended and time.monotonic() < deadline, airflow.log.read_text()[-3000:]
            time.sleep(0.5)
        for dag_id in ("backfill__departures_hourly", "backfill__departures_kafka", "somebody_elses"):
            begun = {"logical_date": None, "dag_run_id": "tab-1"}
            server.get(f"/api/v2/dags/{dag_id}/dagRuns", method="POST", json=begun).raise_for_status()
        build_report(server.store.folder(server.run("departures_hourly", "tab-1", day=2)))
        server.run("departures_kafka", "tab-1", day=3, outcome=outcome("gate_failed"))
        server.run("departures_hourly", "night-1", kind="reconcile", day=4, outcome=outcome("unchanged"))
        server.run("departures_hourly", "early-1", day=1, outcome=None, changes=None)
        yield server
    finally:
        process.stop()


def _answers(server: Server) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(f"{server.url}/api/v2/version", timeout=5).is_success
    return False


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    yield from launched_or_skipped()


@pytest.fixture
def page(server: Server, chromium: Browser) -> Iterator[Page]:
    """A page of Airflow's UI, logged in as admin. At the end nothing must have been said on its console."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said: list[str] = []
    page.goto(f"{server.url}/auth/login")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(server.password("admin"))
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(lambda url: "/auth/" not in url)
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    context.close()
    assert said == []


# Who may see what.


@pytest.mark.parametrize("address", ADDRESSES)
def test_nobody_sees_anything_without_a_login(server: Server, address: str) -> None:
    answer = server.get(address, user=None)
    assert answer.status_code == 401
    for word in ("night-1", "Published", "published", "unchanged", "ada"):
        assert word not in answer.text.partition("</style>")[2]


def test_a_forged_token_opens_nothing(server: Server) -> None:
    head, body, _ = server.token("admin").split(".")
    for token in ("x", f"{head}.{body}.", f"{head}.{body}.AAAA"):
        answer = httpx.get(f"{server.url}/rewindow/api/runs", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code in (401, 403)
        assert httpx.get(f"{server.url}/rewindow/", cookies={"_token": token}).status_code in (401, 403)


def test_the_cookie_of_the_ui_is_a_login(server: Server) -> None:
    answer = httpx.get(f"{server.url}/rewindow/", cookies={"_token": server.token("viewer")}, timeout=60)
    assert answer.status_code == 200
    assert "departures_kafka" in answer.text


def test_a_viewer_sees_the_runs_of_all_dags(server: Server) -> None:
    assert server.ids(user="viewer") == server.ids(user="admin")
    assert {KAFKA, NIGHT} <= set(server.ids(user="viewer"))


def test_a_person_without_access_to_a_dag_learns_nothing_of_its_runs(server: Server) -> None:
    seen = server.ids(user="outsider")
    assert HOURLY in seen
    assert not {KAFKA, NIGHT} & set(seen)
    assert "kafka" not in server.get("/rewindow/", "outsider").text
    for run_id in (KAFKA, NIGHT):
        for address in (f"/rewindow/runs/{run_id}", f"/rewindow/api/runs/{run_id}"):
            denied, unknown = server.get(address, "outsider"), server.get(address + "-not-there", "outsider")
            assert (denied.status_code, denied.text) == (unknown.status_code, unknown.text)
            assert denied.status_code == 404
            assert server.get(address, "admin").status_code == 200
    assert server.get("/rewindow/tab?dag_id=backfill__departures_kafka&run_id=tab-1", "outsider").status_code == 403
    assert server.get("/rewindow/tab?dag_id=backfill__departures_kafka&run_id=tab-1", "admin").status_code == 200


def test_the_run_of_another_dag_does_not_show_under_a_dag_that_may_be_read(server: Server) -> None:
    answer = server.get("/rewindow/tab?dag_id=backfill__departures_hourly&run_id=night-1", "outsider")
    assert answer.status_code == 200
    assert "No report yet" in answer.text
    assert "Nothing to publish" not in answer.text


def test_a_run_of_a_dag_that_airflow_does_not_know_is_shown_to_nobody(server: Server) -> None:
    run_id = server.run("gone", "x")
    assert run_id not in server.ids()
    assert server.get(f"/rewindow/runs/{run_id}").status_code == 404


# What is refused, and how.


@pytest.mark.parametrize(
    "address", [*ADDRESSES, "/rewindow/?page=0", "/rewindow/?from=tomorrow", "/rewindow/nothing", "/rewindow/api/runs/"]
)
@pytest.mark.parametrize("user", ["admin", None])
def test_every_answer_carries_the_headers_that_bind_a_browser(server: Server, address: str, user: str | None) -> None:
    answer = server.get(address, user)
    policy = answer.headers["Content-Security-Policy"]
    for directive in ("default-src 'none'", "frame-ancestors 'self'", "base-uri 'none'", "form-action 'self'"):
        assert directive in policy
    assert "script-src" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "private, no-store"
    assert "location" not in answer.headers
    assert server.get(address, user, method="POST").headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    [
        "..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%2Fetc%2Fpasswd", "//etc/passwd",
        f"{HOURLY}%00", "%00", f"{HOURLY}%2f..%2f{KAFKA}", "a" * 5_000,
        "..%5c..%5c", "%252e%252e", f"{HOURLY}/report.json", "file:%2f%2f%2fetc%2fpasswd", "%c0%ae%c0%ae",
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["/rewindow/runs/", "/rewindow/api/runs/"])
def test_no_path_leaves_the_run_store(server: Server, before: str, path: str) -> None:
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)  # sends paths as they are
    connection.request("GET", before + path, headers={"Authorization": f"Bearer {server.token('admin')}"})
    answer = connection.getresponse()
    body = answer.read().decode()
    assert answer.status in (400, 404), answer.status
    assert "root:" not in body
    assert "Traceback" not in body


def test_an_odd_run_id_in_the_tab_finds_nothing(server: Server) -> None:
    for run_id in ("../../etc/passwd", "a" * 400, "x\x00", "//", "..", "run id with / and ?&="):
        answer = server.get("/rewindow/tab", params={"dag_id": "backfill__departures_hourly", "run_id": run_id})
        assert answer.status_code == 200
        assert "No report yet" in answer.text


def test_a_run_of_a_paused_dag_says_what_it_waits_for_also_when_it_was_marked_as_failed(server: Server) -> None:
    runs = "/api/v2/dags/backfill__departures_hasty/dagRuns"
    tab = "/rewindow/tab?dag_id=backfill__departures_hasty&run_id="
    begun = {"logical_date": None, "dag_run_id": "never"}
    server.get(runs, method="POST", json=begun).raise_for_status()
    assert "when somebody unpauses backfill__departures_hasty" in server.get(f"{tab}never").text
    server.get(f"{runs}/never", method="PATCH", json={"state": "failed"}).raise_for_status()
    assert "when somebody unpauses backfill__departures_hasty" in server.get(f"{tab}never").text
    assert "No report yet" in server.get(f"{tab}another").text


def test_the_way_to_the_login_leads_to_airflow_and_back(server: Server) -> None:
    answer = httpx.get(f"{server.url}/rewindow/runs/a", headers={"Host": "evil.example"}, timeout=60)
    assert 'href="/api/v2/auth/login?next=%2Frewindow%2Fruns%2Fa"' in answer.text
    assert "evil" not in answer.text


# What is listed.


def test_filters_narrow_the_list(server: Server) -> None:
    assert server.ids("&pipeline=departures_kafka") == [KAFKA]
    assert server.ids("&status=unchanged") == [NIGHT]
    assert server.ids("&status=running") == ["departures_hourly-backfill-early-1"]
    assert server.ids("&from=2026-11-02&to=2026-11-03") == [KAFKA, HOURLY]
    assert server.ids("&pipeline=departures_kafka&status=published") == []
    assert server.get("/rewindow/api/runs?from=2026-02-31").status_code == 422


def test_the_list_is_paged_and_its_pages_keep_the_filter(server: Server) -> None:
    first, second = (server.get(f"/rewindow/api/runs?per_page=1&page={n}&status=published").json() for n in (1, 2))
    assert first["pages"] == first["total"] >= 1
    assert second["page"] <= second["pages"]
    for n in range(30):
        server.run("departures_hourly", f"many-{n:02}", day=5, facts=None, gate=None)
    text = server.get("/rewindow/?from=2026-11-05&pipeline=departures_hourly").text
    assert 'rel="next" href="/rewindow/?pipeline=departures_hourly&amp;from=2026-11-05&amp;page=2"' in text
    assert server.get("/rewindow/?from=2026-11-05&page=2").text.count('<tr role="row">') == 1 + 5


def test_the_api_gives_the_report_and_describes_itself(server: Server) -> None:
    report = server.get(f"/rewindow/api/runs/{HOURLY}").json()
    assert report == server.store.folder(HOURLY).read(REPORT)
    described = server.get("/rewindow/openapi.json").json()
    assert {"/api/runs", "/api/runs/{run_id}"} == set(described["paths"])
    assert described["servers"] == [{"url": "/rewindow"}]


# Where a pipeline stands.


def test_a_pipeline_s_page_says_where_it_stands_and_its_address_leads_to_the_last_report(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No run has ended yet" in server.get("/rewindow/pipelines/departures_kafka").text
    run_id = server.run("departures_hourly", "stands-1", day=28, outcome=outcome("published", run_id="stands-1"))
    folder = server.store.folder(run_id)
    folder.write(Request.FILE, request(run_id=run_id, requested_at="2026-11-28T05:00:00+00:00", file="p.yaml"))
    links = "owner: flights@example.com\nlinks: {Runbook: 'https://wiki.example.com/x'}\n"
    folder.write_text("pipeline.yaml", (ROOT / "dags/pipelines/departures_hourly.yaml").read_text() + links)
    monkeypatch.setenv("REWINDOW_RUNS", server.store.url)
    remember(folder)
    text = server.get("/rewindow/pipelines/departures_hourly").text
    for said in (
        "2013-02-08 00:00 to 2013-02-10 00:00 UTC", "<code>0=1000,1=2000,2=3000</code>", "flights@example.com",
        'href="https://wiki.example.com/x"', "rewindow.demo.departures_hourly", "always: published as soon as",
        'href="/dags/reconcile__departures_hourly"', f'href="/rewindow/runs/{run_id}"',
    ):  # fmt: skip
        assert said in text, said
    server.run("departures_hourly", "at-work-1", day=29, outcome=None, changes=None)  # has nothing to report yet
    answer = server.get("/rewindow/last/departures_hourly")
    assert (answer.status_code, answer.headers["location"]) == (302, f"/rewindow/runs/{run_id}")
    answer = httpx.get(f"{server.url}/rewindow/last/departures_hourly", headers={"Host": "evil.example"}, timeout=60)
    assert answer.status_code == 401 and "location" not in answer.headers


def test_a_pipeline_s_page_shows_nothing_of_dags_that_may_not_be_read(server: Server) -> None:
    assert "No run yet" in server.get("/rewindow/last/departures_hasty").text
    for place in ("pipelines", "last"):
        denied = server.get(f"/rewindow/{place}/departures_kafka", "outsider")
        for name in ("no_such_pipeline", "%2e%2e%2f%2e%2e", "Departures", "a" * 5_000, "x%00", "%2Fetc%2Fpasswd"):
            unknown = server.get(f"/rewindow/{place}/{name}")
            assert unknown.status_code == 404, name
            assert "root:" not in unknown.text
        assert denied.status_code == 404
        assert denied.text == server.get(f"/rewindow/{place}/no_such_pipeline").text
    # The last run of all may be one of a DAG that this reader must not see.
    text = server.get("/rewindow/pipelines/departures_hourly", "outsider").text
    assert "backfill__departures_hourly" in text
    assert "reconcile__departures_hourly" not in text and NIGHT not in text


# Reports.


def test_a_run_that_waits_for_approval_has_its_report_before_one_is_stored(server: Server) -> None:
    run_id = server.run("departures_hourly", "waits-1", outcome=outcome("awaiting_approval"))
    text = server.get(f"/rewindow/runs/{run_id}").text
    assert "Waiting for approval" in text
    assert "<svg" in text
    assert server.get(f"/rewindow/api/runs/{run_id}").json()["verdict"]["status"] == "awaiting_approval"
    assert server.store.folder(run_id).read(REPORT) is None, "looking at it writes nothing"


def test_a_run_that_began_again_does_not_show_its_old_report(server: Server) -> None:
    run_id = server.run("departures_hourly", "again-1", facts=None)
    folder = server.store.folder(run_id)
    build_report(folder)
    assert "The run is published" in server.get(f"/rewindow/runs/{run_id}").text
    folder.remove(Outcome.FILE)
    assert "The run is published" not in server.get(f"/rewindow/runs/{run_id}").text
    folder.write(Outcome.FILE, outcome("failed", message="disk full", finished_at="2026-11-09T05:00:00+00:00"))
    assert "disk full" in server.get(f"/rewindow/runs/{run_id}").text


def test_whatever_data_says_it_is_text(server: Server, chromium: Browser) -> None:
    asked = request(
        pipeline=HOSTILE, reason=HOSTILE, requested_by=HOSTILE, dag_id="backfill__departures_hourly",
        dag_run_id=HOSTILE, requested_at="2026-11-20T05:00:00+00:00",
    )  # fmt: skip
    run_id = server.run("departures_hourly", "hostile-1", request=asked, outcome=outcome(HOSTILE, message=HOSTILE))
    try:
        context = chromium.new_context(extra_http_headers={"Authorization": f"Bearer {server.token('admin')}"})
        page = context.new_page()
        asked_for = []
        page.on("dialog", lambda dialog: asked_for.append(dialog.message))
        page.on("console", lambda message: asked_for.append(message.text))
        query = httpx.QueryParams({"pipeline": HOSTILE.replace("\ud800", ""), "status": "<script>alert(3)</script>"})
        for address in ("/rewindow/", f"/rewindow/runs/{run_id}", f"/rewindow/?{query}", "/rewindow/?from=2026-11-20"):
            page.goto(server.url + address)
            assert page.locator("script, img").count() == 0
            text = page.content()
            assert "<script>" not in text
            assert "42049" not in text
        assert page.locator("table bdi", has_text="<script>alert(1)</script>").first.is_visible()
        assert asked_for == []
        context.close()
        assert run_id in server.ids("&from=2026-11-20")
    finally:
        server.store.folder(run_id).remove(Request.FILE)


# In the UI.


def test_the_navigation_leads_to_the_list_and_from_there_to_a_report(server: Server, page: Page) -> None:
    page.goto(server.url)
    page.get_by_role("button", name="Browse").click()
    page.get_by_text("Rewindow reports").click()
    frame = page.frame_locator("iframe[title='Rewindow reports']")
    frame.get_by_role("heading", name="Runs", exact=True).wait_for()
    frame.get_by_label("Pipeline").select_option("departures_kafka")
    frame.get_by_role("button", name="Show").click()
    frame.get_by_role("heading", name="1 run").wait_for()
    frame.get_by_role("link", name="departures_kafka, 2026-11-03 05:00").click()
    frame.get_by_role("heading", name="Stopped by the gate").wait_for()
    assert frame.locator("body > header.top h1").inner_text() == "departures_kafka"
    frame.get_by_role("link", name="All runs").click()
    frame.get_by_role("heading", name="Trends").wait_for()


@pytest.mark.parametrize("place", first_of(["", "/tasks/plan"]))
def test_the_tab_of_a_run_and_of_its_tasks_shows_its_report(server: Server, page: Page, place: str) -> None:
    page.goto(f"{server.url}/dags/backfill__departures_hourly/runs/tab-1{place}")
    page.get_by_role("link", name="Rewindow report").click()
    frame = page.frame_locator("iframe[title='Rewindow report']")
    frame.get_by_role("heading", name="Published, with 1 warning").wait_for()
    assert frame.locator("svg").first.is_visible()


@pytest.mark.long
def test_the_tab_of_somebody_elses_dag_says_so(server: Server, page: Page) -> None:
    page.goto(f"{server.url}/dags/somebody_elses/runs/tab-1")
    page.get_by_role("link", name="Rewindow report").click()
    frame = page.frame_locator("iframe[title='Rewindow report']")
    frame.get_by_role("heading", name="Not a DAG with reports").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_list_fits_a_telephone(server: Server, chromium: Browser, scheme: str) -> None:
    context = chromium.new_context(
        viewport={"width": 390, "height": 844}, color_scheme=scheme,
        extra_http_headers={"Authorization": f"Bearer {server.token('admin')}"},
    )  # fmt: skip
    page = context.new_page()
    page.goto(f"{server.url}/rewindow/")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.get_by_role("row").count() > 1, "rows stay rows for a screen reader"
    context.close()


# Decisions.


def test_a_decision_is_made_from_the_report_and_starts_the_dag_with_its_fields(server: Server, page: Page) -> None:
    page.goto(f"{server.url}/dags/backfill__departures_kafka/runs/tab-1")
    page.get_by_role("link", name="Rewindow report").click()
    frame = page.frame_locator("iframe[title='Rewindow report']")
    frame.get_by_role("link", name="Open its form").click()
    frame.get_by_role("heading", name="Publish or discard").wait_for()
    assert frame.get_by_role("link", name=KAFKA).is_visible()
    assert frame.get_by_role("radio", checked=True).count() == 0, "nothing is chosen for a person"
    frame.get_by_label("Discard it").check()
    frame.get_by_label("Why").fill("the source is wrong <b>")
    frame.get_by_role("button", name="Start").click()
    frame.get_by_role("heading", name="Started").wait_for()
    (begun,) = server.get("/api/v2/dags/decide__departures_kafka/dagRuns").json()["dag_runs"]
    assert begun["conf"] == {"run": KAFKA, "action": "discard", "reason": "the source is wrong <b>"}
    assert begun["triggering_user_name"] == "admin"


def test_only_who_may_start_the_dag_decides_and_only_by_this_form(server: Server) -> None:
    address, before = f"/rewindow/decide/{KAFKA}", "/api/v2/dags/decide__departures_kafka/dagRuns"
    known = len(server.get(before).json()["dag_runs"])
    assert server.get(address, "viewer").status_code == 403
    assert server.get(address, "outsider").status_code == 404
    fields = {"action": "discard", "reason": "no", "token": "0" * 64}
    assert server.get(address, method="POST", data=fields).status_code == 403
    token = re.search(r'name="token" value="([0-9a-f]{64})"', server.get(address).text)
    assert token is not None
    own = fields | {"token": token[1]}
    assert server.get(address, "viewer", method="POST", data=own).status_code == 403
    for wrong in ({"action": "drop table"}, {"reason": " "}, {"reason": "x" * 1001}):
        assert server.get(address, method="POST", data=own | wrong).status_code == 422
    assert "There is nothing to decide" in server.get(f"/rewindow/decide/{HOURLY}").text
    assert server.get(address, method="POST", data=own | {"action": "revert"}).status_code == 422, "it waits"
    assert len(server.get(before).json()["dag_runs"]) == known


@pytest.mark.long
def test_corrections_are_reverted_from_the_report_of_their_run(server: Server, page: Page) -> None:
    delivered = {"destination": "topic t", "value": "complete", "delivered": {"upsert": 3}, "is_delivered": True}
    run_id = server.run("departures_live", "put-right-1", day=5, corrections=delivered)
    page.goto(f"{server.url}/rewindow/runs/{run_id}")
    assert page.get_by_role("link", name="List them").get_attribute("href") == (
        f"/rewindow/looks/departures_live?what=corrections&run={run_id}"
    )
    page.locator("section[aria-labelledby=corrections]").get_by_role("link", name="Open its form").click()
    page.get_by_role("heading", name="Corrections").wait_for()
    assert page.get_by_role("radio").count() == 2 and page.get_by_role("radio", checked=True).count() == 0
    page.get_by_label("Revert its corrections").check()
    page.get_by_label("Why").fill("they were wrong")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("heading", name="Started").wait_for()
    (begun,) = server.get("/api/v2/dags/decide__departures_live/dagRuns").json()["dag_runs"]
    assert begun["conf"] == {"run": run_id, "action": "revert", "reason": "they were wrong"}
    tab = server.get(f"/rewindow/tab?dag_id=decide__departures_live&run_id={quote(begun['dag_run_id'])}")
    assert tab.status_code == 302 and tab.headers["location"] == f"/rewindow/runs/{run_id}"


# Questions.


def test_a_report_leads_to_a_question_whose_answer_is_a_page(server: Server, page: Page) -> None:
    page.goto(f"{server.url}/rewindow/runs/{HOURLY}")
    page.locator("section[aria-labelledby=changes]").get_by_role("link", name="revisions").first.click()
    page.get_by_role("heading", name="Look at departures_hourly").wait_for()
    assert page.get_by_label("The revisions of a window").is_checked()
    start, keys = page.get_by_label("Start of the window").input_value(), page.get_by_label("Keys").input_value()
    assert start.startswith("2013-") and "=" in keys
    page.get_by_label("Keys").fill(f"{keys}\n")
    page.get_by_role("button", name="Look").click()
    page.get_by_role("heading", name="It is being looked up").wait_for()
    (asked,) = server.get("/api/v2/dags/look__departures_hourly/dagRuns").json()["dag_runs"]
    assert asked["conf"] == {"what": "window", "window": start, "keys": keys}
    assert asked["triggering_user_name"] == "admin"
    # No scheduler works here: the answer is written as the task would.
    looks = Looks(server.store, "departures_hourly")
    at = datetime(2026, 11, 6, tzinfo=UTC)
    look = Look(
        question=Question.of(asked["conf"]), dag_run_id=asked["dag_run_id"], asked_by="admin", asked_at=at.isoformat()
    )
    name = looks.name_of(asked["dag_run_id"], at)
    tables = Table(title=HOSTILE, run=HOURLY, columns=("Column", "run_id"), rows=((HOSTILE, HOURLY), (None, None)))
    looks.write(name, look.model_copy(update={"answer": Answer(sentence=f"two {HOSTILE}", tables=(tables,))}))
    page.reload()
    page.get_by_role("link", name="The report of its run").wait_for()
    assert page.get_by_role("cell", name=HOSTILE[:20]).count() == 1 and page.locator("script").count() == 0
    tab = server.get(f"/rewindow/tab?dag_id=look__departures_hourly&run_id={quote(asked['dag_run_id'])}")
    assert tab.status_code == 302
    answer = server.get(tab.headers["location"], "viewer")
    assert answer.status_code == 200 and "Refresh" not in answer.headers
    looks.write(name, look.model_copy(update={"problem": "no run has published it", "hint": "Start one."}))
    assert "no run has published it" in server.get(tab.headers["location"]).text
    assert "The revisions of a window: window" in server.get("/rewindow/looks/departures_hourly").text


def test_only_who_may_start_the_dag_asks_and_what_is_asked_is_checked_first(server: Server) -> None:
    address, begun = "/rewindow/looks/departures_kafka", "/api/v2/dags/look__departures_kafka/dagRuns"
    assert "you need the right to start the DAG" in server.get(address, "viewer").text
    for odd in ("/rewindow/looks/no_such", "/rewindow/looks/..%2f..", f"{address}/no-such-run"):
        assert server.get(odd).status_code == 404
    assert server.get(address, "outsider").status_code == 404
    token = re.search(r'name="token" value="([0-9a-f]{64})"', server.get(address).text)
    assert token is not None
    own = {"what": "doctor", "token": token[1]}
    assert server.get(address, method="POST", data=own | {"token": "0" * 64}).status_code == 403
    assert server.get(address, "viewer", method="POST", data=own).status_code == 403
    for wrong in (
        {"what": "drop table"}, {"what": "window"}, {"what": "late", "keys": "x"}, {"what": "late", "run": "a b"},
    ):  # fmt: skip
        answer = server.get(address, method="POST", data=own | wrong)
        assert answer.status_code == 422 and "the form" not in answer.text
    assert server.get(begun).json()["dag_runs"] == []
    assert server.get(address, method="POST", data=own | {"run": "ignored here"}).status_code == 303
    assert [run["conf"] for run in server.get(begun).json()["dag_runs"]] == [{"what": "doctor"}]


def test_the_page_of_a_run_at_work_says_so_and_loads_itself_again(server: Server) -> None:
    run_id = server.run("departures_hourly", "early-2", day=1, outcome=None, changes=None)
    answer = server.get(f"/rewindow/runs/{run_id}")
    assert "The run is at work since 2026-11-01 05:00:00 UTC" in answer.text and answer.headers["Refresh"] == "20"
    assert "The run ended" not in answer.text
    assert "Refresh" not in server.get(f"/rewindow/runs/{HOURLY}").headers
