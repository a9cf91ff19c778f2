"""The current report of a run: the stored one, or a new one where that is missing or outdated."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict

from spark_jobs.errors import DocumentError
from spark_jobs.report.documents import Documents
from spark_jobs.report.model import Report
from spark_jobs.report.verdict import UNKNOWN
from spark_jobs.runs.life.documents import AnyOutcome
from spark_jobs.runs.life.store import PAGE, REPORT, RunFolder

_CACHED_PAGES = 8

_lock = threading.Lock()
_built: OrderedDict[str, tuple[Documents, tuple[Report, str]]] = OrderedDict()


def report_bytes(folder: RunFolder) -> bytes:
    """The content of `report.json`."""
    stored = folder.read_bytes(REPORT)
    if stored is not None and _is_current(stored, folder):
        return stored
    return json.dumps(_drawn(Documents.of(folder))[0].to_dict(), sort_keys=True).encode()


def report_page(folder: RunFolder) -> str:
    """The content of `report.html`. A run that waits for approval has none yet: building it takes a second or two."""
    stored = folder.read_bytes(REPORT)
    if stored is not None and _is_current(stored, folder):
        page = folder.read_text(PAGE)
        if page is not None:
            return page
    return _drawn(Documents.of(folder))[1]


def _is_current(stored: bytes, folder: RunFolder) -> bool:
    """Whether the stored report is about the present outcome. A run that was started again still has its old report."""
    try:
        outcome, report = AnyOutcome.read(folder), Report.read(stored)
    except (ValueError, RecursionError, DocumentError):
        return False
    now = (outcome.status, outcome.finished_at) if outcome else (UNKNOWN, None)
    return now == (report.verdict.status, report.run.finished_at)


def _drawn(documents: Documents) -> tuple[Report, str]:
    """The report and the page built from `documents`. One page is built at a time; the last few are cached."""
    from spark_jobs.report.build import drawn  # imports the chart library, which most requests do not need

    with _lock:
        cached = _built.get(documents.run_id)
        if cached is None or cached[0] != documents:
            cached = _built[documents.run_id] = documents, drawn(documents)
        _built.move_to_end(documents.run_id)
        if len(_built) > _CACHED_PAGES:
            _built.popitem(last=False)
        return cached[1]
