"""Backfills and nights on a real Airflow: database, scheduler, API server, executor; triggered as the UI does.

All runs start side by side in one Airflow, so that its slots are never empty; each test waits for the runs it is about.
"""

# pyright: reportOptionalSubscript=false

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import psutil
import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.demo.airflow import Airflow, DagRun, waits_for_approval
from spark_jobs.demo.supervised import becomes_true
from spark_jobs.runs.life.documents import Application, Approval, Gate, Outcome
from spark_jobs.runs.life.status import Stage
from spark_jobs.runs.life.store import PAGE, REPORT, RunStore
from spark_jobs.runs.planning.looks import Looks
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.web.summary import read_run
from tests.orchestration.project import SPACING, SPARK_CONF, START, day, definition, folder_of, make_project, rows

CLOSED = {
    "name": "closed",
    "expectations": [
        {
            "type": "expect_column_max_to_be_between", "kwargs": {"column": "n", "max_value": 1},
            "severity": "critical", "meta": {"data": "windows"},
        }
    ],
}  # fmt: skip
PIPELINES = {"plain": "always", "halves": "always", "closed": "always", "reviewed": "on_approval", "nights": "always"}
NIGHTS = "reconcile__nights"
PATIENCE = 1500
"""How long a run may take, in seconds: each shares two slots with all the others."""

pytestmark = pytest.mark.timeout(2 * PATIENCE)

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

FOLLOWER = """
from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, task

changed = PartitionedAssetTimetable(assets=Asset("rewindow.airflow.reviewed__periods"))
with DAG("follow__reviewed", schedule=changed, catchup=False, is_paused_upon_creation=False):

    @task
    def refresh(dag_run=None):
        print("refresh", dag_run.partition_key)

    refresh()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, rewindow_home: Path) -> Path:
    """A project folder of its own: DAG files, a plugin, pipelines, expectations, four days of records."""
    root = make_project(tmp_path_factory.mktemp("airflow") / "project", PIPELINES, days=4)
    (root / "expectations/closed.json").write_text(json.dumps(CLOSED))
    (root / "plugins").mkdir()
    (root / "plugins/to_file.py").write_text(NOTIFIER)
    (root / "dags/follower.py").write_text(FOLLOWER)
    reviewed = root / "dags/pipelines/reviewed.yaml"
    reviewed.write_text(reviewed.read_text().replace("size: 1 h", "size: 2 h"))  # a period is a day
    return root


@pytest.fixture(scope="module")
def airflow(project: Path, rewindow_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Airflow]:
    text = "{{ rewindow.event }} | {{ rewindow.run_id }} | {{ rewindow.message }} | {{ rewindow.report }}"
    notifier = {"class": "to_file.ToFile", "arguments": {"path": str(project / "notes.txt"), "text": text}}
    environ = {
        "REWINDOW_DRIVER_MEMORY": "512m", "REWINDOW_SPARK_CONF": SPARK_CONF,
        "REWINDOW_EXPECTATIONS": str(project / "expectations"), "REWINDOW_POOL": "replays",
        "REWINDOW_SPARK_IDLE_MINUTES": "5", "XDG_RUNTIME_DIR": str(tmp_path_factory.mktemp("run")),
        "REWINDOW_NOTIFIERS": json.dumps([notifier | {"on": ["refused", "gate_failed", "approval"]}]),
    }  # fmt: skip
    transport = {"type": "file", "log_file_path": str(project / "lineage")}
    environ["AIRFLOW__OPENLINEAGE__TRANSPORT"] = json.dumps(transport)
    spark = {"conn_type": "spark", "host": "local[1]"}
    folder = tmp_path_factory.mktemp("airflow")
    with Airflow(folder, project=project, slots=2, spark=spark, environ=environ) as service:
        service.post("/pools", {"name": "replays", "slots": 2})
        for name in PIPELINES:
            service.unpause(f"backfill__{name}")
        yield service


@dataclass(frozen=True, slots=True)
class Runs:
    """What runs side by side."""

    killed: DagRun
    """Of `plain`, in two chunks; the application of one of them is killed."""
    closed: DagRun
    approved: DagRun
    nights: list[DagRun]
    """Of Airflow's own backfill, the earliest first."""


@pytest.fixture(scope="module")
def runs(airflow: Airflow) -> Runs:
    killed = airflow.trigger("backfill__plain", {"to": day(4), "chunks": 2, "reason": "a test"})
    closed = airflow.trigger("backfill__closed", {"to": day(1), "reason": "a test"})
    approved = airflow.trigger("backfill__reviewed", {"to": day(1), "reason": "a test"})
    backfill_nights(airflow, day(2), day(3), run_backwards=False, reprocess_behavior="none")
    # Airflow starts nothing of a paused DAG. Unpaused first, the latest night would run before the others.
    airflow.unpause(NIGHTS)
    found = airflow.get(f"/dags/{NIGHTS}/dagRuns?limit=50")["dag_runs"]
    nights = [DagRun(NIGHTS, run_id) for run_id in sorted(run["dag_run_id"] for run in found)]
    kill_one_replay(killed)
    return Runs(killed, closed, approved, nights)


def backfill_nights(airflow: Airflow, start: str, end: str, **options: Any) -> int:
    """Start a backfill of Airflow itself over the nights that end from `start` to `end`; its id."""
    body = {"dag_id": NIGHTS, "from_date": start, "to_date": end, "max_active_runs": 1, "dag_run_conf": {}}
    return airflow.post("/backfills", body | options)["id"]


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


def notes(project: Path, run: DagRun) -> list[list[str]]:
    """What the notifiers wrote about a run: event, message, path of its report."""
    lines = (project / "notes.txt").read_text().splitlines()
    written = [line.split(" | ") for line in lines]
    return [[event, message, report] for event, run_id, message, report in written if run_id == folder_of(run).run_id]


def lineage(project: Path, run: DagRun, task: str) -> dict[str, Any]:
    """The event with which OpenLineage says that a task has completed."""
    events = [json.loads(file.read_text()) for file in project.glob("lineage-*.json")]
    (event,) = (
        event for event in events
        if event["job"]["name"] == f"{run.dag_id}.{task}" and event["eventType"] == "COMPLETE"
        and event["run"]["facets"].get("rewindow", {}).get("runId") == folder_of(run).run_id
    )  # fmt: skip
    return event


def kill_one_replay(run: DagRun) -> None:
    """Kill the first application that replays a chunk of the run; its JVM ends with it, whoever had started it."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if "submit/main.py" in line and "--stage replay" in line and folder_of(run).run_id in line:
                with suppress(psutil.Error):
                    process.kill()
                    return
        time.sleep(0.5)
    pytest.fail("no chunk was replayed")


@pytest.mark.long
def test_a_form_that_makes_no_sense_is_refused_in_its_first_try(airflow: Airflow, project: Path) -> None:
    run = airflow.trigger("backfill__plain", {"from": "the day before yesterday", "reason": "a test"})
    assert airflow.wait(run, PATIENCE) == "failed"
    plan = next(task for task in airflow.tasks(run) if task["task_id"] == "plan")
    assert plan["state"] == "failed"
    assert plan["try_number"] == 1  # a second try would be refused as well
    log = airflow.task_log(run, "plan").splitlines()
    outcome = folder_of(run).read(Outcome.FILE)
    assert outcome["message"].startswith("From: ")
    sentence = f"{outcome['message']} ({outcome['where']}). {outcome['hint']}"
    places = [number for number, line in enumerate(log) if line == sentence]
    # Before the traceback, which the page shows open, and behind it, where only OpenLineage says something too.
    assert places[0] < log.index("Task failed with exception") < log.index("::group::Post Execute") < places[1]
    listed = read_run(folder_of(run))
    assert listed is not None and (listed.status, listed.message) == ("failed", outcome["message"])
    assert outcome["message"] in html.unescape(folder_of(run).read_text(PAGE) or "")
    assert states(airflow, run)["report"] == {"failed"}  # the report is written, and the DAG run is as red as it
    assert {task["pool"] for task in airflow.tasks(run)} == {"replays", "default_pool"}  # Spark's, and the others
    [[event, message, report]] = notes(project, run)
    assert event == "refused" and "From: " in message
    assert unquote(report).endswith(f"/rewindow/runs/{folder_of(run).run_id}")


def test_a_backfill_whose_task_is_killed_ends_in_the_right_tables(
    airflow: Airflow, project: Path, spark: SparkSession, runs: Runs, undisturbed
) -> None:
    run = runs.killed
    assert airflow.wait(run, PATIENCE) == "success", airflow.failures(run)
    assert states(airflow, run) == {
        "plan": {"success"}, "timeline": {"success"}, "replay": {"success"}, "verify": {"success"},
        "approve": {"skipped"}, "publish": {"success"}, "report": {"success"},
    }  # fmt: skip
    chunks = {task["map_index"]: task for task in airflow.tasks(run) if task["task_id"] == "replay"}
    assert len(chunks) == 2
    assert max(task["try_number"] for task in chunks.values()) > 1  # the killed one
    labels = sorted(task["rendered_map_index"] for task in chunks.values())
    assert labels[0].startswith(f"1: {START - timedelta(hours=5):%Y-%m-%dT%H:%M:%SZ} to 20")
    assert [label[0] for label in labels] == ["1", "2"]
    log = airflow.task_log(run, "replay", attempt=chunks[1]["try_number"], map_index=1)
    assert "windows has taken " in log
    assert "publish has ended: the run is published: " in airflow.task_log(run, "publish")
    assert rows(spark, "plain") == undisturbed

    folder = folder_of(run)
    outcome = folder.read(Outcome.FILE)
    assert outcome["status"] == "published"
    assert len(outcome["applications"]) >= 5  # plan, timeline, two chunks, verify; publish adds itself at its end
    assert folder.read(Gate.FILE)["verdict"] in ("passed", "warned")
    assert folder.read_bytes(PAGE)
    ledger = spark.table("rewindow.airflow.runs").where(f"run_id = '{folder.run_id}'").collect()[0]
    assert (ledger["status"], ledger["reason"], ledger["kind"]) == ("published", "a test", "backfill")
    assert ledger["windows"] == len(undisturbed) > 100
    events = airflow.get("/assets/events?limit=100")["asset_events"]
    extra = next(event["extra"] for event in events if event["source_run_id"] == run.run_id)
    assert extra["run_id"] == folder.run_id
    assert extra["changes"] == {"inserted": ledger["windows"]}
    assert extra["from"] == f"{min(row[1] for row in undisturbed):%Y-%m-%dT%H:%M:%SZ}"
    assert extra["from"] < extra["to"] <= day(4)

    event = lineage(project, run, "publish")
    assert [(one["namespace"], one["name"]) for one in event["inputs"]] == [("file", str(project / "data"))]
    tables = [one["facets"]["symlinks"]["identifiers"][0]["name"] for one in event["outputs"]]
    assert tables == ["airflow.plain", "airflow.plain__late", "airflow.plain__quarantine"]
    assert Path(event["outputs"][0]["name"], "metadata").is_dir()  # the table's folder
    plan, facet = folder.read(Plan.FILE), event["run"]["facets"]["rewindow"]
    assert facet["asOf"] == {str(p["partition"]): p["end_offset"] for p in plan["partitions"]}
    assert (facet["end"], facet["definitionHash"]) == (day(4), plan["definition_hash"])
    assert facet["changes"] == {"inserted": ledger["windows"]}


@pytest.mark.long
def test_two_backfills_of_one_table_at_once_end_in_the_right_tables(
    airflow: Airflow, spark: SparkSession, undisturbed
) -> None:
    halves = [airflow.trigger("backfill__halves", {end: day(2), "reason": "a test"}) for end in ("to", "from")]
    for half in halves:
        assert airflow.wait(half, PATIENCE) == "success", airflow.failures(half)
    assert rows(spark, "halves") == undisturbed


@pytest.mark.long
def test_a_published_run_that_is_cleared_publishes_nothing_a_second_time(
    airflow: Airflow, spark: SparkSession, runs: Runs
) -> None:
    run = runs.killed
    assert airflow.wait(run, PATIENCE) == "success", airflow.failures(run)
    before = spark.sql("SELECT count(*) FROM rewindow.airflow.plain.snapshots").collect()[0][0]
    cleared = {"task_ids": ["publish"], "include_downstream": True}
    whole = {"dry_run": False, "dag_run_id": run.run_id, "only_failed": False, "reset_dag_runs": True}
    airflow.post(f"/dags/{run.dag_id}/clearTaskInstances", whole | cleared)
    assert airflow.wait(run, PATIENCE) == "success"
    assert spark.sql("SELECT count(*) FROM rewindow.airflow.plain.snapshots").collect()[0][0] == before


def test_a_closed_gate_fails_the_run_publishes_nothing_and_leaves_its_report(
    airflow: Airflow, project: Path, spark: SparkSession, runs: Runs
) -> None:
    run = runs.closed
    assert airflow.wait(run, PATIENCE) == "failed"
    found = states(airflow, run)
    assert (found["verify"], found["publish"], found["report"]) == ({"failed"}, {"upstream_failed"}, {"failed"})
    assert "the gate is closed: 1 critical" in airflow.task_log(run, "verify")
    [[event, message, _]] = notes(project, run)
    assert event == "gate_failed" and "the gate is closed: 1 critical" in message
    assert rows(spark, "closed") == []
    folder = folder_of(run)
    assert folder.read(Outcome.FILE)["status"] == "gate_failed"
    assert folder.read_bytes(PAGE)
    assert spark.catalog.tableExists(
        folder.read(Outcome.FILE)["tables"]["staging"]
    )  # to look at, to publish all the same


@pytest.mark.long
def test_what_a_closed_gate_keeps_back_a_person_publishes_or_discards_by_a_form_and_maintenance_goes_on(
    airflow: Airflow, spark: SparkSession, runs: Runs
) -> None:
    unwanted_run = airflow.trigger("backfill__closed", {"from": day(3), "reason": "a test"})
    assert airflow.wait(runs.closed, PATIENCE) == "failed"
    folder = folder_of(runs.closed)
    airflow.unpause("decide__closed")
    decided = airflow.trigger(
        "decide__closed", {"run": folder.run_id, "action": "publish", "reason": "the data are right"}
    )
    assert airflow.wait(decided, PATIENCE) == "success", airflow.failures(decided)
    ledger = spark.table("rewindow.airflow.runs").where(f"run_id = '{folder.run_id}'").collect()[0]
    assert (ledger["status"], ledger["reason"], ledger["person"]) == ("published", "the data are right", "admin")
    assert len(rows(spark, "closed")) == ledger["windows"] > 0
    too_late = airflow.trigger("decide__closed", {"run": folder.run_id, "action": "discard", "reason": "a test"})
    assert airflow.wait(too_late, PATIENCE) == "failed"
    assert "the run is published: `discard` is not possible any more" in airflow.task_log(too_late, "decide")
    # Another one is discarded by the same form: nothing of it stays but its report.
    unwanted = folder_of(unwanted_run)
    assert airflow.wait(unwanted_run, PATIENCE) == "failed"
    staged = unwanted.read(Outcome.FILE)["tables"]["staging"]
    assert spark.catalog.tableExists(staged)
    form = {"run": unwanted.run_id, "action": "discard", "reason": "it was a mistake"}
    discarded = airflow.trigger("decide__closed", form)
    assert airflow.wait(discarded, PATIENCE) == "success", airflow.failures(discarded)
    assert unwanted.read(Outcome.FILE)["status"] == "rejected" and unwanted.read_bytes(PAGE)
    assert not spark.catalog.tableExists(staged)
    airflow.unpause("maintain__closed")
    odd = airflow.trigger("maintain__closed", {"keep_snapshots": "a while"})
    assert airflow.wait(odd, PATIENCE) == "failed"
    assert "Keep snapshots: " in airflow.task_log(odd, "maintain")
    maintained = airflow.scheduled("maintain__closed")  # its schedule starts it: that of the last Sunday
    assert airflow.wait(maintained, PATIENCE) == "success", airflow.failures(maintained)
    assert len(rows(spark, "closed")) == ledger["windows"]


@pytest.mark.long
def test_a_question_of_a_form_is_answered_in_its_document(airflow: Airflow) -> None:
    question = airflow.trigger("look__plain", {"what": "doctor"})  # nobody has unpaused it
    assert airflow.wait(question, PATIENCE) == "success", airflow.failures(question)
    looks = Looks(RunStore.configured(), "plain")
    look = looks.read(looks.found(question.run_id) or "")
    assert look is not None and look.answer is not None and look.asked_by == "admin"
    assert look.answer.is_well and "history" in {row[0] for row in look.answer.tables[0].rows}
    assert f"/rewindow/looks/plain/{quote(question.run_id, safe='')}" in airflow.task_log(question, "look")


def await_approval(airflow: Airflow, project: Path, run: DagRun) -> None:
    airflow.wait(run, PATIENCE, until=waits_for_approval)
    assert states(airflow, run)["approve"] <= {"awaiting_input", "deferred"}
    assert [event for event, *_ in notes(project, run)] == ["approval"]


def test_a_person_approves_a_restatement(airflow: Airflow, project: Path, spark: SparkSession, runs: Runs) -> None:
    yes = runs.approved
    await_approval(airflow, project, yes)
    assert rows(spark, "reviewed") == [] if spark.catalog.tableExists("rewindow.airflow.reviewed") else True
    question = airflow.question(yes, "approve")
    assert "| inserted |" in question
    assert "/rewindow/runs/" in question
    airflow.answer(yes, "approve", "Approve")
    assert airflow.wait(yes, PATIENCE) == "success"
    assert states(airflow, yes)["publish"] == {"success"}
    published = {row[1] for row in rows(spark, "reviewed")}
    assert published
    assert max(published).replace(tzinfo=UTC) < START + timedelta(days=1)

    def followed() -> dict[str, str]:
        found = airflow.get("/dags/follow__reviewed/dagRuns?limit=50")["dag_runs"]
        return {run["partition_key"]: run["state"] for run in found}

    days = {f"{start:%Y-%m-%dT00:00:00}" for start in published}
    assert becomes_true(lambda: followed() == dict.fromkeys(days, "success"), within=PATIENCE, every=1), followed()


@pytest.mark.long
@pytest.mark.parametrize(("action", "ends"), [("discard", "skipped"), ("publish", "success")])
def test_a_run_that_is_decided_while_it_waits_goes_on_by_itself(
    airflow: Airflow, project: Path, action: str, ends: str
) -> None:
    # What is published here is not asked about again: the days from the third on are the next test's.
    waiting = airflow.trigger("backfill__reviewed", {"from": day(2), "to": day(3), "reason": "a test"})
    airflow.wait(waiting, PATIENCE, until=waits_for_approval)
    form = {"run": folder_of(waiting).run_id, "action": action, "reason": "it was agreed"}
    assert airflow.wait(airflow.trigger("decide__reviewed", form), PATIENCE) == "success"
    assert airflow.wait(waiting, PATIENCE) == "success", "a person's answer is no failure"
    found = states(airflow, waiting)
    assert (found["approve"], found["publish"], found["report"]) == ({"skipped"}, {ends}, {ends})
    assert folder_of(waiting).read(Outcome.FILE)["status"] == {"skipped": "rejected", "success": "published"}[ends]
    assert folder_of(waiting).read_bytes(PAGE)


@pytest.mark.long
def test_a_person_rejects_a_restatement(airflow: Airflow, project: Path, spark: SparkSession) -> None:
    no = airflow.trigger("backfill__reviewed", {"from": day(3), "reason": "a test"})
    await_approval(airflow, project, no)
    airflow.answer(no, "approve", "Reject", comment="not before the audit")
    assert airflow.wait(no, PATIENCE) == "success", "a person's answer is no failure"
    assert (states(airflow, no)["publish"], states(airflow, no)["report"]) == ({"skipped"}, {"skipped"})
    answer = folder_of(no).read(Approval.FILE)
    assert (answer["decision"], answer["comment"]) == ("rejected", "not before the audit")
    assert folder_of(no).read(Outcome.FILE)["status"] == "rejected"
    assert "rejected by" in folder_of(no).read(Outcome.FILE)["message"]
    assert not spark.catalog.tableExists(folder_of(no).read(Outcome.FILE)["tables"]["staging"])


def test_a_run_whose_task_a_person_marks_as_failed_is_failed_and_its_report_says_so(airflow: Airflow) -> None:
    run = airflow.trigger("backfill__plain", {"from": day(3), "reason": "a test"})
    folder, begun = folder_of(run), Application.file_of(Stage.PLAN)
    assert becomes_true(lambda: folder.read(begun) is not None, within=PATIENCE, every=0.2)
    airflow.patch(f"/dags/{run.dag_id}/dagRuns/{run.run_id}/taskInstances/plan", {"new_state": "failed"})
    assert airflow.wait(run, PATIENCE) == "failed"
    assert states(airflow, run)["report"] == {"failed"}
    assert "ended by hand, or killed in `plan`" in (folder.read(REPORT) or {})["verdict"]["sentence"]
    assert (listed := read_run(folder)) is not None and listed.status == "failed"


@pytest.mark.long
def test_a_run_that_a_person_marks_as_failed_before_its_first_task_has_a_report(airflow: Airflow) -> None:
    run = airflow.trigger("backfill__plain", {"from": day(3), "reason": "a test"})
    airflow.patch(f"/dags/{run.dag_id}/dagRuns/{run.run_id}", {"state": "failed"})
    folder = folder_of(run)
    assert becomes_true(lambda: folder.read(REPORT) is not None, within=PATIENCE, every=0.5), states(airflow, run)
    assert airflow.wait(run, PATIENCE) == "failed"
    assert folder.read(Application.file_of(Stage.PLAN)) is None, "no task of it has begun"
    assert "could not start" in (folder.read(REPORT) or {})["verdict"]["sentence"]
    listed = read_run(folder)
    assert listed is not None and (listed.status, listed.requested_by) == ("failed", "admin")
    tab = airflow.request("GET", f"/rewindow/tab?{urlencode({'dag_id': run.dag_id, 'run_id': run.run_id})}")
    assert tab.status_code == 200 and "could not start" in tab.text


def test_a_native_backfill_of_two_nights_ends_where_one_full_run_does(
    airflow: Airflow, spark: SparkSession, runs: Runs, undisturbed
) -> None:
    assert len(runs.nights) == 2
    for number, run in enumerate(runs.nights, start=3):
        assert airflow.wait(run, PATIENCE) == "success", airflow.failures(run)
        plan = folder_of(run).read(Plan.FILE)
        end = START + timedelta(days=number)
        last = end - timedelta(milliseconds=SPACING)  # what arrived before the night's end
        assert plan["processing_time_end"] == last.timestamp() * 1000
        assert folder_of(run).read(Outcome.FILE)["status"] == "published"
    assert rows(spark, "nights") == undisturbed


@pytest.mark.long
def test_a_night_that_is_older_than_what_is_published_compares_only_and_nights_again_change_nothing(
    airflow: Airflow, spark: SparkSession, runs: Runs, undisturbed
) -> None:
    for run in runs.nights:
        assert airflow.wait(run, PATIENCE) == "success", airflow.failures(run)
    old = airflow.trigger(NIGHTS, {"until": day(2)})
    assert airflow.wait(old, PATIENCE) == "success"
    assert folder_of(old).read(Outcome.FILE)["status"] == "compared_only"
    assert states(airflow, old)["publish"] == {"skipped"}
    assert rows(spark, "nights") == undisturbed

    # Once more both, the later one first: what is published stays.
    again = backfill_nights(airflow, day(2), day(3), run_backwards=True, reprocess_behavior="completed")
    deadline = time.monotonic() + PATIENCE
    while airflow.get(f"/backfills/{again}")["completed_at"] is None and time.monotonic() < deadline:
        time.sleep(1)
    for run in runs.nights:
        assert airflow.state(run) == "success", airflow.failures(run)
        assert [task["try_number"] for task in airflow.tasks(run) if task["task_id"] == "reconcile"] == [2]
    assert rows(spark, "nights") == undisturbed
