"""The command line: what people read, and the exit codes that scripts rely on."""

# pyright: reportOptionalSubscript=false

from __future__ import annotations

import getpass
import json
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from spark_jobs.cli.app import known_failure
from spark_jobs.errors import noted
from spark_jobs.runs.life.documents import Request
from spark_jobs.runs.life.store import PAGE, REPORT, RunStore
from spark_jobs.spark.gateway import jvm
from tests.command_line import Rewindow, in_process
from tests.runs.small_runs import definition_text, record, write
from tests.sampling import sample


@pytest.fixture
def rewindow(spark, monkeypatch, capfd) -> Rewindow:
    return in_process(monkeypatch, capfd)


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    write(tmp_path / "data", [record(i) for i in range(300)])
    path = tmp_path / "by_hand.yaml"
    path.write_text(definition_text("by_hand", tmp_path / "data"))
    return path


def test_check_says_file_line_field_and_what_to_write(rewindow, definition) -> None:
    assert rewindow("check", str(definition), "--thorough")[0] == 0
    definition.write_text(definition.read_text().replace("total: sum(v)", "total: sum(w), other: v + 1"))
    assert "--thorough" in rewindow("check", str(definition))[1]
    code, _, err = rewindow("check", str(definition), "--thorough")
    assert code == 2
    line = next(i for i, text in enumerate(definition.read_text().splitlines(), 1) if text.startswith("aggregates"))
    assert f"{definition}:{line}: aggregates.total: " in err
    assert "aggregates.other: " in err
    assert "Traceback" not in err


def test_a_definition_that_is_no_yaml_is_named_with_its_line(rewindow, definition) -> None:
    definition.write_text("name: [\n")
    code, _, err = rewindow("plan", str(definition))
    assert code == 2
    assert str(definition) in err


def test_the_plan_is_for_people_and_for_machines(rewindow, definition) -> None:
    code, out, _ = rewindow("plan", str(definition))
    assert code == 0
    assert "fidelity" in out
    assert "log_order" in out
    code, out, _ = rewindow("plan", str(definition), "--json", "--chunks", "2")
    plan = json.loads(out)
    assert code == 0
    assert [p["end_offset"] for p in plan["partitions"]] == [150, 150]
    assert len(plan["chunks"]) == 2


def test_run_carries_out_a_saved_plan_and_prints_json(rewindow, definition, tmp_path) -> None:
    _, out, _ = rewindow("plan", str(definition), "--json")
    (tmp_path / "plan.json").write_text(json.dumps(json.loads(out) | {"warnings": ["window ends are many"]}))
    code, out, err = rewindow("run", str(definition), "--plan", str(tmp_path / "plan.json"), "--json")
    assert code == 0, err
    assert "note: window ends are many" in err
    assert json.loads(out)["records_read"] == 300
    run_id = json.loads(out)["run_id"]
    stages = [json.loads(text)["stage"] for text in err.splitlines() if text.startswith("{")]
    assert {"timeline", "windows", "gate", "publish"} <= set(stages)
    code, out, _ = rewindow("sql", "SELECT count(*) AS n FROM rewindow.run_tests.by_hand", "--json")
    assert json.loads(out)["n"] > 0

    code, out, _ = rewindow("reconcile", str(definition), "--dry-run")
    assert code == 0 and "nothing has arrived since run" in out
    folder = RunStore.configured().folder(run_id)
    folder.write_text(PAGE, "drawn before")
    code, out, err = rewindow("reconcile", str(definition))
    assert code == 0 and "nothing has arrived since run" in out + err
    assert folder.read_text(PAGE) == "drawn before"  # a night without news draws no report
    write(tmp_path / "data", [record(i) for i in range(300, 340)], "part-1.json")
    code, out, _ = rewindow("reconcile", str(definition), "--dry-run")
    assert code == 0 and "it goes on from run" in out and "stage the windows from" in out


def test_a_saved_plan_keeps_the_limits_and_takes_no_option_that_it_has_decided_on(
    rewindow, definition, tmp_path
) -> None:
    definition.write_text(definition.read_text().replace("by_hand", "planned_before"))
    saved = tmp_path / "plan.json"
    saved.write_text(rewindow("plan", str(definition), "--json")[1])
    run = ("run", str(definition), "--plan", str(saved), "--json")
    options = {
        "--from": "2020-09-13T12:30:00Z",
        "--to": "2020-09-13T12:31:00Z",
        "--as-of": "0=3,1=3",
        "--mode": "complete",
    }
    for name, value in (options | {"--chunks": "3"}).items():
        code, _, err = rewindow(*run, name, value)
        assert (code, f"--plan is given with {name}, and the plan has decided on that" in err) == (2, True), err
    code, _, err = rewindow(*run, *(text for option in options.items() for text in option))
    assert (code, f"with {', '.join(options)}, and" in err) == (2, True), err
    definition.write_text(definition.read_text() + "limits: {records: 299}\n")
    for dry in ((), ("--dry-run",)):
        code, _, err = rewindow(*run, *dry)
        assert (code, "would read 300 records, and the definition allows 299" in err) == (2, True), err
    code, out, err = rewindow(*run, "--beyond-limits")
    assert (code, json.loads(out)["records_read"]) == (0, 300), err


def test_a_run_id_of_another_pipeline_or_table_is_refused_before_anything_is_planned(rewindow, definition) -> None:
    text = definition.read_text().replace("by_hand", "owns_an_id")
    definition.write_text(text)
    assert rewindow("run", str(definition), "--run-id", "owned")[0] == 0
    gone = text.replace("/data", "/no-such-data")  # planning would find that out
    others = {
        "pipeline owns_an_id": gone.replace("owns_an_id", "has_no_id"),
        "table rewindow.run_tests.owns_an_id": gone.replace("output: {", "output: {table: moved, "),
    }
    for known_by in ("its folder", "the ledger alone"):
        for whose, other in others.items():
            definition.write_text(other)
            code, _, err = rewindow("run", str(definition), "--run-id", "owned")
            assert code != 0 and f"this run id is of a run of {whose}" in err, (known_by, err)
        if known_by == "its folder":
            RunStore.configured().folder("owned").remove(Request.FILE)


def test_the_report_says_how_a_run_ended_by_hand(rewindow, definition) -> None:
    definition.write_text(definition.read_text().replace("by_hand", "ended_by_hand"))
    ends = {"publish": "published", "discard": "discarded"}
    for command in sample(["publish"], ["discard", "publish"]):
        arguments = ("--start", "2000-01-01T00:00:00Z", "--publish", "on_approval", "--json")
        code, out, err = rewindow("backfill", str(definition), *arguments)
        assert code == 3, err
        folder = RunStore.configured().folder(json.loads(out)["run_id"])
        report = folder.read(REPORT) or {}
        assert report["verdict"]["status"] == "awaiting_approval"
        assert report["run"]["requested"]["from"] == "2000-01-01T00:00:00Z"
        assert report["run"]["requested"]["publish"] == "on_approval"
        assert report["run"]["requested_by"] == getpass.getuser()
        code, out, err = rewindow(command, folder.run_id, "--reason", "a test")
        assert code == 0, err
        assert folder.address(PAGE) in out
        assert (folder.read(REPORT) or {})["verdict"]["status"] == ends[command]


def test_a_dry_run_writes_nothing(rewindow, definition, spark) -> None:
    definition.write_text(definition.read_text().replace("name: by_hand", "name: dry"))
    code, out, _ = rewindow("run", str(definition), "--dry-run")
    assert code == 0
    assert "Plan of dry" in out
    assert not spark.catalog.tableExists("rewindow.run_tests.dry")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--from", "2013-01-01T00:00:00"], 2, "has no zone"),
        (["--from", "yesterday"], 2, "is not a time"),
        (["--to", "1999-01-01T00:00:00Z"], 6, "no event time falls into windows"),
        (["--as-of", "0:5"], 2, "is not a list of end offsets"),
        (["--mode", "fast"], 2, "Use faithful, complete or both"),
        (["--chunks", "0"], 2, "plan --help"),
    ],
)
def test_wrong_options_end_with_the_documented_code_and_a_mend(rewindow, definition, arguments, code, words) -> None:
    got, _, err = rewindow("plan", str(definition), *arguments)
    assert got == code
    assert words in err
    assert "Traceback" not in err


def test_an_unknown_pipeline_lists_the_known_ones(rewindow) -> None:
    code, _, err = rewindow("plan", "departures_daily")
    assert code == 2
    assert "departures_hourly" in err


def test_missing_files_are_a_source_error(rewindow, definition) -> None:
    definition.write_text(definition.read_text().replace("/data/*.json", "/nowhere/*.json"))
    code, _, err = rewindow("run", str(definition))
    assert code == 4
    line = next(i for i, text in enumerate(definition.read_text().splitlines(), 1) if "/nowhere/" in text)
    assert f"/nowhere/*.json, {definition}:{line})" in err


def test_the_schema_is_json(rewindow) -> None:
    code, out, _ = rewindow("schema")
    assert code == 0
    assert json.loads(out)["properties"]["watermark"]


def test_a_sql_mistake_is_short(rewindow) -> None:
    code, _, err = rewindow("sql", "SELECT * FROM rewindow.none.there")
    assert code == 2
    assert len(err) < 500


def test_an_unexpected_error_of_java_has_its_own_reason_and_its_stage(spark) -> None:
    with pytest.raises(Py4JJavaError) as failed, noted("stage windows of orders"):
        jvm(spark).java.util.ArrayList().get(5)
    found = known_failure(failed.value)
    assert "IndexOutOfBoundsException: Index 5 out of bounds" in found
    assert "(stage windows of orders). Add --debug" in found
    assert "An error occurred while calling" not in found
