"""Reports of runs whose documents are damaged: what can be shown is shown, and the page names what is left out."""

from __future__ import annotations

import json

import pytest

from spark_jobs.report.build import build_report
from spark_jobs.runs.life.store import PAGE, REPORT, RunFolder
from spark_jobs.web.reports import report_bytes, report_page
from tests.report.documents import changes, facts, gate, outcome, plan, request, verdicts, written
from tests.sampling import first_of, sample

WHOLE = {
    "request": request(), "plan": plan(), "changes": changes(), "gate": gate(), "outcome": outcome("published"),
    "approval": {"decision": "approved", "by": "ada"}, "verdicts": verdicts(), "facts": facts(),
}  # fmt: skip
ODD = (7, "text", [1], [[]], {"a": 1}, True, None, -1, float("nan"), "\ud800<b>", 10**300, {"a": {"b": [None]}})


def shown(run: RunFolder) -> list[str]:
    """The documents that the report names as damaged, after the web page was drawn anew too."""
    build_report(run)
    report, page = run.read(REPORT), run.read_text(PAGE)
    assert report is not None and page is not None
    assert report["run"]["run_id"] == run.run_id and "</html>" in page
    assert all(name in page for name in report["damaged"])
    run.remove(REPORT)
    assert "</html>" in report_page(run)
    assert json.loads(report_bytes(run))["damaged"] == report["damaged"]
    return report["damaged"]


def test_a_document_that_is_no_json_object_is_left_out_and_named(tmp_path) -> None:
    files = sorted(f"{name}.json" for name in WHOLE)
    damages = (b"", b"{", b"[1]", b"7", b"\xff\xfe", b"[" * 100_000)
    for number, damage in enumerate(sample(damages[3:], damages)):
        run = written(tmp_path, f"run-{number}")
        for file in files:
            run.write_bytes(file, damage)
        assert sorted(shown(run)) == files


@pytest.mark.parametrize("part", first_of(WHOLE, 3))
def test_a_field_of_another_type_takes_no_report_away(tmp_path, part) -> None:
    """What is damaged is left out; everything else is still there."""
    cases = [(field, odd) for field in WHOLE[part] for odd in ODD]
    for number, (field, odd) in enumerate(sample(cases[5 :: len(cases)], cases)):
        run = written(tmp_path, f"run-{number}", **{part: WHOLE[part] | {field: odd}})
        assert set(shown(run)) <= {f"{part}.json"}, (field, odd)
