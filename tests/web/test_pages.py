"""The links that a report gets where Airflow's server shows it. No server."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from spark_jobs.report.build import build_report
from spark_jobs.runs.life.store import PAGE
from spark_jobs.web.pages import with_links, with_run_links
from spark_jobs.web.summary import read_run
from tests.report.documents import changes, outcome, written


def test_a_report_leads_to_its_run_to_its_approval_and_to_the_run_before(tmp_path: Path) -> None:
    changed = changes() | {"run_before": "departures_hourly-reconcile-night+0"}
    folder = written(tmp_path, outcome=outcome("awaiting_approval"), changes=changed)
    build_report(folder)
    page, run = folder.read_text(PAGE), read_run(folder)
    assert page and run
    assert 'href="../departures_hourly-reconcile-night%2B0/report.html"' in page  # beside the file itself
    shown = with_run_links(page, "/rewindow/")
    assert 'href="/rewindow/runs/departures_hourly-reconcile-night%2B0"' in shown and "report.html" not in shown
    run = replace(run, dag_id="reconcile__departures_hourly", dag_run_id="manual__2026-11-25T10:00:00+00:00")
    place = "/air/dags/reconcile__departures_hourly/runs/manual__2026-11-25T10%3A00%3A00%2B00%3A00"
    shown = with_links(page, "/r/", "/air", run)
    assert re.findall(r'<li><a href="([^"#]+)">([^<]+)</a></li>', shown) == [
        ("/r/", "All runs"),
        (place, "This run in Airflow"),
        (f"{place}/tasks/approve/required_actions", "Answer the approval"),
    ]
    assert "target=" not in shown, "out of the frame of Airflow's tab no link leads"
    from_terminal = with_links(page, "/r/", "/air", replace(run, dag_id=None, status="published"))
    assert "in Airflow" not in from_terminal and "All runs" in from_terminal
