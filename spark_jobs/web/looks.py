"""Pages that look at a pipeline: the form of a question, and its answer. The DAG `look__<pipeline>` looks."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from spark_jobs.definition.names import is_pipeline_name
from spark_jobs.errors import DefinitionError, DocumentError
from spark_jobs.orchestration.run_ids import dag_id_of
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.looks import Look, Looks, Question, Subject
from spark_jobs.web.access import ReaderDep
from spark_jobs.web.pages import dag_run_url, form_of, home_of, html_page
from spark_jobs.web.starting import choices, dag_run, form_token, is_own_form, is_paused, started

LISTED = 10
"""So many answers the form's page lists."""
_RELOAD_SECONDS = 4

router = APIRouter()


def _dag_of(pipeline: str, reader: ReaderDep) -> str:
    """The DAG that looks at a pipeline; 404 where the reader may not know of it."""
    dag_id = dag_id_of("look", pipeline)
    if not is_pipeline_name(pipeline) or not reader.may_read(dag_id):
        raise HTTPException(404, "There is no such pipeline, or you may not read the runs of its DAGs.")
    return dag_id


DagDep = Annotated[str, Depends(_dag_of)]


def _form(
    request: Request, pipeline: str, dag_id: str, reader: ReaderDep, given: dict[str, str], problem: str = ""
) -> HTMLResponse:
    offered = choices(dag_id, "what") or list(Subject)
    return html_page(
        request,
        "look.html.j2",
        422 if problem else 200,
        pipeline=pipeline,
        dag_id=dag_id,
        may_ask=reader.may_trigger(dag_id),
        paused=is_paused(dag_id),
        subjects={subject.value: subject.title for subject in Subject if subject in offered},
        given=given,
        problem=problem,
        token=form_token(reader.name, dag_id),
        answers=_last(pipeline),
        answer_url=lambda look: f"{home_of(request)}looks/{pipeline}/{quote(look.dag_run_id, safe='')}",
    )


def _last(pipeline: str) -> list[Look]:
    looks, found = Looks(RunStore.configured(), pipeline), []
    for name in looks.names()[:LISTED]:
        try:
            look = looks.read(name)
        except DocumentError:  # the next ones take its place
            look = None
        if look is not None:
            found.append(look)
    return found


@router.get("/looks/{pipeline}", response_class=HTMLResponse, include_in_schema=False)
def show_question(
    request: Request,
    pipeline: str,
    dag_id: DagDep,
    reader: ReaderDep,
    what: Annotated[str, Query(max_length=30)] = "",
    window: Annotated[str, Query(max_length=60)] = "",
    keys: Annotated[str, Query(max_length=2000)] = "",
    run: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """The form of a question; a report's links fill its fields. Below it the last answers."""
    given = {"what": what, "window": window, "keys": keys, "run": run}
    return _form(request, pipeline, dag_id, reader, given)


@router.post("/looks/{pipeline}", response_class=HTMLResponse, include_in_schema=False)
def ask(
    request: Request,
    pipeline: str,
    dag_id: DagDep,
    reader: ReaderDep,
    fields: Annotated[dict[str, str], Depends(form_of)],
) -> Response:
    """Start the DAG with the question; on to its answer."""
    reader.refuse_trigger(dag_id)
    if not is_own_form(fields.get("token", ""), reader.name, dag_id):
        raise HTTPException(403, "This form is not from here, or too old. Load it again.")
    given = {name: fields.get(name, "") for name in ("what", "window", "keys", "run")}
    try:
        question = Question.of(given)
    except DefinitionError as problem:
        return _form(request, pipeline, dag_id, reader, given, f"{problem.what}. {problem.hint}")
    sent = {"what": question.what.value, "window": question.window, "run": question.run}
    sent["keys"] = "\n".join(f"{name}={value}" for name, value in question.keys) or None
    begun = started(dag_id, {name: value for name, value in sent.items() if value is not None}, reader.name)
    return RedirectResponse(f"{home_of(request)}looks/{pipeline}/{quote(begun, safe='')}", 303)


@router.get("/looks/{pipeline}/{dag_run_id}", response_class=HTMLResponse, include_in_schema=False)
def show_answer(request: Request, pipeline: str, dag_run_id: str, dag_id: DagDep) -> HTMLResponse:
    """The answer to a question; until it is there the page says so, and loads itself again."""
    looks = Looks(RunStore.configured(), pipeline)
    name = looks.found(dag_run_id)
    look = looks.read(name) if name else None
    run = dag_run(dag_id, dag_run_id)
    if look is None and run is None:
        raise HTTPException(404, "There is no such question, or its answer is not kept any more.")
    state = "" if run is None else str(run.state)
    waits = state in ("queued", "running") and (look is None or not look.has_ended)
    answer = html_page(
        request,
        "answer.html.j2",
        pipeline=pipeline,
        dag_id=dag_id,
        look=look,
        waits=waits,
        paused=is_paused(dag_id),
        dag_run_id=dag_run_id,
        begun_url=dag_run_url(request, dag_id, dag_run_id),
    )
    if waits:
        answer.headers["Refresh"] = str(_RELOAD_SECONDS)
    return answer
