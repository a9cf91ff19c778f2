"""Build a run's report from its documents: `report.json` and `report.html`. No Spark, no Airflow."""

from __future__ import annotations

import json

from spark_jobs.report.assembled import report_of
from spark_jobs.report.documents import PARTS, Documents
from spark_jobs.report.model import Report
from spark_jobs.report.page import render
from spark_jobs.runs.life.store import PAGE, REPORT, RunFolder


def build_report(folder: RunFolder) -> Report:
    """Write the report from the documents that exist so far; the page names the missing parts. Can be repeated."""
    report, page = drawn(Documents.of(folder))
    folder.write(REPORT, report.to_dict())
    folder.write_text(PAGE, page)
    return report


def drawn(documents: Documents) -> tuple[Report, str]:
    """The report and its page. Documents with which they cannot be drawn are left out, and named as damaged."""
    try:
        return _drawn(documents)
    except Exception:  # whatever a value that no model knows leads to
        return _drawn(_sound(documents))


def _drawn(documents: Documents) -> tuple[Report, str]:
    report = report_of(documents)
    page = render(report, documents.facts)
    json.dumps(report.to_dict()), page.encode()  # raise here what writing them would raise
    return report, page


def _sound(documents: Documents) -> Documents:
    """The documents with which a report can be drawn: one after the other is added, unless it cannot be drawn then."""
    kept: list[str] = []
    damaged: list[str] = []
    for part in PARTS:
        try:
            _drawn(documents.with_only(*kept, part))
            kept.append(part)
        except Exception:
            damaged.append(part)
    return documents.with_only(*kept, damaged=damaged)
