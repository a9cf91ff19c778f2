"""The reference of report.json names every field of a report, and none that no report has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_jobs.devtools import report_fields_page
from spark_jobs.report.model import Documents, report_of
from spark_jobs.report.reference import PARTS
from spark_jobs.runs.store import RunFolder
from tests.report.documents import RESULT, changes, facts, gate, outcome, plan, verdicts, written

ROOT = Path(__file__).parents[2]
FIELDS = [field for fields in PARTS.values() for field in fields]


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """The paths of values; an empty list or object is one, too."""
    if isinstance(value, dict) and value:
        for name, below in value.items():
            yield from leaves(below, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for below in value:
            yield from leaves(below, f"{path}[]")
    else:
        yield path


def pattern(field: str) -> re.Pattern[str]:
    text = re.escape(field).replace(re.escape("..."), r"([.\[].*)?")
    return re.compile(re.sub(r"\\\{\w+\\\}", r"[^.\\[\\]]+", text))


def damaged_report(run: RunFolder) -> dict[str, Any]:
    run.write_bytes("gate.json", b"{")
    return report_of(Documents.of(run))


def reports(folder: Path) -> Iterator[dict[str, Any]]:
    def of(name: str, **documents: Any) -> dict[str, Any]:
        return report_of(Documents.of(written(folder, name, **documents)))

    earlier = [
        {"kind": "reconcile", "requested_at": "2013-03-31T05:00:00+00:00", "records_read": 10, "records_late": 1}
    ]
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


def test_every_field_of_a_report_is_in_the_reference_and_the_other_way_round(tmp_path: Path) -> None:
    found = {path for report in reports(tmp_path) for path in leaves(report)}
    patterns = {field: pattern(field) for field in FIELDS}
    parents = {re.split(r"(?=\.\.\.)", field)[0] for field in FIELDS}

    def is_known(path: str) -> bool:
        is_part = any(parent.startswith((f"{path}.", f"{path}[")) for parent in parents)
        return is_part or any(one.fullmatch(path) for one in patterns.values())

    assert sorted(path for path in found if not is_known(path)) == []
    assert [field for field, one in patterns.items() if not any(map(one.fullmatch, found))] == []


def test_the_page_is_the_one_that_the_reference_generates() -> None:
    renew = "run `python -m spark_jobs.devtools.report_fields_page`"
    page = (ROOT / report_fields_page.PAGE).read_text(encoding="utf-8")
    assert page == report_fields_page.report_fields_page(), renew
