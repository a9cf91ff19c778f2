"""The web app under /rewindow in Airflow's API server: runs, their reports, and where each pipeline stands.

Every route needs an authenticated user of Airflow, and shows only the runs of DAGs that this user may read.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from datetime import date
from functools import cache
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.core_api.security import get_user
from airflow.utils.state import DagRunState
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from spark_jobs import __version__
from spark_jobs.definition.names import is_pipeline_name
from spark_jobs.errors import DefinitionError, EnvironmentSetupError
from spark_jobs.orchestration.form import MAX_REASON
from spark_jobs.orchestration.run_ids import dag_id_of, pipeline_of, run_id_of
from spark_jobs.runs.life.store import RunFolder, RunStore
from spark_jobs.web.access import Reader, ReaderDep
from spark_jobs.web.looks import router
from spark_jobs.web.pages import (
    REPORT_HEADERS,
    airflow_of,
    dag_run_url,
    form_of,
    headers,
    home_of,
    html_page,
    with_links,
    with_run_links,
)
from spark_jobs.web.reports import report_bytes, report_page
from spark_jobs.web.runs import PER_PAGE, Page, Runs, Wanted, page_of
from spark_jobs.web.standing import LONGEST, Standing, last_reported, standing_of, trends_of
from spark_jobs.web.starting import Decision, actions_of, dag_run, form_token, is_own_form, is_paused, started
from spark_jobs.web.summary import DAMAGED, RUNNING, Run, kept_summaries, read_run

log = logging.getLogger(__name__)

MAX_TRENDS = 12
"""The most pipelines whose trends one page shows."""

_UNKNOWN = "There is no such run, or you may not read the runs of its DAG."


class SafeHeaders:
    """Middleware: adds the headers of `pages.headers` to each response, where it has not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_safe(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                missing = ((n.lower().encode(), v.encode()) for n, v in headers().items())
                message["headers"] = [*message["headers"], *(pair for pair in missing if pair[0] not in present)]
            await send(message)

        await self._app(scope, receive, send_safe)


app = FastAPI(
    title="Rewindow",
    description="Runs of Rewindow and their reports. Needs a user of Airflow: a session cookie or a bearer token.",
    version=__version__,
    dependencies=[Depends(get_user)],
    redirect_slashes=False,  # a redirect would be sent before the user is authenticated
    docs_url=None,  # would load scripts from another host
    redoc_url=None,
    openapi_url=None,  # served below, to authenticated users only
)
app.add_middleware(SafeHeaders)
app.include_router(router)


# Parameters of requests.


def _store() -> RunStore:
    return RunStore.configured()


_PATIENCE = 3.0
"""Seconds that a request waits for the run store."""


@cache
def _runs_of(url: str) -> Runs:
    return Runs(RunStore(url), patience=_PATIENCE, kept=kept_summaries(url))


_DAY = r"^(\d{4}-\d{2}-\d{2})?$"


def _wanted(
    pipeline: Annotated[str, Query(max_length=200, description="Only runs of this pipeline.")] = "",
    status: Annotated[
        str,
        Query(
            max_length=60,
            description="Only runs with this status, as in `outcome.json`; `running`: runs without an outcome.",
        ),
    ] = "",
    since: Annotated[
        str, Query(alias="from", pattern=_DAY, description="Requested on this day (UTC, YYYY-MM-DD) or later.")
    ] = "",
    until: Annotated[
        str, Query(alias="to", pattern=_DAY, description="Requested on this day (UTC, YYYY-MM-DD) or earlier.")
    ] = "",
) -> Wanted:
    try:
        days = [date.fromisoformat(day) if day else None for day in (since, until)]
    except ValueError as problem:
        raise HTTPException(422, f"This day does not exist: {problem}.") from problem
    return Wanted(pipeline, status, *days)


WantedDep = Annotated[Wanted, Depends(_wanted)]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000, description="Which page; they count from 1.")]


def _folder(run_id: str, reader: Reader) -> tuple[RunFolder, Run]:
    """The folder of a run that `reader` may read, and its summary. For any other run: 404, whether it exists or not."""
    try:
        folder = _store().folder(run_id)
    except DefinitionError as problem:
        raise HTTPException(404, _UNKNOWN) from problem
    run = read_run(folder)
    if run is None or not reader.may_read(run.dag_id):
        raise HTTPException(404, _UNKNOWN)
    _refuse_damaged(run)
    return folder, run


def _refuse_damaged(run: Run) -> None:
    if run.status == DAMAGED:
        raise HTTPException(500, f"There is no report: {run.message}")


def _visible(reader: Reader) -> tuple[Runs, list[Run]]:
    runs = _runs_of(_store().url)
    return runs, [run for run in runs.all() if reader.may_read(run.dag_id)]


def _page(runs: Runs, found: Sequence[Run], page: int, per_page: int, reader: Reader) -> Page:
    """One page of `found`, with its runs read again."""
    part = page_of(found, page, per_page)
    now = [run for run in runs.now(part.runs) if reader.may_read(run.dag_id)]
    return Page(now, part.total, part.page, part.pages)


# Pages.


@app.get("/", response_class=HTMLResponse, include_in_schema=False)
def list_runs(request: Request, reader: ReaderDep, wanted: WantedDep, page: PageNumber = 1) -> HTMLResponse:
    """The list of the runs that the reader may see, the last requested first."""
    runs, visible = _visible(reader)
    before_status_filter = [run for run in visible if wanted.takes_any_status(run)]
    part = _page(runs, [run for run in before_status_filter if wanted.takes(run)], page, PER_PAGE, reader)
    trends = trends_of(before_status_filter)
    query = wanted.query()
    statuses = {run.status: run.status_title for run in visible} | (
        {wanted.status: wanted.status} if wanted.status else {}
    )
    return html_page(
        request,
        "runs.html.j2",
        page=part,
        wanted=wanted,
        query=query,
        any_run=bool(visible),
        longest=LONGEST,
        trends=trends[:MAX_TRENDS],
        more_trends=len(trends) - MAX_TRENDS,
        pipelines=sorted({run.pipeline for run in visible} | ({wanted.pipeline} - {""})),
        statuses=sorted(statuses.items()),
        page_url=lambda number: f"{home_of(request)}?{urlencode({**query, 'page': number})}",
    )


@app.get("/runs/{run_id}", response_class=HTMLResponse, include_in_schema=False)
def show_report(request: Request, run_id: str, reader: ReaderDep) -> HTMLResponse:
    """The report of a run."""
    folder, run = _folder(run_id, reader)
    home, airflow = home_of(request), airflow_of(request)
    page = with_links(with_run_links(report_page(folder), home), home, airflow, run)
    return HTMLResponse(page, headers=REPORT_HEADERS | _reloading(run))


def _reloading(run: Run) -> dict[str, str]:
    """The header by which the page of a run at work loads itself again."""
    return {"Refresh": str(_RELOAD_SECONDS)} if run.status == RUNNING else {}


_RELOAD_SECONDS = 20


def _decidable(run_id: str, reader: Reader) -> tuple[Run, str, dict[str, str]]:
    """A run that the reader may read, the DAG that decides about it, and the actions that it can have."""
    folder, run = _folder(run_id, reader)
    dag_id = dag_id_of("decide", run.pipeline)
    reader.refuse_trigger(dag_id)
    return run, dag_id, actions_of(folder, run.known_status)


def _decision_page(
    request: Request, run_id: str, reader: Reader, given: Decision, problem: str = "", begun: str = ""
) -> HTMLResponse:
    run, dag_id, actions = _decidable(run_id, reader)
    return html_page(
        request,
        "decide.html.j2",
        422 if problem else 200,
        run=run,
        dag_id=dag_id,
        problem=problem,
        given=given,
        actions=actions,
        longest=MAX_REASON,
        paused=is_paused(dag_id),
        token=form_token(reader.name, run_id),
        begun=begun,
        begun_url=dag_run_url(request, dag_id, begun),
    )


@app.get("/decide/{run_id}", response_class=HTMLResponse, include_in_schema=False)
def show_decision(
    request: Request,
    run_id: str,
    reader: ReaderDep,
    action: Annotated[str, Query(max_length=30)] = "",
    begun: Annotated[str, Query(max_length=300)] = "",
) -> HTMLResponse:
    """The form by which a run that waits is published or discarded, and corrections are repeated or reverted.

    No action is chosen but by the link that leads here. `begun`: the DAG run that carries a decision out; then the page
    says so. Airflow shows it in a frame that cannot lead to other pages of Airflow.
    """
    return _decision_page(request, run_id, reader, Decision(action, ""), begun=begun)


@app.post("/decide/{run_id}", response_class=HTMLResponse, include_in_schema=False)
def decide(
    request: Request, run_id: str, reader: ReaderDep, fields: Annotated[dict[str, str], Depends(form_of)]
) -> Response:
    """Start the DAG `decide__<pipeline>` with what was chosen; on to the page that says so."""
    _, dag_id, actions = _decidable(run_id, reader)
    if not is_own_form(fields.get("token", ""), reader.name, run_id):
        raise HTTPException(403, "This form is not from here, or too old. Load it again.")
    decision = Decision(fields.get("action", ""), fields.get("reason", ""))
    if problem := decision.problem(actions):
        return _decision_page(request, run_id, reader, decision, problem)
    begun = started(dag_id, {"run": run_id, "action": decision.action, "reason": decision.reason}, reader.name)
    return RedirectResponse(f"{home_of(request)}decide/{quote(run_id, safe='')}?{urlencode({'begun': begun})}", 303)


_NO_PIPELINE = "There is no such pipeline, or you may not read the runs of its DAGs."


def _standing(pipeline: str, reader: Reader) -> tuple[Standing, list[Run]]:
    """Where a pipeline stands, and the runs that `reader` may read; 404 where the reader may not know of it."""
    if is_pipeline_name(pipeline):
        _, visible = _visible(reader)
        standing = standing_of(pipeline, visible, _store(), reader)
        if standing is not None:
            return standing, visible
    raise HTTPException(404, _NO_PIPELINE)


@app.get("/pipelines/{pipeline}", response_class=HTMLResponse, include_in_schema=False)
def show_pipeline(request: Request, pipeline: str, reader: ReaderDep) -> HTMLResponse:
    """Where a pipeline stands: the history's range, the as-of of the last run, the last runs, policy, owner, links."""
    standing, _ = _standing(pipeline, reader)
    return html_page(request, "pipeline.html.j2", standing=standing, airflow=airflow_of(request))


@app.get("/last/{pipeline}", include_in_schema=False)
def show_last_report(request: Request, pipeline: str, reader: ReaderDep) -> Response:
    """On to the last report of a pipeline: an address that stays."""
    _, visible = _standing(pipeline, reader)
    run = last_reported(pipeline, visible)
    if run is None:
        return html_page(request, "message.html.j2", title="No run yet", text=f"{pipeline} has no run yet.")
    return RedirectResponse(f"{home_of(request)}runs/{quote(run.run_id, safe='')}", 302)


_NO_REPORT = (
    "This run has written no documents yet. Its report appears after its first task, and is complete when the task "
    "`report` has ended."
)


def _without_report(dag_id: str, run_id: str) -> tuple[str, str]:
    """Title and text for a run of a DAG that has written nothing."""
    run = dag_run(dag_id, run_id)
    if run is None or run.state != DagRunState.QUEUED or not is_paused(dag_id):
        return "No report yet", _NO_REPORT
    return (
        "The DAG is paused",
        "Airflow runs no task of a DAG that is paused, and writes no report of a run that was marked as failed "
        f"meanwhile. Both happen when somebody unpauses {dag_id}.",
    )


@app.get("/tab", response_class=HTMLResponse, include_in_schema=False)
def show_tab(
    request: Request,
    reader: ReaderDep,
    dag_id: Annotated[str, Query(max_length=500)],
    run_id: Annotated[str, Query(max_length=500)],
) -> Response:
    """The report of a run of a DAG, for the tab beside it. `run_id` is Airflow's.

    Of a question it is the answer, of a decision the report of the run that was decided about.
    """
    if not reader.may_read(dag_id):
        raise HTTPException(403, "You may not read the runs of this DAG.")
    kind, _, named = dag_id.partition("__")
    if kind == "look" and is_pipeline_name(named):
        return RedirectResponse(f"{home_of(request)}looks/{named}/{quote(run_id, safe='')}", 302)
    decided = dag_run(dag_id, run_id) if kind == "decide" else None
    if decided is not None and decided.conf and isinstance(decided.conf.get("run"), str):
        return RedirectResponse(f"{home_of(request)}runs/{quote(decided.conf['run'], safe='')}", 302)
    if pipeline_of(dag_id) is None:
        return html_page(
            request,
            "message.html.j2",
            title="Not a DAG with reports",
            text="Its runs have no report. The DAGs whose runs have one are named backfill__... and reconcile__...",
        )
    try:
        folder = _store().folder(run_id_of(dag_id, run_id))
    except DefinitionError:
        folder = None
    run = read_run(folder) if folder else None
    # Two DAGs of a pipeline may have runs of the same name, so the folder may belong to the other DAG.
    if folder is None or run is None or run.dag_id != dag_id:
        title, text = ("No report yet", _NO_REPORT) if folder is None else _without_report(dag_id, run_id)
        return html_page(request, "message.html.j2", title=title, text=text)
    _refuse_damaged(run)
    page = with_run_links(report_page(folder), home_of(request))
    return HTMLResponse(page, headers=REPORT_HEADERS | _reloading(run))


# JSON.


@app.get("/api/runs", summary="List runs", responses={401: {"description": "No user"}})
def api_runs(
    reader: ReaderDep,
    wanted: WantedDep,
    page: PageNumber = 1,
    per_page: Annotated[int, Query(ge=1, le=200, description="Runs in a page.")] = PER_PAGE,
) -> Page:
    """The runs that you may read, in pages; the last requested run comes first."""
    runs, visible = _visible(reader)
    return _page(runs, [run for run in visible if wanted.takes(run)], page, per_page, reader)


@app.get(
    "/api/runs/{run_id}",
    summary="Report of a run",
    response_class=JSONResponse,
    responses={
        200: {"description": "`report.json`, format `rewindow-report/1`", "content": {"application/json": {}}},
        401: {"description": "No user"},
        404: {"description": _UNKNOWN},
    },
)
def api_report(run_id: str, reader: ReaderDep) -> Response:
    """The report of a run: its `report.json`, or, where that is missing or outdated, a new one."""
    folder, _ = _folder(run_id, reader)
    return Response(report_bytes(folder), media_type="application/json")


@app.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """The OpenAPI description of this API."""
    return JSONResponse({**app.openapi(), "servers": [{"url": request.scope["root_path"]}]})


# Errors.


_TITLES = {
    401: "Log in to Airflow first",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    422: "Invalid request",
    503: "The run store cannot be read",
    500: "Something went wrong",
}


def _refused(request: Request, status: int, text: str, more: MutableMapping[str, str] | None = None) -> Response:
    """The response to a request that is refused: JSON for the API, else a page."""
    path = request.url.path.removeprefix(request.scope["root_path"])
    if path.startswith(("/api/", "/openapi")):
        return JSONResponse({"detail": text}, status, headers={**headers(), **(more or {})})
    login = ""
    if status == 401:
        login = f"{airflow_of(request)}/api/v2/auth/login?{urlencode({'next': request.url.path})}"
    response = html_page(
        request, "message.html.j2", status, title=_TITLES.get(status, "Refused"), text=text, login=login
    )
    response.headers.update(more or {})
    return response


@app.exception_handler(StarletteHTTPException)
async def _on_refusal(request: Request, refusal: StarletteHTTPException) -> Response:
    return _refused(request, refusal.status_code, str(refusal.detail), dict(refusal.headers or {}))


@app.exception_handler(RequestValidationError)
async def _on_misfit(request: Request, problem: RequestValidationError) -> Response:
    message = "; ".join(f"{error['loc'][-1]}: {error['msg']}" for error in problem.errors())
    return _refused(request, 422, message)


@app.exception_handler(OSError)
@app.exception_handler(EnvironmentSetupError)
async def _on_store(request: Request, problem: OSError | EnvironmentSetupError) -> Response:
    log.error("the run store cannot be read", exc_info=problem)
    return _refused(request, 503, "See the log of the API server. Try again in a moment.")


@app.exception_handler(Exception)
async def _on_error(request: Request, problem: Exception) -> Response:
    return _refused(request, 500, "See the log of the API server.")
