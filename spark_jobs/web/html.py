"""What the routes share: HTML pages, the addresses of Airflow's pages and of ours, and the fields of forms."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse

from spark_jobs.web.pages import dag_run_page, rendered

_LONGEST_FORM = 20_000
"""Bytes."""


def html_page(request: Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A page of this app."""
    home = home_of(request)
    text, safe = rendered(template, home=home, run_url=lambda i: f"{home}runs/{quote(i, safe='')}", **values)
    return HTMLResponse(text, status, headers=safe)


def home_of(request: Request) -> str:
    """The path of the list of runs. It has no host, so no header of the request can redirect to another one."""
    return f"{request.scope['root_path']}/"


def airflow_of(request: Request) -> str:
    """The path of Airflow's own pages, without a slash at its end."""
    return request.scope["root_path"].removesuffix("/rewindow")


def dag_run_url(request: Request, dag_id: str, dag_run_id: str) -> str:
    """The page of a run of a DAG in Airflow."""
    return dag_run_page(airflow_of(request), dag_id, dag_run_id)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that was sent, as UTF-8 text."""
    body = await request.body()
    if len(body) > _LONGEST_FORM:
        raise HTTPException(413, "The form is too long.")
    fields = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20)
    return {name: value.strip() for name, value in fields}
