"""HTML pages, the headers of every response, the addresses of Airflow's pages and of ours, and the fields of forms.

The pages have no scripts; all values are escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, quote

from fastapi import HTTPException, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import Markup

from spark_jobs.report.page import templates_of
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.web.summary import Run

_POLICY = (
    "default-src 'none'; style-src {styles}; img-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
)
_PARTS = '<header class="top">'
_PAGE_LINK = re.compile(r'<span data-page="([^"<>]+)" data-label="([^"<>]+)"></span>')
_RUN_LINK = re.compile(r'href="\.\./([^"/]+)/report\.html"')


def headers(styles: str = "'none'") -> dict[str, str]:
    """The headers of every response. `styles`: the sources that the content security policy allows for styles."""
    return {
        "Content-Security-Policy": _POLICY.format(styles=styles),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, no-store",
    }


REPORT_HEADERS = headers("'unsafe-inline'")
"""The headers of a report, whose charts have inline styles."""


def rendered(template: str, **values: Any) -> tuple[str, dict[str, str]]:
    """A page of this app, and its headers, which allow only its own style sheet."""
    css = _style()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return _environment().get_template(template).render(css=Markup(css), **values), headers(f"'sha256-{digest}'")


def with_links(report: str, home: str, airflow: str, run: Run) -> str:
    """A report with links at its top: the list of runs, the run in Airflow, and the approval that it waits for.

    `airflow`: the path of Airflow's own pages, without a slash at its end.
    """
    links = {"All runs": home}
    if run.dag_id and run.dag_run_id:
        place = dag_run_page(airflow, run.dag_id, run.dag_run_id)
        links["This run in Airflow"] = place
        if run.status == RunStatus.AWAITING_APPROVAL:
            links["Answer the approval"] = f"{place}/tasks/approve/required_actions"
    # No target: Airflow's tab is a frame whose links may lead to other pages in the frame, but not out of it.
    item = Markup('<li><a href="{}">{}</a></li>')
    items = Markup("").join(item.format(to, name) for name, to in links.items())
    bar = Markup('<nav class="parts" aria-label="Rewindow"><ul>{}</ul></nav>\n').format(items)
    return report.replace(_PARTS, f"{bar}{_PARTS}", 1)


def dag_run_page(airflow: str, dag_id: str, dag_run_id: str) -> str:
    """The page of a run of a DAG; `airflow` as for `with_links`."""
    return f"{airflow}/dags/{quote(dag_id, safe='')}/runs/{quote(dag_run_id, safe='')}"


def with_run_links(report: str, home: str) -> str:
    """A report whose links lead to pages here: to that of the run before, not to a file beside it; to forms."""
    linked = _RUN_LINK.sub(lambda found: f'href="{home}runs/{found[1]}"', report)
    return _PAGE_LINK.sub(lambda found: f'<a href="{home}{found[1]}">{found[2]}</a>', linked)


@cache
def _style() -> str:
    """The style sheet of the report, followed by that of the lists."""
    sheets = (files("spark_jobs.report") / "templates/report.css", files("spark_jobs.web") / "templates/web.css")
    return "\n".join(sheet.read_text() for sheet in sheets)


@cache
def _environment() -> Environment:
    return templates_of("spark_jobs.web")


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
