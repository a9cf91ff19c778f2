"""The model of report.json is its reference: the page and the JSON Schema are what it generates, and reports fit it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from spark_jobs.report.assembled import report_of
from spark_jobs.report.documents import Documents
from spark_jobs.report.model import Report, json_schema
from spark_jobs.runs.life.store import RunFolder
from tests.report.documents import RESULT, changes, facts, gate, outcome, plan, verdicts, written
from tests.tools import report_fields_page

ROOT = Path(__file__).parents[2]


def damaged_report(run: RunFolder) -> Report:
    run.write_bytes("gate.json", b"{")
    return report_of(Documents.of(run))


def reports(folder: Path) -> Iterator[Report]:
    def of(name: str, **documents: Any) -> Report:
        return report_of(Documents.of(written(folder, name, **documents)))

    earlier = [
        {"run_id": "night-0", "kind": "reconcile", "requested_at": "2013-03-31T05:00:00+00:00", "records_read": 10,
         "records_late": 1}
    ]  # fmt: skip
    failed = RESULT | {"success": False, "samples": [{"flights": 61}]}
    view = facts()["watermark"]["overview"]
    yield of(
        "whole",
        approval={"decision": "approved", "by": "ada", "at": "2013-04-01T06:00:00+00:00", "comment": "agreed"},
        changes=changes(earlier=earlier, records_read=12, causes_by_change={"updated": {"late_arrivals": 37}}),
        gate=gate([failed]) | {"left_out": [{"suite": "windows", "reason": "only when: sessions"}]},
        facts=facts(
            watermark=facts()["watermark"] | {"zoom": view},
            changes=facts()["changes"]
            | {"columns": [{"name": "flights", "windows": 3, "total": 2, "least": -1, "most": 2}]},
        ),
        plan=plan(partition_columns=["p"], fidelity_reasons=["it was compacted"]),
        outcome=outcome("published", applications=[{"stage": "plan", "application_id": "local-1", "seconds": 2.0}]),
        verdicts=verdicts(),
        corrections={"destination": "topic corrected", "value": "faithful", "planned": {"upsert": 3}, "notes": ["one"]},
        quarantine={"reasons": [{"reason": "null value", "records": 3, "partition": 0, "offset": 5, "value": ""}]},
    )
    yield damaged_report(written(folder, "damaged"))
    yield of("short", outcome=outcome("failed"), plan=None, facts=None, changes=None, gate=None, verdicts=None)


def test_reports_fit_the_published_schema_and_are_read_back(tmp_path: Path) -> None:
    published = json.loads((ROOT / report_fields_page.SCHEMA).read_text(encoding="utf-8"))
    for report in reports(tmp_path):
        jsonschema.Draft202012Validator(published).validate(report.to_dict())
        assert Report.read(json.dumps(report.to_dict()).encode()) == report


def test_every_field_of_a_report_says_what_it_means() -> None:
    models = json_schema()["$defs"]
    silent = [f"{m}.{f}" for m, of in models.items() for f, said in of.get("properties", {}).items()
              if "description" not in said and m != "TimeRange"]  # fmt: skip
    assert silent == []


def test_page_and_schema_are_those_that_the_model_generates() -> None:
    renew = "run `python -m tests.tools.report_fields_page`"
    for file, text in (
        (report_fields_page.PAGE, report_fields_page.report_fields_page()),
        (report_fields_page.SCHEMA, report_fields_page.schema_text()),
    ):
        assert (ROOT / file).read_text(encoding="utf-8") == text, renew


def test_a_report_of_another_format_is_refused(tmp_path: Path) -> None:
    (report, *_) = reports(tmp_path)
    written = report.to_dict()
    assert Report.read(json.dumps(written).encode()) == report
    for damaged in (b"{", b"7", json.dumps(written | {"format": "rewindow-report/9"}).encode(), b"[" * 100_000):
        with pytest.raises((ValueError, RecursionError)):
            Report.read(damaged)
