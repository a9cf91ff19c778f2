"""The definition of a run, as it was when the run began. No Spark in this module."""

from __future__ import annotations

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.runs.documents import Request
from spark_jobs.runs.store import DEFINITION, RunFolder


def recorded_definition(folder: RunFolder, request: Request | None) -> Pipeline | None:
    """The definition in the run's folder; None where the run was refused before it was read.

    `request`: names the file that it came from; None: not known.

    Raises DefinitionError where it cannot be read here: a variable that it names may be set only where the run was.
    """
    text = folder.read_text(DEFINITION)
    return None if text is None else load_pipeline((request and request.file) or DEFINITION, text=text)
