"""Addresses of Rewindow's pages in Airflow to which a report leads, below the path of the list of runs."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from spark_jobs.formatting import iso
from spark_jobs.report.counted import TopWindow
from spark_jobs.runs.planning.looks import Subject

_LONGEST_KEY = 80


def decision_page(run_id: str, action: str = "") -> str:
    """The form of a decision about a run."""
    query = f"?{urlencode({'action': action})}" if action else ""
    return f"decide/{quote(run_id, safe='')}{query}"


def look_page(pipeline: str, what: Subject | str, **fields: str) -> str:
    """The form that looks at something of a pipeline, with `fields` filled."""
    return f"looks/{quote(pipeline, safe='')}?{urlencode({'what': str(what), **fields})}"


def window_page(pipeline: str, window: TopWindow) -> str | None:
    """The form that looks at the revisions of a window of the largest changes; None where its key cannot be named."""
    pairs = key_texts(window)
    start = iso(window.start)
    if pairs is None or not start:
        return None
    keys = "\n".join(f"{name}={value}" for name, value in pairs.items())
    return look_page(pipeline, Subject.WINDOW, window=start, **({"keys": keys} if keys else {}))


def key_texts(window: TopWindow) -> dict[str, str] | None:
    """The key of a window as texts by column, `null` for null; None where one is too long or not printable."""
    values = {name: "null" if v is None else str(v) for name, v in window.key.items()}
    if any(len(v) > _LONGEST_KEY or not v.isprintable() for v in values.values()):
        return None
    return values
