"""The report as data: verdicts, advice, JUnit XML, words. No browser, no Spark."""

# pyright: reportArgumentType=false
# pyright: reportAssignmentType=false
# pyright: reportOperatorIssue=false
# pyright: reportOptionalIterable=false
# pyright: reportOptionalMemberAccess=false
from __future__ import annotations

import html
import re
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from spark_jobs.cli.app import app
from spark_jobs.errors import DefinitionError
from spark_jobs.formatting import difference, length, moment, percent, plain
from spark_jobs.report.assembled import advise, report_of
from spark_jobs.report.build import build_report
from spark_jobs.report.counted import Advisor
from spark_jobs.report.documents import Documents
from spark_jobs.report.junit import junit_xml
from spark_jobs.report.page import render
from spark_jobs.runs.life.store import REPORT
from tests.report.documents import (
    HOUR,
    MINUTE,
    RESULT,
    T0,
    changes,
    facts,
    gate,
    outcome,
    plan,
    request,
    verdicts,
    written,
)

FAILING = [
    RESULT | {"success": False, "observed": 61, "unexpected_count": 3},
    RESULT | {"success": False, "severity": "warning", "suite": "input"},
    RESULT | {"success": False, "severity": "critical", "error": "column flights is gone"},
    RESULT,
]


WINDOW_PAGE = "looks/departures_hourly?what=window&window=2013-02-08T18%3A00%3A00Z&keys=carrier%3DUA"


def report(folder, **documents):
    return report_of(Documents.of(written(folder, **documents)))


def reported(folder, **documents):
    return report(folder, **documents).to_dict()


@pytest.mark.parametrize(
    ("status", "level", "words"),
    [
        ("published", "note", "is published in rewindow.demo.departures_hourly"),
        ("unchanged", "note", "no window changes"),
        ("awaiting_approval", "waiting", "Nothing is published yet. Publishing would change"),
        ("staged", "waiting", "Nothing is published yet. Publishing would change"),
        ("gate_failed", "bad", "nothing is published"),
        ("rejected", "note", "A person said no (ada)"),
        ("dry_run", "note", "A real run would change"),
        ("compared_only", "note", "published nothing"),
        ("discarded", "note", "A person discarded the run (ada)"),
        ("failed", "bad", "The run failed: the disk is full"),
        ("something_new", "waiting", "ended with the status something_new"),
    ],
)
def test_each_status_has_a_verdict(tmp_path, status, level, words) -> None:
    report = reported(
        tmp_path, outcome=outcome(status, message="the disk is full"), approval={"decision": "rejected", "by": "ada"}
    )
    assert report["verdict"]["level"] == level
    assert words in report["verdict"]["sentence"]
    assert report["verdict"]["next"]


def test_a_failure_says_where_it_happened_and_how_to_fix_it(tmp_path) -> None:
    failed = outcome("failed", message="the log went back", where="partition 3", stage="plan", hint="Restore the log.")
    verdict = reported(tmp_path, outcome=failed, facts=None, changes=None, verdicts=None)["verdict"]
    assert verdict["sentence"] == "The run failed in the stage plan: the log went back (partition 3)"
    assert verdict["next"][0]["text"] == "Restore the log."


@pytest.mark.parametrize(
    ("status", "in_airflow", "in_terminal"),
    [
        ("awaiting_approval", "answer the task `approve`", "rewindow publish night-1 --reason"),
        (
            "gate_failed",
            "trigger the DAG `decide__departures_hourly` with the run `night-1`",
            "rewindow publish night-1",
        ),
        ("staged", "The task `publish` follows", "rewindow publish night-1"),
        ("dry_run", "trigger the DAG with the same form", "run the same without --dry-run"),
        ("failed", "Then clear the failed task", "Then run again"),
        (None, "the page loads itself again", "build this page again: rewindow report night-1"),
    ],
)
def test_the_next_steps_are_those_of_the_readers_own_way(tmp_path, status, in_airflow, in_terminal) -> None:
    for dag_id, own, other in (("d", in_airflow, in_terminal), (None, in_terminal, in_airflow)):
        said = outcome(status) if status else None
        found = reported(tmp_path, outcome=said, request=request(dag_id=dag_id), gate=gate(FAILING))
        steps = " ".join(f"{step['text']} {step['command'] or ''}" for step in found["verdict"]["next"])
        assert own in steps and other not in steps


def test_the_late_rows_are_a_query_to_copy(tmp_path) -> None:
    table = "rewindow.demo.departures_hourly__late"
    query = f"SELECT * FROM {table} WHERE run_id = 'night-1' ORDER BY missed_by DESC"
    assert reported(tmp_path)["links"]["late_rows"] == f'rewindow sql "{query}"'
    assert reported(tmp_path, outcome=outcome("dry_run"))["links"]["late_rows"] is None  # they are in no table


def test_shares_are_of_new_records(tmp_path) -> None:
    new = facts()
    new["late"]["basis"] = 433
    night = page_of(tmp_path / "a", request(kind="reconcile"), new)
    assert "those of the 433 records that came since the run before" in night
    whole = page_of(tmp_path / "b", request(kind="backfill"), facts())
    assert "9.7 %" in whole and "6,000 records that this page looked at" in whole


def page_of(folder, asked, found) -> str:
    run = written(folder, request=asked, facts=found, changes=changes(), outcome=outcome("published"), plan=plan())
    return re.sub(r"\s+", " ", render(report_of(Documents.of(run)), None))


def test_stages_and_applications_stand_in_their_order(tmp_path) -> None:
    documents = {
        f"application-{stage}": {"stage": stage, "chunk": None, "application_id": f"app-{stage}", "seconds": 1.5}
        for stage in ("verify", "plan", "publish", "timeline")
    }
    documents["application-replay-0002"] = {"stage": "replay", "chunk": 2, "application_id": "b", "seconds": None}
    documents["application-replay-0001"] = {"stage": "replay", "chunk": 1, "application_id": "a", "seconds": 2.5}
    found = reported(tmp_path, **documents)["plan"]["applications"]
    assert [(a["stage"], a["chunk"]) for a in found] == [
        ("plan", None), ("timeline", None), ("replay", 1), ("replay", 2), ("verify", None), ("publish", None),
    ]  # fmt: skip


def test_all_is_well_without_warnings(tmp_path) -> None:
    verdict = reported(tmp_path, gate=gate([RESULT]), outcome=outcome("unchanged"), verdicts=None)["verdict"]
    assert (verdict["level"], verdict["title"]) == ("good", "Nothing to publish")
    assert verdict["next"] == [{"text": "There is nothing to do.", "command": None, "page": None, "label": None}]


def test_a_report_is_a_function_of_its_documents(tmp_path) -> None:
    run = written(tmp_path)
    build_report(run)
    first = {name: run.read_bytes(name) for name in run.documents()}
    build_report(run)
    assert {name: run.read_bytes(name) for name in run.documents()} == first
    assert set(run.read(REPORT)) == {
        "account", "quarantine",
        "format", "run", "verdict", "approval", "changes", "watermark", "late", "live", "corrections", "expectations",
        "advisor", "plan", "normal", "unchecked", "decision", "links", "damaged",
    }  # fmt: skip


def test_the_worst_expectation_comes_first(tmp_path) -> None:
    found = reported(tmp_path, gate=gate(FAILING))["expectations"]
    assert [(r["success"], r["severity"]) for r in found["results"]] == [
        (False, "critical"), (False, "critical"), (False, "warning"), (True, "critical"),
    ]  # fmt: skip
    assert found["failed"] == {"critical": 2, "warning": 1, "info": 0}
    assert found["met"] == 1


def test_the_live_job_is_judged_in_sentences(tmp_path) -> None:
    live = reported(tmp_path)["live"]
    assert [one["verdict"] for one in live["verdicts"]] == [
        "match",
        "late_arrivals",
        "mismatch",
        "missing",
        "not_closed",
    ]
    assert (live["different"], live["different_share"]) == (5, 5 / 750)
    assert live["verdicts"][2]["labels"] == {"unexplained": 2, "equals_complete": 1}
    assert all(one["sentence"].endswith(".") for one in live["verdicts"])
    assert any("12 windows" in sentence for sentence in live["certainty"])
    assert live["next"][-1].startswith("All windows that are not `match` are in the table rewindow.demo.departures")
    suites = {suite.get("name"): suite for suite in ET.fromstring(junit_xml(report(tmp_path)))}
    cases = {case.get("name"): case for case in suites["live job"]}
    assert cases["mismatch"].find("skipped") is not None and cases["match"].find("skipped") is None
    assert cases["until the upgrade"].find("skipped").get("message") == "450 windows: 447 match, 3 mismatch"
    assert reported(tmp_path / "none", verdicts=None)["live"] is None
    failed = reported(tmp_path / "failed", verdicts=verdicts(problem="the emitted windows cannot be read", windows=0))
    assert failed["live"]["problem"] and failed["live"]["different_share"] is None


def advisor(**changed) -> Advisor:
    return Advisor.model_validate(facts()["advisor"] | changed)


def test_the_advisor_names_the_smallest_tolerance_that_is_enough() -> None:
    advice = advise(advisor())
    assert advice.now.closed == 197
    settings = {r.on_time: r.setting for r in advice.recommended}
    assert settings[0.99].tolerance == HOUR  # 58 of 6,000 late; 60 may be
    assert settings[0.99].allowed_lateness == 30 * MINUTE
    assert settings[0.99].refires == 197 - 58
    assert settings[0.9999].tolerance == 4 * HOUR


def test_the_advisor_says_when_less_would_do_and_when_nothing_does() -> None:
    given = advisor(records=1_000_000)
    setting = advise(given).recommended[1].setting
    assert (setting.tolerance, setting.allowed_lateness) == (0, None)
    never = advisor(records=1_000_000, tolerances=[t.to_dict() | {"closed": 500_000} for t in given.tolerances])
    assert [r.setting for r in advise(never).recommended] == [None, None, None]
    assert advise(advisor(lateness=None)).now is None
    assert advise(None) is None


def test_junit_has_a_case_for_the_outcome_and_for_each_expectation(tmp_path) -> None:
    xml = ET.fromstring(junit_xml(report(tmp_path, gate=gate(FAILING), outcome=outcome("gate_failed"), verdicts=None)))
    assert (xml.get("tests"), xml.get("failures"), xml.get("errors"), xml.get("skipped")) == ("5", "2", "1", "1")
    assert [suite.get("name") for suite in xml] == ["run", "windows", "input"]
    failure = xml.find("testsuite[@name='windows']/testcase/failure")
    assert failure.get("message") == 'critical: observed 61, expected {"max_value": 60, "min_value": 1}'


BY_DAY = RESULT | {
    "success": False, "observed": 3, "unexpected_count": 3, "days": 5, "days_failed": 2,
    "failed_days": [
        {"day": "2013-02-08", "observed": 2, "checked": 400, "unexpected_count": 2, "unexpected_percent": 0.5},
        {"day": "2013-02-09", "observed": 1, "checked": 400, "unexpected_count": 1, "unexpected_percent": 0.25},
    ],
}  # fmt: skip


def test_a_bad_day_has_a_case_of_its_own_and_a_row_of_the_page(tmp_path) -> None:
    run = report(tmp_path, gate=gate([BY_DAY]))
    cases = {case.get("name"): case for case in ET.fromstring(junit_xml(run)).findall("testsuite[@name='windows']/*")}
    name = "1. Between 1 and 60 flights a window (flights), "
    assert list(cases) == [f"{name}2013-02-08", f"{name}2013-02-09", f"{name}other days"]
    failures = [case.find("failure") is not None for case in cases.values()]
    assert failures == [True, True, False]
    assert "observed 2, expected" in cases[f"{name}2013-02-08"].find("failure").get("message")
    assert "observed 3 days, each as expected" in cases[f"{name}other days"].find("system-out").text
    page = render(run, None)
    assert "2 of 5 days: 2013-02-08: 2 of 400 rows are unexpected; 2013-02-09: 1 of 400 rows is unexpected" in page
    assert '<th scope="row">2013-02-09</th>' in page


def test_a_partition_of_a_union_has_its_inputs_name(tmp_path) -> None:
    of = [{"name": "orders"}, {"name": "returns"}]
    counted, second = facts(), 10_002
    counted["late"]["by_partition"][1]["partition"] = second
    counted["late"]["latest"][1]["partition"] = second
    counted["watermark"]["idle"] = {"count": 1, "longest": [[second, T0, T0 + HOUR]]}
    planned = plan()
    planned["partitions"][2]["partition"] = second
    first = {"reason": "returns: wrong", "records": 1, "partition": second, "offset": 5, "arrival": None, "value": ""}
    run = report(
        tmp_path, facts=counted, plan=planned, quarantine={"records": 1, "reasons": [first]},
        request=request(definition={"name": "departures_hourly", "history": {"kind": "union", "of": of}}),
    )  # fmt: skip
    page = re.sub(r"<[^>]+>", " ", render(run, None))
    assert page.count("2 of returns") == 5 and "0 of orders" in page
    assert "partition  2 of returns , offset 5" in page
    assert run.links.late_rows.startswith(
        "rewindow sql \"SELECT elt(partition div 10000 + 1, 'orders', 'returns') AS input, "
        "partition % 10000 AS input_partition, * FROM "
    )
    plain_page = render(report(tmp_path / "alone", facts=counted, plan=planned), None)
    assert "of returns" not in plain_page and ">10,002<" in plain_page


def test_junit_survives_what_xml_has_no_character_for(tmp_path) -> None:
    odd = RESULT | {"success": False, "observed": "a\x00\x1b\ud800<&>", "description": "x\x0by"}
    ET.fromstring(junit_xml(report(tmp_path, gate=gate([odd]))))


@pytest.mark.parametrize(
    ("status", "tag"), [("published", None), ("failed", "failure"), ("awaiting_approval", "skipped")]
)
def test_junit_says_how_the_run_ended(tmp_path, status, tag) -> None:
    xml = ET.fromstring(junit_xml(report(tmp_path, outcome=outcome(status))))
    case = xml.find("testsuite[@name='run']/testcase")
    assert [child.tag for child in case if child.tag != "system-out"] == ([tag] if tag else [])


def test_the_command_builds_the_report_and_says_where_it_is(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("REWINDOW_RUNS", str(tmp_path / "runs"))
    written(tmp_path / "runs")
    result = CliRunner().invoke(app, ["report", "night-1", "--junit", str(tmp_path / "junit.xml")])
    assert result.exit_code == 0
    assert "Published, with 1 warning, but the live job differs: The run is published" in result.output
    assert str(tmp_path / "runs" / "night-1" / "report.html") in result.output
    assert ET.parse(tmp_path / "junit.xml").getroot().get("tests") == "10"
    with pytest.raises(DefinitionError, match=r"there is no run 'night-2'.*night-1"):
        CliRunner().invoke(app, ["report", "night-2"], catch_exceptions=False)


def test_words() -> None:
    assert [length(ms) for ms in (0, 250, 1_500, 61_000, 5_400_000, 90_000_000, -60_000)] == [
        "0 s", "250 ms", "1.5 s", "1 min 1 s", "1 h 30 min", "1 d 1 h", "\N{MINUS SIGN}1 min",
    ]  # fmt: skip
    assert [percent(n, 100_000) for n in (0, 1, 94_028, 99_999, 100_000)] == [
        "0 %", "0.001 %", "94.0 %", "99.999 %", "100 %",
    ]  # fmt: skip
    assert percent(1, 0) == "\N{EN DASH}"
    assert moment(T0) == "2013-02-08 00:00"
    assert moment(10**17) == "100000000000000000 ms"
    assert plain(float("nan")) == "nan" and plain(12_345) == "12,345" and plain(True) == "true"
    assert difference(3, 1) == "\N{MINUS SIGN}2" and difference(1, float("inf")) == "" and difference("a", 2) == ""


def test_the_report_of_a_run_of_airflow_has_no_terminal_command_and_leads_to_the_form(tmp_path) -> None:
    for status in ("published", "gate_failed", "awaiting_approval", "failed"):
        found = report_of(
            Documents.of(
                written(tmp_path, status, request=request(run_id=status, dag_id="backfill__x"), outcome=outcome(status))
            )
        ).to_dict()
        steps = found["verdict"]["next"]
        assert all(step["command"] is None for step in steps), status
        assert not any("rewindow " in step["text"] for step in steps), status
        assert found["links"]["late_rows"] is None
        forms = [step["page"] for step in steps if (step["page"] or "").startswith("decide/")]
        assert forms == ([f"decide/{status}"] if status in ("gate_failed", "awaiting_approval") else [])


def test_a_page_of_airflow_drafts_no_suite_in_a_terminal(tmp_path) -> None:
    nothing = {"gate": None, "changes": changes(unchecked="there is no folder")}
    for dag_id in ("d", None):
        page = render(report(tmp_path / str(dag_id), request=request(dag_id=dag_id), **nothing), None)
        assert "No expectation was checked: there is no folder" in html.unescape(page)
        assert ("rewindow expectations new" in page) == (dag_id is None)


@pytest.mark.parametrize("ended", [True, False])
def test_a_run_that_was_refused_or_has_just_begun_has_no_empty_parts(tmp_path, ended: bool) -> None:
    nothing = dict.fromkeys(("changes", "facts", "gate", "verdicts", "plan", "chunk-0001", "chunk-0002"))
    refused = outcome("failed", message="From: `x` is not a time", where="the form", stage="plan")
    run = report(tmp_path, outcome=refused if ended else None, request=request(dag_id="d"), **nothing)
    page = render(run, None)
    assert ("From: `x` is not a time" if ended else "At work") in html.unescape(page) and 'href="#plan"' in page
    for part in ("changes", "watermark", "late", "expectations", "advisor"):
        assert f'id="{part}"' not in page and f'href="#{part}"' not in page


@pytest.mark.parametrize(
    ("ended", "more", "pages"),
    [
        (outcome("published"), {}, [WINDOW_PAGE]),
        (outcome("gate_failed"), {"gate": gate(FAILING)}, ["decide/night-1"]),
        (outcome("failed", message="no broker", exit_code=4), {}, ["looks/departures_hourly?what=doctor"]),
        (outcome("failed", message="no such field", exit_code=2), {}, []),
    ],
)  # fmt: skip
def test_the_next_steps_in_airflow_are_links_to_forms(tmp_path, ended: dict, more: dict, pages: list[str]) -> None:
    delivered = {"destination": "topic t", "value": "complete", "delivered": {"upsert": 3}, "is_delivered": True}
    made = report(tmp_path, outcome=ended, request=request(dag_id="d"), corrections=delivered, **more)
    found = made.to_dict()
    steps = found["verdict"]["next"]
    assert [step["page"] for step in steps if step["page"]] == pages
    steps += found["corrections"]["steps"]
    assert [step["page"] for step in steps[-2:]] == [
        "looks/departures_hourly?what=corrections&run=night-1", "decide/night-1",
    ]  # fmt: skip
    assert not any(step["command"] for step in steps) and all(step["label"] for step in steps if step["page"])
    assert not re.search(r"<code[^>]*>rewindow ", render(made, None))


def test_the_time_taken_stands_beside_the_time_that_the_plan_expected(tmp_path) -> None:
    """One table with all steps and their sum; the applications, which take their own start too, stand apart."""
    none = "\N{EN DASH}"
    cost = {"records": 6000, "bytes": None, "seconds": {"timeline": 2.0, "gate": 1.0}, "runs": 4}
    made = report(tmp_path, plan=plan(cost=cost))
    assert made.plan.estimated.seconds == cost["seconds"]
    page = render(made, None)
    assert "from 4 earlier runs" in page and page.count("Time taken") == 1
    table = page[page.index("Time taken") :].partition("</table>")[0]
    rows = [re.findall(r">([^<>]+)</t[hd]>", row) for row in table.split("<tr")[1:]]
    assert rows == [
        ["Step", "Seconds", "Expected"], ["windows", "4.5", none], ["timeline", "1.2", "2.0"], ["gate", none, "1.0"],
        ["all steps", "5.8", "3.0"],
    ]  # fmt: skip
    alone = render(report(tmp_path / "alone"), None)
    assert "Expected" not in alone and "2 of 2 chunks" in alone
