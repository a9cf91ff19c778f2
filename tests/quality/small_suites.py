"""A pipeline's own suite, written by a test."""

from __future__ import annotations

import json

BETWEEN = "expect_column_values_to_be_between"


def own(*expectations: dict, **meta) -> str:
    """The text of a pipeline's own suite."""
    return json.dumps({"name": "own", "meta": {"data": "windows"} | meta, "expectations": list(expectations)}, indent=1)


def between(**more) -> dict:
    return {"type": BETWEEN, "kwargs": {"column": "flights", "min_value": 0}, "severity": "warning"} | more
