"""What a run says of itself, everywhere: page, JSON, list, command line, approval, documents and tables agree."""

from __future__ import annotations

import html
import json
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from spark_jobs.cli.options import console
from spark_jobs.cli.output import print_result
from spark_jobs.definition import load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.change import VISIBLE
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.orchestration.describe import approval_body, escaped
from spark_jobs.orchestration.operators import what_became
from spark_jobs.quality.configured import NO_FOLDER, gate_of
from spark_jobs.report.build import build_report
from spark_jobs.report.facts import gather
from spark_jobs.runs.life.documents import Changes, Gate, Outcome, Request
from spark_jobs.runs.life.reopening import discard_staged
from spark_jobs.runs.life.status import RunKind, RunStatus
from spark_jobs.runs.life.store import PAGE, REPORT, RunFolder, RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.figures import bookkeeping_in_words, changes_in_words
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.runs.work.unmet import unmet_in_words
from spark_jobs.web.pages import rendered
from spark_jobs.web.summary import Run, read_run
from tests.runs.small_nights import CASES, log_of, pipeline
from tests.runs.small_runs import write
from tests.sampling import sample

CASE = next(iter(CASES))
HARDLY_ANY_DROPPED = {
    "type": "expect_column_values_to_be_between", "kwargs": {"column": "run_dropped_share", "max_value": 0.001},
    "severity": "critical", "description": "Hardly any record is dropped", "meta": {"name": "hardly-any-dropped"},
}  # fmt: skip


@dataclass(frozen=True)
class Account:
    """One run, as each place tells it."""

    folder: RunFolder
    status: RunStatus
    changes: Changes
    report: dict[str, Any]
    page: str
    listed: Run
    printed: str
    result: RunResult


def account_of(result: RunResult, kind: RunKind, defined) -> Account:
    """The run's report, its place in the list, and what the command line prints."""
    folder = RunStore.configured().folder(result.run_id)
    Request.of(result.run_id, defined, kind, "why", datetime.now(UTC)).write(folder)
    build_report(folder)
    outcome, changes, listed = Outcome.read(folder), Changes.read(folder), read_run(folder)
    text = folder.read_text(PAGE)
    assert outcome and changes and listed and text
    with console.capture() as captured:
        print_result(result, status=outcome.status)
    plain = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
    printed = " ".join(captured.get().replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())
    return Account(folder, outcome.status, changes, folder.read(REPORT) or {}, plain, listed, printed, result)


ENDS = {
    "first": RunStatus.PUBLISHED, "night": RunStatus.PUBLISHED, "waiting": RunStatus.AWAITING_APPROVAL,
    "stopped": RunStatus.GATE_FAILED, "dry": RunStatus.DRY_RUN, "compared": RunStatus.COMPARED_ONLY,
    "rejected": RunStatus.REJECTED, "sessions": RunStatus.PUBLISHED,
}  # fmt: skip
KINDS = sample(tuple(ENDS)[:4], tuple(ENDS))


@pytest.fixture(scope="module")
def runs(spark, tmp_path_factory) -> dict[str, Account]:
    """A first run, a night after it, a night of sessions; of another definition all other ends."""
    folder = tmp_path_factory.mktemp("agree")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "width", 250)
        records = [record | {"k": record["k"] or "c"} for record in log_of(31, count=240)]
        defined = pipeline(folder, "agreeing", CASE)
        found = {}
        for name, batch in (("first", records[:120]), ("night", records[120:])):
            write(folder / "data", batch, f"{name}.json")
            end = EndPolicy(collector=gather if name == "night" else None, unchecked=NO_FOLDER)
            found[name] = account_of(
                reconcile(spark, defined, NoProgress(), end_policy=end), RunKind.RECONCILE, defined
            )
        path = folder / "agreeing.yaml"
        path.write_text(path.read_text().replace("total: sum(v)", "total: sum(v) + 1"))
        other = load_pipeline(path)
        suites = folder / "expectations"
        shutil.copytree(Path(__file__).parents[2] / "expectations", suites)
        own = {"name": "agreeing", "meta": {"data": "reconciliation"}, "expectations": [HARDLY_ANY_DROPPED]}
        (suites / "agreeing.json").write_text(json.dumps(own))
        patch.setenv("REWINDOW_EXPECTATIONS", str(suites))
        ends = {
            "dry": EndPolicy(ends_as=RunStatus.DRY_RUN),
            "compared": EndPolicy(ends_as=RunStatus.COMPARED_ONLY),
            "waiting": EndPolicy(policy=Policy.ON_APPROVAL),
            "stopped": EndPolicy(gate=gate_of(other)),
            "rejected": EndPolicy(policy=Policy.ON_APPROVAL),
        }
        plan = make_plan(spark, other)
        for name, end in ends.items():
            if name not in KINDS:
                continue
            result = execute(spark, other, plan, NoProgress(), end_policy=end)
            if name == "rejected":
                discard_staged(lambda _: spark, result.run_id, NoProgress(), "rejected by ann", RunStatus.REJECTED)
            found[name] = account_of(result, RunKind.BACKFILL, other)
        text = path.read_text().replace("name: agreeing", "name: sessions").replace(f"{folder}/data", f"{folder}/more")
        path = folder / "sessions.yaml"
        path.write_text(text.replace("{type: tumbling, size: 1 min}", "{type: session, gap: 4 s}"))
        sessions = load_pipeline(path)
        for number, batch in enumerate((records[:120], records[120:]) if "sessions" in KINDS else ()):
            write(folder / "more", batch, f"{number}.json")
            result = reconcile(spark, sessions, NoProgress())
            found["sessions"] = account_of(result, RunKind.RECONCILE, sessions)
    return found


def test_these_are_different_kinds_of_runs(runs) -> None:
    assert {kind: run.status for kind, run in runs.items()} == {kind: ENDS[kind] for kind in KINDS}
    if "sessions" in runs:
        counts = runs["sessions"].changes.counts
        assert counts["inserted"] and (counts.get("retracted") or counts.get("outgrown"))
    night = runs["night"].changes.counts
    assert night["inserted"] and night["updated"] and night["bookkeeping"]


@pytest.mark.parametrize("kind", KINDS)
def test_changed_windows_are_the_same_everywhere(runs, kind) -> None:
    run = runs[kind]
    counts, words = run.changes.counts, changes_in_words(run.changes.counts)
    assert run.result.changes == counts
    assert {name: n for name, n in (run.listed.changed or {}).items() if n} == counts
    assert {name: n for name, n in run.report["changes"]["counts"].items() if n} == counts
    assert run.report["changes"]["changed"] == run.changes.changed == sum(counts.get(c, 0) for c in VISIBLE)
    assert sum(run.changes.causes.values()) == run.changes.changed
    assert words in run.page and words in run.printed and words in run.report["verdict"]["sentence"]
    logged = what_became(Outcome.read(run.folder))  # the last line of an Airflow task
    assert words in logged if run.status.is_published else words not in logged
    if kind in ("first", "night", "waiting"):  # the others are not decided by what changes
        restated = run.changes.restated
        assert restated is not None and restated.windows == counts.get("updated", 0) + counts.get("retracted", 0)
        assert run.result.decision is not None
        assert (restated.where if restated.windows else "no published number changes") in run.result.decision.why
        assert run.report["verdict"]["restated"] == restated.in_words()
    row, _ = rendered("runs.html.j2", **_list_of(run.listed))
    assert words in row and ("would change" in row) == (not run.status.is_published)
    bookkeeping = bookkeeping_in_words(counts.get("bookkeeping", 0), would=not run.status.is_published)
    assert bookkeeping in run.page and bookkeeping in run.printed
    would = "Numbers that would be restated" in run.page
    assert would == ("would change" in run.printed) == (not run.status.is_published) == (not run.listed.is_published)
    if facts := run.folder.read("facts.json"):
        assert facts["changes"]["counts"] == {c: counts[c] for c in sorted(VISIBLE) if c in counts}
        assert facts["changes"]["causes"] == run.changes.causes
        assert max(c["windows"] for c in facts["changes"]["columns"]) <= counts["updated"]
        columns = {c["name"]: c for c in facts["changes"]["columns"]}
        assert columns["n"]["total"] is not None and columns["total"]["least"] is not None
        assert columns["top"]["total"] is None, "a sum of maxima means nothing"
        late = columns["top"]["from_null"]  # windows of which all records were late get a first value
        assert columns["top"]["windows"] > late >= 0 and columns["n"]["to_null"] == 0


def _list_of(run: Run) -> dict[str, Any]:
    from spark_jobs.web.runs import Page, Wanted

    return {
        "home": "/", "run_url": str, "page": Page([run], 1, 1, 1), "wanted": Wanted(), "query": {}, "any_run": True,
        "longest": 30, "trends": [], "more_trends": 0, "pipelines": [], "statuses": [], "page_url": str,
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_late_figures_are_the_same_everywhere(runs, kind) -> None:
    run = runs[kind]
    shown = run.report["changes"]
    for name in ("windows", "pairs_on_time", "pairs_late", "pairs_dropped", "records_late"):
        assert shown[name] == getattr(run.changes, name) == getattr(run.result.counts, name)
    assert shown["late_share"] == run.listed.late_share
    assert shown["match_share"] == run.listed.match_share
    assert "Computed" in shown["in_words"]
    for text in shown["in_words"].values():
        assert text in run.page and text in run.printed
    if run.report["late"]:
        assert run.report["late"]["records"] == run.changes.records_late


def test_the_tables_hold_what_the_published_runs_say(spark, runs) -> None:
    first, night = runs["first"], runs["night"]
    tables = first.result.tables
    revisions = PublishedTable(spark, tables.windows).revisions()
    for run in (first, night):
        own = revisions.where(F.col("run_id") == run.result.run_id)
        counts = run.changes.counts
        assert own.count() == sum(counts.values())
        assert own.where("cause = 'retraction'").count() == counts.get("retracted", 0) + counts.get("outgrown", 0)
        assert own.where("revision = 1").count() == counts["inserted"]
        assert spark.table(tables.late).where(F.col("run_id") == run.result.run_id).count() == run.changes.records_late
        row = Ledger(spark, Tables.of(load_pipeline_of(run))).row(run.result.run_id)
        assert row is not None and row["changes"] == counts and row["pairs_dropped"] == run.changes.pairs_dropped
    sums = revisions.where(F.col("run_id") == first.result.run_id).agg(*map(F.sum, _COUNTS)).collect()[0]
    assert tuple(sums) == (first.changes.pairs_on_time, first.changes.pairs_late, first.changes.pairs_dropped)


_COUNTS = ("records_on_time", "records_late", "records_dropped")


def load_pipeline_of(run: Account):
    from spark_jobs.runs.life.reopening import pipeline_of

    return pipeline_of(run.folder) if run.folder.read_text("pipeline.yaml") else _from_request(run)


def _from_request(run: Account):
    request = Request.required(run.folder)
    assert request.file is not None
    return load_pipeline(request.file)


def test_a_night_knows_the_run_before_and_counts_the_offsets_that_it_read(runs) -> None:
    night, plan = runs["night"], runs["night"].folder.read("plan.json") or {}
    assert night.report["links"]["run_before"] == runs["first"].result.run_id
    assert [e.run_id for e in night.changes.earlier] == [runs["first"].result.run_id]
    if plan:
        assert all(p["end_offset"] - p["first_offset"] == p["records"] for p in plan["partitions"])
        assert plan["history_records"] == 240
    assert NO_FOLDER in night.page


def test_a_closed_gate_names_the_expectation_with_what_was_observed_and_allowed(runs) -> None:
    run, gate = runs["stopped"], Gate.read(runs["stopped"].folder)
    assert gate is not None
    (failed,) = gate.critical_failures
    assert failed.unexpected_count is None and failed.observed == run.report["changes"]["dropped_share"]
    words = unmet_in_words(failed)
    assert re.fullmatch(r"Hardly any record is dropped \(observed [\d.]+ %, allowed at most 0\.1 %\)", words)
    assert run.result.decision is not None and words in run.result.decision.why
    assert words in run.listed.message and words in run.report["verdict"]["sentence"] and words in run.page


def test_a_run_that_failed_gives_one_reason_everywhere_and_no_figures(spark, runs) -> None:
    text = (load_pipeline_of(runs["first"]).text or "").replace("max(v)", "sum(9223372036854775807)")
    broken = load_pipeline("agreeing.yaml", text=text)
    reason = "aggregate `top`: sum(9223372036854775807) overflows in the window "
    with pytest.raises(HistoryError, match=re.escape(reason)) as raised:
        execute(spark, broken, make_plan(spark, broken), NoProgress(), run_id="broken")
    folder = RunStore.configured().folder("broken")
    Request.of("broken", broken, RunKind.BACKFILL, "why", datetime.now(UTC)).write(folder)
    build_report(folder)
    outcome, listed, page, report = Outcome.read(folder), read_run(folder), folder.read_text(PAGE), folder.read(REPORT)
    assert outcome and listed and page and report
    assert outcome.status == listed.status == RunStatus.FAILED
    ledger = Ledger(spark, Tables.of(broken)).row("broken")
    assert ledger is not None and ledger["status"] == "failed"
    row, _ = rendered("runs.html.j2", **_list_of(listed))
    for place in (str(raised.value), listed.message, row, what_became(outcome), report["verdict"]["sentence"], page):
        assert reason.replace("`", "") in html.unescape(place).replace("`", "")
    assert Changes.read(folder) is None and report["changes"] is None and listed.changed is None
    assert "would change" not in row and "Numbers that" not in page and "Windows that" not in page


def test_an_approval_is_asked_for_with_the_same_figures(runs) -> None:
    run = runs["waiting"]
    body = approval_body(run.folder)
    for change in VISIBLE:
        assert f"| {change.value.replace('_', ' ')} | {run.changes.counts.get(change, 0):,} |" in body
    assert run.changes.restated is not None and escaped(run.changes.restated.in_words()) in body
