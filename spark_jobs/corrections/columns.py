"""The columns of a destination: which one has a key, a bound of the window, a value, and how a bound is written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spark_jobs.corrections.due import CorrectionScope
from spark_jobs.definition.live import WindowColumns
from spark_jobs.definition.yaml_tree import FieldPath
from spark_jobs.errors import DefinitionError
from spark_jobs.sources.expressions import Refused, refuse

_NAME = re.compile(r"`[^`]+`|[A-Za-z_][A-Za-z0-9_]*")
_PER_MILLISECOND = {"s": "DIV 1000", "ms": "", "us": "* 1000"}


@dataclass(frozen=True, slots=True)
class Columns:
    """The plain column names at a destination. `start`, `end`: of the window's bounds; one may be missing."""

    keys: Mapping[str, str]
    values: Mapping[str, str]
    start: str | None
    end: str | None
    window: WindowColumns

    @property
    def bounds(self) -> dict[str, str]:
        """The columns of the bounds, by `window_start` and `window_end`."""
        pairs = (("window_start", self.start), ("window_end", self.end))
        return {name: column for name, column in pairs if column is not None}


def columns_of(scope: CorrectionScope) -> Columns:
    """The columns that the definition names. Raises DefinitionError where one is an expression, not a column."""
    live, given, pipeline = scope.live, scope.corrections, scope.pipeline
    keys, values = {}, {}
    for name in scope.keys:
        text = given.keys.get(name) or live.keys.get(name) or name
        keys[name] = _plain(scope, text, ("corrections", "keys", name))
    named = given.values or live.values
    for name in scope.values:
        values[name] = _plain(scope, named.get(name) or name, ("corrections", "values", name))
    window = given.window or live.window
    path = ("corrections", "window")
    start = None if window.start is None else _plain(scope, window.start, (*path, "start"))
    end = None if window.end is None else _plain(scope, window.end, (*path, "end"))
    if start is None and pipeline.window.follows_records:
        raise DefinitionError(
            "the destination has no column of the window's start, and sessions need both bounds",
            pipeline.source_of(path) or pipeline.name,
            "Name both under corrections.window.",
        )
    return Columns(keys, values, start, end, window)


def bound_in_sql(instant: str, bound: str, window: WindowColumns, kind: str) -> str:
    """SQL for a bound as the destination writes it. `instant`: SQL of a timestamp; `kind`: the column's type in SQL."""
    text = instant
    if bound == "window_end" and window.inclusive_end:
        text = f"timestamp_millis(unix_millis({instant}) - {window.inclusive_end})"
    if window.time_zone is not None:
        text = f"from_utc_timestamp({text}, '{window.time_zone}')"
    if window.unit in _PER_MILLISECOND:
        return f"CAST(unix_millis({text}) {_PER_MILLISECOND[window.unit]} AS {kind})"
    return f"CAST({text} AS {kind})"


def _plain(scope: CorrectionScope, text: str, path: FieldPath) -> str:
    if _NAME.fullmatch(text):
        return text.strip("`")
    what = f"`{text}` is an expression, and a correction is written into a column"
    raise refuse(scope.pipeline, path, Refused(what, "name a column of the destination"))
