"""Errors in the words of the form: in Airflow nobody sees the options of the command line."""

from __future__ import annotations

import re

from spark_jobs.errors import RewindowError

FIELDS = {
    "--from": "From",
    "--to": "To",
    "--as-of": "As of",
    "--mode": "Values",
    "--chunks": "Chunks",
    "--until": "Until",
}
"""The field of the form for an option of the command line."""
_OPTION = re.compile("|".join(rf"{re.escape(option)}(?![\w-])" for option in FIELDS))


def in_form_words(problem: RewindowError) -> RewindowError:
    """The same error, with the form's fields in the place of options. It is changed in place."""
    problem.what = _OPTION.sub(lambda found: FIELDS[found[0]], problem.what)
    problem.hint = _OPTION.sub(lambda found: FIELDS[found[0]], problem.hint)
    return problem
