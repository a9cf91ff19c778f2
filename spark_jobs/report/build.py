"""Build a run's report from its documents: `report.json` and `report.html`. No Spark, no Airflow."""

from __future__ import annotations

from spark_jobs.report.model import Documents, report_of
from spark_jobs.report.page import render
from spark_jobs.runs.store import PAGE, REPORT, RunFolder


def build_report(folder: RunFolder) -> None:
    """Write the report from the documents that exist so far; the page names the missing parts. Can be repeated."""
    documents = Documents.of(folder)
    report = report_of(documents)
    folder.write(REPORT, report)
    folder.write_text(PAGE, render(report, documents.facts))
