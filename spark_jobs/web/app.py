"""What Airflow's API server serves under /rewindow: the list of runs, their reports, and both as JSON.

Every route needs a user of Airflow (the app's own dependency), and shows runs of the DAGs that this user may read.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping, Sequence
from datetime import date
from functools import cache
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from airflow.api_fastapi.core_api.security import get_user
from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from spark_jobs import __version__
from spark_jobs.errors import DefinitionError, EnvironmentSetupError
from spark_jobs.orchestration.run_ids import pipeline_of, run_id_of
from spark_jobs.runs.store import RunFolder, RunStore
from spark_jobs.web.access import Reader, ReaderDep
from spark_jobs.web.listing import PER_PAGE, Page, Wanted, page_of
from spark_jobs.web.pages import REPORT_HEADERS, headers, rendered, with_way_back
from spark_jobs.web.reports import report_bytes, report_page
from spark_jobs.web.runs import Run, Runs, read_run
from spark_jobs.web.trend import LONGEST, trends_of

log = logging.getLogger(__name__)

MAX_TRENDS = 12
"""Pipelines whose trend a page shows."""

_UNKNOWN = "There is no such run, or it is of a DAG that you may not read."


class SafeHeaders:
    """Puts the headers of `pages.headers` on every answer that has not set its own."""

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
    description="Runs of Rewindow and their reports. Needs a user of Airflow: the session's cookie, or a bearer token.",
    version=__version__,
    dependencies=[Depends(get_user)],
    redirect_slashes=False,  # it would answer before it asks who is there
    docs_url=None,  # would load scripts from elsewhere
    redoc_url=None,
    openapi_url=None,  # served below, to users only
)
app.add_middleware(SafeHeaders)


# What is asked for.


def _store() -> RunStore:
    return RunStore.configured()


@cache
def _runs_of(url: str) -> Runs:
    return Runs(RunStore(url))


_DAY = r"^(\d{4}-\d{2}-\d{2})?$"


def _wanted(
    pipeline: Annotated[str, Query(max_length=200, description="Only runs of this pipeline.")] = "",
    status: Annotated[
        str, Query(max_length=60, description="Only runs with this status, as in `outcome.json`; `running`: none yet.")
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
        raise HTTPException(422, f"A day of the calendar is needed: {problem}.") from problem
    return Wanted(pipeline, status, *days)


WantedDep = Annotated[Wanted, Depends(_wanted)]
PageNumber = Annotated[int, Query(ge=1, le=1_000_000, description="Which page; they count from 1.")]


def _folder(run_id: str, reader: Reader) -> tuple[RunFolder, Run]:
    """The folder of a run that `reader` may read. Any other run is answered like one that is not there."""
    try:
        folder = _store().folder(run_id)
    except DefinitionError as problem:
        raise HTTPException(404, _UNKNOWN) from problem
    run = read_run(folder)
    if run is None or not reader.may_read(run.dag_id):
        raise HTTPException(404, _UNKNOWN)
    return folder, run


def _visible(reader: Reader) -> tuple[Runs, list[Run]]:
    runs = _runs_of(_store().url)
    return runs, [run for run in runs.all() if reader.may_read(run.dag_id)]


def _page(runs: Runs, found: Sequence[Run], page: int, per_page: int, reader: Reader) -> Page:
    """A page of runs, as they are at this moment."""
    part = page_of(found, page, per_page)
    now = [run for run in runs.now(part.runs) if reader.may_read(run.dag_id)]
    return Page(now, part.total, part.page, part.pages)


# Pages.


def _html(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    home = _home(request)
    text, safe = rendered(template, home=home, run_url=lambda i: f"{home}runs/{quote(i, safe='')}", **values)
    return HTMLResponse(text, status, headers=safe)


def _home(request: Request) -> str:
    """The address of the list: a path, so that no header of the request leads elsewhere."""
    return f"{request.scope['root_path']}/"


@app.get("/", response_class=HTMLResponse, include_in_schema=False)
def list_runs(request: Request, reader: ReaderDep, wanted: WantedDep, page: PageNumber = 1) -> HTMLResponse:
    """All runs that the reader may see, last requested first."""
    runs, visible = _visible(reader)
    in_reach = [run for run in visible if wanted.takes_but_for_status(run)]
    part = _page(runs, [run for run in in_reach if wanted.takes(run)], page, PER_PAGE, reader)
    trends = trends_of(in_reach)
    query = wanted.query()
    statuses = {run.status: run.status_title for run in visible} | (
        {wanted.status: wanted.status} if wanted.status else {}
    )
    return _html(
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
        page_url=lambda number: f"{_home(request)}?{urlencode({**query, 'page': number})}",
    )


@app.get("/runs/{run_id}", response_class=HTMLResponse, include_in_schema=False)
def show_report(request: Request, run_id: str, reader: ReaderDep) -> HTMLResponse:
    """The report of a run."""
    folder, _ = _folder(run_id, reader)
    return HTMLResponse(with_way_back(report_page(folder), _home(request)), headers=REPORT_HEADERS)


@app.get("/tab", response_class=HTMLResponse, include_in_schema=False)
def show_tab(
    request: Request,
    reader: ReaderDep,
    dag_id: Annotated[str, Query(max_length=500)],
    run_id: Annotated[str, Query(max_length=500)],
) -> HTMLResponse:
    """The report of a run of a DAG, for the tab beside it. `run_id` is Airflow's."""
    if not reader.may_read(dag_id):
        raise HTTPException(403, "You may not read the runs of this DAG.")
    pipeline = pipeline_of(dag_id)
    if pipeline is None:
        return _html(
            request,
            "message.html.j2",
            title="Nothing of Rewindow here",
            text="This DAG is not one of Rewindow's, so its runs have no report. Rewindow's DAGs are named "
            "backfill__ or reconcile__ and a pipeline.",
        )
    try:
        folder = _store().folder(run_id_of(dag_id, run_id))
    except DefinitionError:
        folder = None
    run = read_run(folder) if folder else None
    # Two DAGs of a pipeline may have runs of one name: what is there may be the other's.
    if run is None or run.dag_id != dag_id:
        return _html(
            request,
            "message.html.j2",
            title="No report yet",
            text="This run has written nothing down so far. Its report begins with its first task, and is whole when "
            "the task `report` has ended.",
        )
    return HTMLResponse(report_page(folder), headers=REPORT_HEADERS)


# JSON.


@app.get("/api/runs", summary="List runs", responses={401: {"description": "No user"}})
def api_runs(
    reader: ReaderDep,
    wanted: WantedDep,
    page: PageNumber = 1,
    per_page: Annotated[int, Query(ge=1, le=200, description="Runs in a page.")] = PER_PAGE,
) -> Page:
    """The runs that you may read, last requested first, in pages."""
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
    """The report of a run, as its `report.json` has it, or as it would be now."""
    folder, _ = _folder(run_id, reader)
    return Response(report_bytes(folder), media_type="application/json")


@app.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """The description of this API."""
    return JSONResponse({**app.openapi(), "servers": [{"url": request.scope["root_path"]}]})


# What goes wrong.


_TITLES = {
    401: "Log in to Airflow first",
    403: "Not for you",
    404: "Not found",
    405: "Not possible",
    422: "Not understood",
    503: "The run store does not answer",
    500: "Something went wrong",
}


def _refused(request: Request, status: int, text: str, more: MutableMapping[str, str] | None = None) -> Response:
    """An answer that says no: JSON to machines, a page to people."""
    path = request.url.path.removeprefix(request.scope["root_path"])
    if path.startswith(("/api/", "/openapi")):
        return JSONResponse({"detail": text}, status, headers={**headers(), **(more or {})})
    login = ""
    if status == 401:
        airflow = request.scope["root_path"].removesuffix("/rewindow")
        login = f"{airflow}/api/v2/auth/login?{urlencode({'next': request.url.path})}"
    response = _html(request, "message.html.j2", status, title=_TITLES.get(status, "Refused"), text=text, login=login)
    response.headers.update(more or {})
    return response


@app.exception_handler(StarletteHTTPException)
async def _on_refusal(request: Request, refusal: StarletteHTTPException) -> Response:
    return _refused(request, refusal.status_code, str(refusal.detail), dict(refusal.headers or {}))


@app.exception_handler(RequestValidationError)
async def _on_misfit(request: Request, problem: RequestValidationError) -> Response:
    told = "; ".join(f"{error['loc'][-1]}: {error['msg']}" for error in problem.errors())
    return _refused(request, 422, told)


@app.exception_handler(OSError)
@app.exception_handler(EnvironmentSetupError)
async def _on_store(request: Request, problem: OSError | EnvironmentSetupError) -> Response:
    log.error("the run store does not answer", exc_info=problem)
    return _refused(request, 503, "The server's log says why. Try again in a moment.")


@app.exception_handler(Exception)
async def _on_error(request: Request, problem: Exception) -> Response:
    return _refused(request, 500, "The server's log says why.")
