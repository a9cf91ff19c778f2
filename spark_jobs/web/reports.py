"""The report of a run as it stands: the stored one, or one built at once where none is stored or it is of the past."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict

from spark_jobs.report.model import Documents, report_of
from spark_jobs.runs.store import OUTCOME, PAGE, REPORT, RunFolder

_KEPT = 8

_lock = threading.Lock()
_built: OrderedDict[str, tuple[Documents, str]] = OrderedDict()


def report_bytes(folder: RunFolder) -> bytes:
    """`report.json`."""
    stored = folder.read_bytes(REPORT)
    if stored is not None and _is_current(stored, folder):
        return stored
    return json.dumps(report_of(Documents.of(folder)), sort_keys=True, default=str).encode()


def report_page(folder: RunFolder) -> str:
    """`report.html`. A run that waits for approval has none yet: it is drawn here, which takes a second or two."""
    stored = folder.read_bytes(REPORT)
    if stored is not None and _is_current(stored, folder):
        page = folder.read_text(PAGE)
        if page is not None:
            return page
    return _drawn(Documents.of(folder))


def _is_current(stored: bytes, folder: RunFolder) -> bool:
    """Whether the report tells of the outcome that is there now: a run that begins again leaves its old report."""
    outcome = folder.read(OUTCOME) or {}
    try:
        report = json.loads(stored)
        told = report["verdict"]["status"], report["run"]["finished_at"]
    except (ValueError, KeyError, TypeError):
        return False
    return told == (outcome.get("status") or "unknown", outcome.get("finished_at"))


def _drawn(documents: Documents) -> str:
    """The page of documents that no report is stored of. One is drawn at a time; the last few are kept."""
    from spark_jobs.report.page import render  # the chart library, which most requests do without

    with _lock:
        kept = _built.get(documents.run_id)
        if kept is None or kept[0] != documents:
            kept = _built[documents.run_id] = documents, render(report_of(documents), documents.facts)
        _built.move_to_end(documents.run_id)
        if len(_built) > _KEPT:
            _built.popitem(last=False)
        return kept[1]
