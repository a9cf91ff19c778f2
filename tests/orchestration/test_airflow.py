"""Backfills and nights on a real Airflow: database, scheduler, API server, executor; triggered as the UI does."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import psutil
import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.devtools.services.airflow import Airflow, DagRun
from spark_jobs.runs.backfill import execute
from spark_jobs.runs.plan import make_plan
from spark_jobs.runs.progress import NoProgress
from spark_jobs.runs.store import APPROVAL, GATE, OUTCOME, PAGE, PLAN
from tests.orchestration.project import SPACING, START, day, definition, folder_of, make_project, rows

pytestmark = pytest.mark.long

CLOSED = {
    "name": "closed",
    "expectations": [
        {
            "type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "max_value": 1},
            "severity": "critical", "meta": {"data": "windows"},
        }
    ],
}  # fmt: skip
PIPELINES = {
    "plain": "always", "closed": "always", "asked": "on_approval", "killed": "always", "nights": "always",
    "rivals": "always",
}  # fmt: skip

NOTIFIER = """
from pathlib import Path

from airflow.sdk import BaseNotifier


class ToFile(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, path, text):
        super().__init__()
        self.path, self.text = path, text

    def notify(self, context):
        with Path(self.path).open("a") as file:
            file.write(self.text + "\\n")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, rewindow_home: Path) -> Path:
    """A project folder of its own: DAG files, plugins, pipelines, expectations, four days of records."""
    root = make_project(tmp_path_factory.mktemp("airflow") / "project", PIPELINES, days=4)
    (root / "expectations/closed.json").write_text(json.dumps(CLOSED))
    (root / "plugins/to_file.py").write_text(NOTIFIER)
    return root


@pytest.fixture(scope="module")
def airflow(project: Path, rewindow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    text = "{{ rewindow.event }} | {{ rewindow.run_id }} | {{ rewindow.message }} | {{ rewindow.report }}"
    notifier = {"class": "to_file.ToFile", "arguments": {"path": str(project / "notes.txt"), "text": text}}
    environ = {
        "REWINDOW_DRIVER_MEMORY": "512m", "REWINDOW_SPARK_CONF": "spark.ui.enabled=false",
        "REWINDOW_EXPECTATIONS": str(project / "expectations"), "REWINDOW_POOL": "replays",
        "REWINDOW_NOTIFIERS": json.dumps([notifier | {"on": ["refused", "gate_failed", "approval"]}]),
    }  # fmt: skip
    spark = {"conn_type": "spark", "host": "local[1]"}
    folder = tmp_path_factory.mktemp("airflow")
    with Airflow(folder, project=project, slots=2, spark=spark, environ=environ) as service:
        service.post("/pools", {"name": "replays", "slots": 2})
        for name in PIPELINES:
            service.unpause(f"backfill__{name}")
        yield service


@pytest.fixture(scope="module")
def undisturbed(project: Path, spark: SparkSession) -> list[tuple]:
    """The windows of one run over all records, in this process."""
    file = project / "undisturbed.yaml"
    file.write_text(definition("undisturbed", "always").replace("data/*.json", str(project / "data/*.json")))
    defined = load_pipeline(file)
    execute(spark, defined, make_plan(spark, defined), NoProgress())
    return rows(spark, "undisturbed")


def states(airflow: Airflow, run: DagRun) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for task in airflow.tasks(run):
        found.setdefault(task["task_id"], set()).add(task["state"])
    return found


def waits(tasks: list[dict[str, Any]]) -> bool:
    return any(task["task_id"] == "approve" and task["state"] in ("awaiting_input", "deferred") for task in tasks)


def notes(project: Path, run: DagRun) -> list[list[str]]:
    """What the notifiers were told of a run: event, message, path of its report."""
    lines = (project / "notes.txt").read_text().splitlines()
    told = [line.split(" | ") for line in lines]
    return [[event, message, report] for event, run_id, message, report in told if run_id == folder_of(run).run_id]


def kill_one_replay(run: DagRun) -> None:
    """Kill the JVM of the first Spark application that replays a chunk of the run."""
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if "SparkSubmit" in line and "--stage replay" in line and folder_of(run).run_id in line:
                with suppress(psutil.Error):
                    process.kill()
                    return
        time.sleep(0.5)
    pytest.fail("no chunk was replayed")


@pytest.mark.timeout(1500)
def test_a_backfill_of_four_chunks_is_published_and_tells_of_itself(
    airflow: Airflow, project: Path, spark: SparkSession
) -> None:
    run = airflow.trigger("backfill__plain", {"chunks": 4, "reason": "a test"})
    refused = airflow.trigger("backfill__plain", {"from": "the day before yesterday"})
    assert airflow.wait(refused, 300) == "failed"
    plan = next(task for task in airflow.tasks(refused) if task["task_id"] == "plan")
    assert plan["state"] == "failed"
    assert plan["try_number"] == 1  # nothing that a second try would mend
    assert "From: " in airflow.task_log(refused, "plan")
    assert states(airflow, refused)["report"] == {"success"}
    assert {task["pool"] for task in airflow.tasks(refused)} == {"replays", "default_pool"}  # Spark's, and the others
    [[event, message, report]] = notes(project, refused)
    assert event == "refused" and "From: " in message
    assert unquote(report).endswith(f"/rewindow/runs/{folder_of(refused).run_id}")

    assert airflow.wait(run, 900) == "success"
    assert states(airflow, run) == {
        "plan": {"success"}, "timeline": {"success"}, "replay": {"success"}, "verify": {"success"},
        "approve": {"skipped"}, "publish": {"success"}, "report": {"success"},
    }  # fmt: skip
    chunks = [task for task in airflow.tasks(run) if task["task_id"] == "replay"]
    assert len(chunks) == 4
    labels = sorted(task["rendered_map_index"] for task in chunks)
    assert labels[0].startswith(f"1: {START - timedelta(hours=5):%Y-%m-%dT%H:%M:%SZ} to 20")
    assert [label[0] for label in labels] == ["1", "2", "3", "4"]
    assert '"stage": "windows"' in airflow.task_log(run, "replay", map_index=2)

    folder = folder_of(run)
    outcome = folder.read(OUTCOME)
    assert outcome["status"] == "published"
    assert len(outcome["applications"]) >= 7  # plan, timeline, four chunks, verify (publish tells of itself at its end)
    assert folder.read(GATE)["verdict"] in ("passed", "warned")
    assert folder.read_bytes(PAGE)
    ledger = spark.table("rewindow.airflow.runs").where(f"run_id = '{folder.run_id}'").collect()[0]
    assert (ledger["status"], ledger["reason"], ledger["kind"]) == ("published", "a test", "backfill")
    assert ledger["windows"] == len(rows(spark, "plain")) > 200
    events = airflow.get("/assets/events?limit=10")["asset_events"]
    extra = next(event["extra"] for event in events if event["source_run_id"] == run.run_id)
    assert extra["run_id"] == folder.run_id
    assert extra["changes"] == {"inserted": ledger["windows"]}

    # Cleared, it publishes nothing a second time.
    before = spark.sql("SELECT count(*) FROM rewindow.airflow.plain.snapshots").collect()[0][0]
    airflow.clear(run, ["publish"], downstream=True)
    assert airflow.wait(run, 300) == "success"
    assert spark.sql("SELECT count(*) FROM rewindow.airflow.plain.snapshots").collect()[0][0] == before


@pytest.mark.timeout(900)
def test_a_closed_gate_fails_the_run_publishes_nothing_and_leaves_its_report(
    airflow: Airflow, project: Path, spark
) -> None:
    run = airflow.trigger("backfill__closed")
    assert airflow.wait(run, 600) == "failed"
    found = states(airflow, run)
    assert (found["verify"], found["publish"], found["report"]) == ({"failed"}, {"upstream_failed"}, {"success"})
    assert "the gate is closed: 1 critical" in airflow.task_log(run, "verify")
    [[event, message, _]] = notes(project, run)
    assert event == "gate_failed" and "the gate is closed: 1 critical" in message
    assert rows(spark, "closed") == []
    folder = folder_of(run)
    assert folder.read(OUTCOME)["status"] == "gate_failed"
    assert folder.read_bytes(PAGE)
    assert spark.catalog.tableExists(folder.read(OUTCOME)["tables"]["staging"])  # to look at, to publish all the same


@pytest.mark.timeout(1200)
def test_a_person_approves_one_restatement_and_refuses_another(
    airflow: Airflow, project: Path, spark: SparkSession
) -> None:
    yes = airflow.trigger("backfill__asked", {"to": day(1)})
    no = airflow.trigger("backfill__asked", {"from": day(2)})
    for run in (yes, no):
        airflow.wait(run, 600, until=waits)
        assert states(airflow, run)["approve"] <= {"awaiting_input", "deferred"}
        assert [event for event, *_ in notes(project, run)] == ["approval"]
    assert rows(spark, "asked") == [] if spark.catalog.tableExists("rewindow.airflow.asked") else True
    detail = airflow.get(f"/dags/{yes.dag_id}/dagRuns/{yes.run_id}/taskInstances/approve/-1/hitlDetails")
    assert "| inserted |" in detail["body"]
    assert "/rewindow/runs/" in detail["body"]
    # A busy scheduler may not have read yet that the executor is done with the pausing task; one that goes on before
    # then, it takes for failed ("finished with state success, but the task instance's state attribute is running").
    time.sleep(20)
    airflow.answer(yes, "approve", "Approve")
    airflow.answer(no, "approve", "Reject")
    assert airflow.wait(yes, 300) == "success"
    assert airflow.wait(no, 300) == "success"
    assert states(airflow, yes)["publish"] == {"success"}
    assert states(airflow, no)["publish"] == {"skipped"}
    assert folder_of(no).read(APPROVAL)["decision"] == "rejected"
    assert folder_of(no).read(OUTCOME)["status"] == "rejected"
    assert "rejected by" in folder_of(no).read(OUTCOME)["message"]
    assert not spark.catalog.tableExists(folder_of(no).read(OUTCOME)["tables"]["staging"])
    published = {row[1] for row in rows(spark, "asked")}
    assert published
    assert max(published).replace(tzinfo=UTC) < START + timedelta(days=1)


@pytest.mark.timeout(1200)
def test_a_killed_task_is_repeated_and_the_tables_come_out_right(
    airflow: Airflow, spark: SparkSession, undisturbed
) -> None:
    run = airflow.trigger("backfill__killed", {"chunks": 2})
    kill_one_replay(run)
    assert airflow.wait(run, 900) == "success", airflow.failures(run)
    assert max(task["try_number"] for task in airflow.tasks(run) if task["task_id"] == "replay") > 1
    assert rows(spark, "killed") == undisturbed


@pytest.mark.timeout(1500)
def test_two_backfills_at_once_over_one_table_end_as_one_after_the_other(
    airflow: Airflow, spark: SparkSession, undisturbed
) -> None:
    first = airflow.trigger("backfill__rivals", {"to": day(2)})
    second = airflow.trigger("backfill__rivals", {"from": day(2)})
    assert airflow.wait(first, 900) == "success"
    assert airflow.wait(second, 900) == "success"
    assert rows(spark, "rivals") == undisturbed


@pytest.mark.timeout(1500)
def test_a_native_backfill_of_three_nights_ends_where_one_full_run_does(
    airflow: Airflow, spark: SparkSession, undisturbed
) -> None:
    dag_id = "reconcile__nights"
    airflow.post(
        "/backfills",
        {
            "dag_id": dag_id, "from_date": day(1), "to_date": day(3), "run_backwards": False,
            "reprocess_behavior": "none", "max_active_runs": 1, "dag_run_conf": {},
        },
    )  # fmt: skip
    # Airflow starts nothing of a paused DAG. Unpaused first, the latest night would run before the others.
    airflow.unpause(dag_id)
    runs = [DagRun(dag_id, run["dag_run_id"]) for run in airflow.get(f"/dags/{dag_id}/dagRuns?limit=50")["dag_runs"]]
    assert len(runs) == 3
    for number, run in enumerate(sorted(runs, key=lambda run: run.run_id), start=2):
        assert airflow.wait(run, 600) == "success", airflow.failures(run)
        plan = folder_of(run).read(PLAN)
        end = START + timedelta(days=number)
        last = end - timedelta(milliseconds=SPACING)  # what arrived before the night's end
        assert plan["processing_time_end"] == last.timestamp() * 1000
        assert folder_of(run).read(OUTCOME)["status"] == "published"
    assert rows(spark, "nights") == undisturbed

    # A night that is older than what is published compares only.
    old = airflow.trigger(dag_id, {"until": day(2)})
    assert airflow.wait(old, 300) == "success"
    assert folder_of(old).read(OUTCOME)["status"] == "compared_only"
    assert states(airflow, old)["publish"] == {"skipped"}
    assert rows(spark, "nights") == undisturbed

    # Once more from the latest night back, all that have ended: what is published stays.
    asked = {"reprocess_behavior": "completed", "run_backwards": True, "max_active_runs": 1, "dag_run_conf": {}}
    again = airflow.post("/backfills", {"dag_id": dag_id, "from_date": day(1), "to_date": day(3), **asked})
    deadline = time.monotonic() + 900
    while airflow.get(f"/backfills/{again['id']}")["completed_at"] is None and time.monotonic() < deadline:
        time.sleep(2)
    for run in runs:
        assert airflow.state(run) == "success", airflow.failures(run)
        assert [task["try_number"] for task in airflow.tasks(run) if task["task_id"] == "reconcile"] == [2]
    assert rows(spark, "nights") == undisturbed
