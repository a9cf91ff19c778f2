"""Errors in the words of the form: in Airflow nobody sees the options of the command line, or has its commands."""

from __future__ import annotations

import re
from typing import TypeVar

from spark_jobs.errors import RewindowError

FIELDS = {
    "--from": "From",
    "--to": "To",
    "--as-of": "As of",
    "--mode": "Values",
    "--chunks": "Chunks",
    "--accept-degraded": "Accept degraded fidelity",
    "--beyond-limits": "Beyond limits",
    "--another-log": "Another log",
    "--dry-run": "Dry run",
    "--publish": "Publish",
    "--until": "Until",
    "--window": "Window",
    "--key": "Keys",
}
"""The field of the form for an option of the command line."""
COMMANDS = {
    "run": "a backfill",
    "reconcile": "a reconciliation",
    "plan": "a dry run",
    "report": "its report",
    "publish": "the DAG `decide__<pipeline>`",
    "discard": "the DAG `decide__<pipeline>`",
    "maintain": "the DAG `maintain__<pipeline>`",
    "doctor": "the DAG `look__<pipeline>`, which looks at `doctor`",
    "corrections": "the DAG `look__<pipeline>`, which looks at `corrections`,",
    "revisions": "the DAG `look__<pipeline>`, which looks at a `window`",
    "archive": "the DAG `maintain__<pipeline>`, by its form's `archive`,",
    "expectations": "whoever runs Rewindow's commands here, by a list of the expectations,",
}
"""What does in Airflow what a command does; a list is no work of a DAG."""
Problem = TypeVar("Problem", bound=RewindowError)
_OPTION = re.compile("|".join(rf"{re.escape(option)}(?![\w-])" for option in FIELDS))
_COMMAND = re.compile(rf"`rewindow ({'|'.join(COMMANDS)})\b[^`]*`")
_QUARANTINED = re.compile(r"with `rewindow plan [^`]*--quarantined`")


def in_form_words(problem: Problem) -> Problem:
    """Changes the error: the form's fields take the place of options. Returns it."""
    problem.what = _in_words(problem.what)
    problem.hint = _in_words(problem.hint)
    return problem


def _in_words(text: str) -> str:
    named = _QUARANTINED.sub("in the report (The plan, and how it went)", text)
    named = _COMMAND.sub(lambda found: COMMANDS[found[1]], named)
    return _OPTION.sub(lambda found: FIELDS[found[0]], named)
