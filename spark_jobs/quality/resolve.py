"""Fits expectations to one pipeline: columns for placeholders, parameters, and what does not apply left out.

Placeholders stand where GX wants a column, which its own `{"$PARAMETER": ...}` cannot give:

- `$key`: one expectation for each key; `$aggregate`: for each aggregate; `$complete`: for its complete twin (beside
  `$aggregate` in one expectation: the twin of that aggregate);
- in a list of columns `$keys` and `$identity` (the keys, `window_start`, `window_end`, and `pane` where there are
  several rows a window) stand for all of theirs.

Values are GX's suite parameters, `{"$PARAMETER": "range_end_ms"}`; `PARAMETERS` lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.definition.fields import nearest
from spark_jobs.errors import DefinitionError, Problem
from spark_jobs.quality.columns import INPUT_COLUMNS, RECONCILIATION_COLUMNS, window_columns
from spark_jobs.quality.suites import Data, Expectation, Suite, Suites

PARAMETERS = {
    "range_start_ms": "the first window start of the run's range (epoch ms)",
    "range_end_ms": "the end of the run's range (epoch ms): windows start before it",
    "last_arrival_ms": "the as-of vector's processing time (epoch ms)",
    "allowed_lateness_ms": "the definition's allowed lateness",
}
"""The suite parameters that the gate gives to Great Expectations."""

_SCALARS = ("column", "column_A", "column_B")
_LISTS = ("column_list",)
_EACH = ("$key", "$aggregate", "$complete")
_ALL = ("$keys", "$identity")


@dataclass(frozen=True, slots=True)
class Scope:
    """What expectations are fitted to. `kind` None: no run in particular, every condition on it holds.

    `columns` are those that this run's windows have; None: those of a run with both values.
    """

    pipeline: Pipeline
    kind: str | None = None
    identity: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None

    def identity_columns(self) -> tuple[str, ...]:
        if self.identity is not None:
            return self.identity
        by_pane = self.pipeline.panes == "all" or self.is_session
        return (*self.pipeline.keys, "window_start", "window_end", *(("pane",) if by_pane else ()))

    @property
    def is_session(self) -> bool:
        return self.pipeline.window.type == "session"

    def holds(self, condition: str) -> bool:
        """Whether a condition of `meta.when` holds."""
        match condition:
            case "grid":
                return not self.is_session and not getattr(self.pipeline.window, "time_zone", None)
            case "sessions":
                return self.is_session
            case "not_sessions":
                return not self.is_session
            case kind:
                return self.kind in (None, kind)


@dataclass(frozen=True, slots=True)
class Fitted:
    """One expectation that is checked; `kwargs` name real columns."""

    suite: Suite
    written: Expectation
    kwargs: Mapping[str, Any]

    @property
    def column(self) -> str | None:
        """The column that it is about, where it is about one."""
        return self.kwargs.get("column")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One expectation that is not checked in this run, and why."""

    suite: Suite
    written: Expectation
    reason: str


def fit(suites: Suites, scope: Scope) -> tuple[list[Fitted], list[LeftOut]]:
    """What is checked, and what is not.

    Raises DefinitionError that lists every unknown placeholder, column and parameter.
    """
    fitted: list[Fitted] = []
    left_out: list[LeftOut] = []
    problems: list[Problem] = []
    known = {
        Data.INPUT: tuple(INPUT_COLUMNS),
        Data.RECONCILIATION: tuple(RECONCILIATION_COLUMNS),
        Data.WINDOWS: window_columns(scope.pipeline),
    }
    there = {**known, Data.WINDOWS: scope.columns or known[Data.WINDOWS]}
    for suite in suites.suites:
        for written in suite.expectations:
            problems += _unknown_parameters(suite, written)
            reason = _reason_to_leave_out(suites, written, scope)
            for kwargs in _expanded(suite, written, scope, problems.append):
                strange = _unknown_columns(suite, written, kwargs, known[written.data])
                problems += strange
                missing = [] if strange else [c for c in _columns_of(kwargs) if c not in there[written.data]]
                if reason or missing:
                    left_out.append(LeftOut(suite, written, reason or f"this run has no column {missing[0]}"))
                else:
                    fitted.append(Fitted(suite, written, kwargs))
    if problems:
        raise DefinitionError.listing(problems)
    return fitted, left_out


def _reason_to_leave_out(suites: Suites, written: Expectation, scope: Scope) -> str:
    if written.name and f"{written.data}/{written.name}" in suites.left_out:
        return "the pipeline's suite leaves it out"
    return next((f"only when: {name}" for name in written.when if not scope.holds(name)), "")


def _expanded(
    suite: Suite, written: Expectation, scope: Scope, tell: Callable[[Problem], None]
) -> list[dict[str, Any]]:
    kwargs = dict(written.kwargs)
    everything = {"$keys": tuple(scope.pipeline.keys), "$identity": scope.identity_columns()}
    for name in _LISTS:
        if isinstance(kwargs.get(name), list):
            kwargs[name] = [c for item in kwargs[name] for c in everything.get(str(item), (item,))]
    asked = {name: kwargs[name] for name in _SCALARS if str(kwargs.get(name, "")).startswith("$")}
    for name, placeholder in asked.items():
        if placeholder not in _EACH:
            place = (*written.place, "kwargs", name)
            what = f"{placeholder!r} is no placeholder for a column"
            tell(suite.problem(place, what, f"write one of {', '.join(_EACH)}, or a column"))
            return []
    if not asked:
        return [kwargs]
    if "$key" in asked.values() and set(asked.values()) != {"$key"}:
        tell(suite.problem((*written.place, "kwargs"), "keys and aggregates do not go together", "write two of it"))
        return []
    names: Sequence[str] = tuple(scope.pipeline.keys if "$key" in asked.values() else scope.pipeline.aggregates)
    return [
        {**kwargs, **{k: f"{name}__complete" if p == "$complete" else name for k, p in asked.items()}} for name in names
    ]


def _columns_of(kwargs: Mapping[str, Any]) -> list[str]:
    scalars = [kwargs[name] for name in _SCALARS if isinstance(kwargs.get(name), str)]
    return scalars + [c for name in _LISTS if isinstance(kwargs.get(name), list) for c in kwargs[name]]


def _unknown_columns(
    suite: Suite, written: Expectation, kwargs: Mapping[str, Any], known: Sequence[str]
) -> list[Problem]:
    problems = []
    for column in _columns_of(kwargs):
        if column not in known:
            near = nearest(str(column), known)
            hint = f"did you mean `{near}`?" if near else f"the columns are {', '.join(known)}"
            place = (*written.place, "kwargs")
            what = f"{written.type}: {str(column)[:60]!r} is no column of the {written.data}"
            problems.append(suite.problem(place, what, hint))
    return problems


def _unknown_parameters(suite: Suite, written: Expectation) -> list[Problem]:
    problems = []
    for name, value in written.kwargs.items():
        asked = value.get("$PARAMETER") if isinstance(value, dict) else None
        if asked is not None and asked not in PARAMETERS:
            place = (*written.place, "kwargs", name)
            known = ", ".join(PARAMETERS)
            problems.append(suite.problem(place, f"{str(asked)[:60]!r} is no parameter", f"the gate gives {known}"))
    return problems
