"""Build a run's report from its documents: `report.json` and `report.html`. No Spark, no Airflow."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from spark_jobs.report.model import Documents, report_of
from spark_jobs.report.page import render
from spark_jobs.runs.store import PAGE, REPORT, RunFolder


def build_report(folder: RunFolder) -> None:
    """Write the report from the documents that exist so far; the page names the missing parts. Can be repeated."""
    report, page = drawn(Documents.of(folder))
    folder.write(REPORT, report)
    folder.write_text(PAGE, page)


def drawn(documents: Documents) -> tuple[dict[str, Any], str]:
    """The report and its page. Documents with which they cannot be drawn are left out, and named as damaged."""
    try:
        return _drawn(documents)
    except Exception:  # whatever a value of another type leads to
        return _drawn(_sound(documents))


def _drawn(documents: Documents) -> tuple[dict[str, Any], str]:
    report = report_of(documents)
    page = render(report, documents.facts)
    json.dumps(report, default=str), page.encode()  # raise here what writing them would raise
    return report, page


def _sound(documents: Documents) -> Documents:
    """The documents with which a report can be drawn: one after the other is added, unless it cannot be drawn then."""
    parts = documents.parts()
    empty = {part: () if isinstance(getattr(documents, part), tuple) else None for part in parts}
    sound = replace(documents, **empty)
    for part in parts:
        given = getattr(documents, part)
        if not given:
            continue
        more = replace(sound, **{part: given})
        try:
            _drawn(more)
            sound = more
        except Exception:
            sound = sound.without(part)
    return sound
