"""What the last run of a pipeline has seen, in one small document: for the form, the description and the page."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import Field

from spark_jobs.definition import Pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import DefinitionError, DocumentError
from spark_jobs.runs.life.documents import Document, Outcome, Request, recorded_definition
from spark_jobs.runs.life.store import RunFolder, RunStore
from spark_jobs.runs.planning.plan_document import Plan


class LastRun(Document):
    """`.pipelines/<pipeline>/last-run.json`. Times are epoch ms.

    `start` and `end`: the range of windows that the run replayed. `first` and `last`: the range of event times that
    all runs together have seen. `policy` to `links`: what the run's definition says of them; empty where it could not
    be read.
    """

    FILE: ClassVar[str] = "last-run.json"

    run_id: str
    status: str
    finished_at: str = ""
    start: int | None = None
    end: int | None = None
    first: int | None = None
    last: int | None = None
    as_of: dict[int, int] = Field(default_factory=dict)
    table: str = ""
    file: str = ""
    definition_hash: str = ""
    description: str = ""
    policy: Policy | None = None
    tolerance: str = ""
    owner: str = ""
    links: dict[str, str] = Field(default_factory=dict)


def last_run(pipeline: str) -> LastRun | None:
    """What is known of a pipeline's last run; None where it has none. Raises as `Document.read` does."""
    return LastRun.read(RunStore.configured().of_pipeline(pipeline))


def remember(folder: RunFolder) -> None:
    """Keep a run that has ended as its pipeline's last one. A run that was refused before its plan says nothing new."""
    request, outcome = Request.read(folder), Outcome.read(folder)
    plan = Plan.read(folder)
    if request is None or outcome is None or plan is None:
        return
    place = RunStore.configured().of_pipeline(request.pipeline)
    try:
        before = LastRun.read(place)
    except DocumentError:  # it is written anew
        before = None
    LastRun(
        run_id=folder.run_id,
        status=outcome.status.value,
        finished_at=outcome.finished_at or "",
        start=plan.span.start,
        end=plan.span.end,
        first=min(first for first in (plan.event_times.start, before and before.first) if first is not None),
        last=max(last for last in (plan.event_times.end, before and before.last) if last is not None),
        as_of=plan.as_of,
        table=request.output_table,
        file=request.file or "",
        definition_hash=request.definition_hash,
        **_said_by(_definition_of(folder, request)),
    ).write(place)


def _definition_of(folder: RunFolder, request: Request) -> Pipeline | None:
    try:
        return recorded_definition(folder, request)
    except DefinitionError:  # a variable that it names may be set only where the run was
        return None


def _said_by(pipeline: Pipeline | None) -> dict[str, Any]:
    if pipeline is None:
        return {}
    return {
        "description": pipeline.description or "",
        "policy": pipeline.publish.policy,
        "tolerance": pipeline.publish.tolerance.in_words(),
        "owner": pipeline.owner or "",
        "links": dict(pipeline.links),
    }
