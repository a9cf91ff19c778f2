"""The pages as HTML, and the headers that every answer carries. Without a script; every value is escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from spark_jobs import formatting

_POLICY = (
    "default-src 'none'; style-src {styles}; img-src data:; frame-ancestors 'self'; base-uri 'none'; form-action 'self'"
)
_PARTS = '<header class="top">'


def headers(styles: str = "'none'") -> dict[str, str]:
    """Of every answer. `styles`: what the policy allows as style."""
    return {
        "Content-Security-Policy": _POLICY.format(styles=styles),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "private, no-store",
    }


REPORT_HEADERS = headers("'unsafe-inline'")
"""Of a stored report: its charts carry styles of their own."""


def rendered(template: str, **values: Any) -> tuple[str, dict[str, str]]:
    """A page of Rewindow's, and its headers, which allow its own style sheet and no other."""
    css = _style()
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return _environment().get_template(template).render(css=Markup(css), **values), headers(f"'sha256-{digest}'")


def with_way_back(report: str, home: str) -> str:
    """A stored report with a link to all runs after its skip link."""
    bar = Markup('<nav class="parts" aria-label="Rewindow"><ul><li><a href="{}">All runs</a></li></ul></nav>\n')
    return report.replace(_PARTS, f"{bar.format(home)}{_PARTS}", 1)


@cache
def _style() -> str:
    """The report's style, then what the lists add to it."""
    sheets = (files("spark_jobs.report") / "templates/report.css", files("spark_jobs.web") / "templates/web.css")
    return "\n".join(sheet.read_text() for sheet in sheets)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("spark_jobs.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plain=formatting.plain, count=formatting.count, plural=formatting.plural)
    environment.globals.update(percent=formatting.percent)
    return environment
