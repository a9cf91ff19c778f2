"""The current report of a run: the stored one, or a new one where that is missing or outdated."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict

from spark_jobs.report.model import Documents, report_of
from spark_jobs.report.verdict import UNKNOWN
from spark_jobs.runs.store import OUTCOME, PAGE, REPORT, RunFolder

_CACHED_PAGES = 8

_lock = threading.Lock()
_built: OrderedDict[str, tuple[Documents, str]] = OrderedDict()


def report_bytes(folder: RunFolder) -> bytes:
    """The content of `report.json`."""
    stored = folder.read_bytes(REPORT)
    if stored is not None and _is_current(stored, folder):
        return stored
    return json.dumps(report_of(Documents.of(folder)), sort_keys=True, default=str).encode()


def report_page(folder: RunFolder) -> str:
    """The content of `report.html`. A run that waits for approval has none yet: building it takes a second or two."""
    stored = folder.read_bytes(REPORT)
    if stored is not None and _is_current(stored, folder):
        page = folder.read_text(PAGE)
        if page is not None:
            return page
    return _drawn(Documents.of(folder))


def _is_current(stored: bytes, folder: RunFolder) -> bool:
    """Whether the stored report is about the present outcome. A run that was started again still has its old report."""
    outcome = folder.read(OUTCOME) or {}
    try:
        report = json.loads(stored)
        reported = report["verdict"]["status"], report["run"]["finished_at"]
    except (ValueError, KeyError, TypeError):
        return False
    return reported == (outcome.get("status") or UNKNOWN, outcome.get("finished_at"))


def _drawn(documents: Documents) -> str:
    """The page built from `documents`. One page is built at a time; the last few are cached."""
    from spark_jobs.report.page import render  # imports the chart library, which most requests do not need

    with _lock:
        cached = _built.get(documents.run_id)
        if cached is None or cached[0] != documents:
            cached = _built[documents.run_id] = documents, render(report_of(documents), documents.facts)
        _built.move_to_end(documents.run_id)
        if len(_built) > _CACHED_PAGES:
            _built.popitem(last=False)
        return cached[1]
