"""The page: the definitions side by side, one picture, and windows that differ. No script, nothing from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from jinja2 import Environment

from spark_jobs import formatting
from spark_jobs.report.page import templates_of
from spark_jobs.whatif.found import Measured, WhatIf

WIDTH, HEIGHT, _LEFT, _TOP = 720, 240, 40, 20


@dataclass(frozen=True)
class Dot:
    """A definition in the picture, in pixels: to the right the delay of its first values, upwards what it drops."""

    x: float
    y: float
    number: int
    name: str


def dots_of(found: WhatIf) -> list[Dot]:
    """The definitions whose windows closed; both axes begin at 0."""
    shown = [(number, one) for number, one in enumerate(found.definitions, 1) if one.first is not None]
    longest = max((_delay(one) for _, one in shown), default=0) or 1
    most = max((one.dropped for _, one in shown), default=0) or 1
    return [
        Dot(
            round(_LEFT + (WIDTH - 2 * _LEFT) * max(0, _delay(one)) / longest, 1),
            round(HEIGHT - _TOP - (HEIGHT - 2 * _TOP) * one.dropped / most, 1),
            number,
            one.name,
        )
        for number, one in shown
    ]


def _delay(one: Measured) -> int:
    return 0 if one.first is None else one.first.median


def render(found: WhatIf) -> str:
    """The page as HTML; every name and value is escaped."""
    template = _environment().get_template("what_if.html.j2")
    return template.render(r=found, dots=dots_of(found), width=WIDTH, height=HEIGHT, left=_LEFT, top=_TOP)


@cache
def _environment() -> Environment:
    environment = templates_of("spark_jobs.whatif")
    environment.filters.update(duration=formatting.length)
    return environment
