"""Fits expectations to one pipeline: replaces placeholders by columns, and leaves out what does not apply.

A placeholder stands in the place of a column, where GX's own `{"$PARAMETER": ...}` is not possible:

- `$key` gives one expectation for each key, `$aggregate` one for each aggregate, `$complete` one for each complete
  value (together with `$aggregate` in one expectation: the complete value of that aggregate);
- in a list of columns, `$keys` and `$identity` (the keys, `window_start`, `window_end`, and `pane` where a window has
  several rows) stand for all of those columns.

Values are GX's suite parameters, `{"$PARAMETER": "range_end_ms"}`; `PARAMETERS` lists them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.definition import Pipeline
from spark_jobs.definition.fields import nearest
from spark_jobs.errors import DefinitionError, Problem
from spark_jobs.quality.columns import INPUT_COLUMNS, RECONCILIATION_COLUMNS, window_columns
from spark_jobs.quality.live import LIVE_COLUMNS
from spark_jobs.quality.suites import Data, Expectation, Suite, Suites

PARAMETERS = {
    "range_start_ms": "the first window start of the run's range (epoch ms)",
    "range_end_ms": "the end of the run's range (epoch ms): windows start before it",
    "last_arrival_ms": "the processing time up to which timers ran (epoch ms)",
    "allowed_lateness_ms": "the definition's allowed lateness",
}
"""The suite parameters that the gate gives to Great Expectations."""

_SCALARS = ("column", "column_A", "column_B")
_LISTS = ("column_list",)
_QUERIES = ("unexpected_rows_query", "base_query")
_EACH = ("$key", "$aggregate", "$complete")


@dataclass(frozen=True, slots=True)
class SuiteScope:
    """The pipeline and run that expectations are fitted to.

    `kind`: backfill or reconcile; None: no run in particular, so that conditions on the kind hold. `columns`: those of
    the run's windows; None: those of a run with faithful and complete values. `compares`: the run has compared what the
    live job emitted.
    """

    pipeline: Pipeline
    kind: str | None = None
    identity: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    compares: bool = True

    def identity_columns(self) -> tuple[str, ...]:
        """The columns that identify a row of the windows."""
        if self.identity is not None:
            return self.identity
        by_pane = self.pipeline.panes == "all" or self.is_session
        return (*self.pipeline.keys, "window_start", "window_end", *(("pane",) if by_pane else ()))

    @property
    def is_session(self) -> bool:
        return self.pipeline.window.follows_records

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
        """Its column, if it is about exactly one."""
        return self.kwargs.get("column")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One expectation that is not checked in this run, and why."""

    suite: Suite
    written: Expectation
    reason: str


def fit(suites: Suites, scope: SuiteScope) -> tuple[list[Fitted], list[LeftOut]]:
    """The expectations that are checked, and those that are not.

    Raises:
        DefinitionError: it lists every unknown placeholder, column and parameter.
    """
    fitted: list[Fitted] = []
    left_out: list[LeftOut] = []
    problems: list[Problem] = []
    known = {
        Data.INPUT: tuple(INPUT_COLUMNS),
        Data.RECONCILIATION: tuple(RECONCILIATION_COLUMNS),
        Data.WINDOWS: window_columns(scope.pipeline),
        Data.LIVE: tuple(LIVE_COLUMNS),
    }
    present = {**known, Data.WINDOWS: scope.columns or known[Data.WINDOWS]}
    for suite in suites.suites:
        for written in suite.expectations:
            problems += _unknown_parameters(suite, written)
            reason = _reason_to_leave_out(suites, written, scope)
            for kwargs in _expanded(suite, written, scope, problems.append):
                unknown = _unknown_columns(suite, written, kwargs, known[written.data])
                problems += unknown
                missing = [] if unknown else [c for c in _columns_of(kwargs) if c not in present[written.data]]
                if reason or missing:
                    left_out.append(LeftOut(suite, written, reason or f"this run has no column {missing[0]}"))
                else:
                    fitted.append(Fitted(suite, written, kwargs))
    if problems:
        raise DefinitionError.listing(problems)
    return fitted, left_out


def _reason_to_leave_out(suites: Suites, written: Expectation, scope: SuiteScope) -> str:
    if written.name and f"{written.data}/{written.name}" in suites.left_out:
        return "the pipeline's suite leaves it out"
    if written.data is Data.LIVE and not scope.compares:
        return "the run has not compared the live job's windows"
    return next((f"only when: {name}" for name in written.when if not scope.holds(name)), "")


def _expanded(
    suite: Suite, written: Expectation, scope: SuiteScope, report: Callable[[Problem], None]
) -> list[dict[str, Any]]:
    kwargs = dict(written.kwargs)
    everything = {"$keys": tuple(scope.pipeline.keys), "$identity": scope.identity_columns()}
    for name in _LISTS:
        if isinstance(kwargs.get(name), list):
            kwargs[name] = [c for item in kwargs[name] for c in everything.get(str(item), (item,))]
    placeholders = {name: kwargs[name] for name in _SCALARS if str(kwargs.get(name, "")).startswith("$")}
    for name, placeholder in placeholders.items():
        if placeholder not in _EACH:
            place = (*written.place, "kwargs", name)
            what = f"{placeholder!r} is no placeholder for a column"
            report(suite.problem(place, what, f"write one of {', '.join(_EACH)}, or a column"))
            return []
    if not placeholders:
        return [kwargs]
    if "$key" in placeholders.values() and set(placeholders.values()) != {"$key"}:
        report(
            suite.problem(
                (*written.place, "kwargs"), "keys and aggregates do not go together", "write one expectation for each"
            )
        )
        return []
    names: Sequence[str] = tuple(scope.pipeline.keys if "$key" in placeholders.values() else scope.pipeline.aggregates)
    return [
        {**kwargs, **{k: f"{name}__complete" if p == "$complete" else name for k, p in placeholders.items()}}
        for name in names
    ]


def _columns_of(kwargs: Mapping[str, Any]) -> list[str]:
    scalars = [kwargs[name] for name in _SCALARS if isinstance(kwargs.get(name), str)]
    return scalars + [c for name in _LISTS if isinstance(kwargs.get(name), list) for c in kwargs[name]]


def _unknown_columns(
    suite: Suite, written: Expectation, kwargs: Mapping[str, Any], known: Sequence[str]
) -> list[Problem]:
    problems = []
    queried = [column for name in _QUERIES for column in columns_of_query(kwargs.get(name))]
    for column in (*_columns_of(kwargs), *columns_of_condition(kwargs.get("row_condition")), *queried):
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
        parameter = value.get("$PARAMETER") if isinstance(value, dict) else None
        if parameter is not None and str(parameter) not in PARAMETERS:
            place = (*written.place, "kwargs", name)
            known = ", ".join(PARAMETERS)
            problems.append(suite.problem(place, f"{str(parameter)[:60]!r} is no parameter", f"the gate gives {known}"))
    return problems


_NO_NAME = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\bas\s+\w+(?:\([\d, ]*\))?", re.IGNORECASE)
"""Text in quotes, and the type behind AS."""
_GX_COLUMN = re.compile(r"\bcol\(\s*['\"]([^'\"]+)['\"]\s*\)")
_NAME = re.compile(r"`([^`]+)`|(?<![\w.])([A-Za-z_]\w*)(?!\w|\s*\()")
WORDS = frozenset(
    {
        *("and", "or", "not", "is", "null", "notnull", "in", "between", "like", "rlike", "escape", "div", "true"),
        *("false", "none", "nan", "case", "when", "then", "else", "end", "date", "timestamp", "interval", "day"),
        *("days", "hour", "hours", "minute", "minutes", "second", "seconds", "month", "months", "year", "years"),
    }
)
"""Words of SQL that no condition means as a column."""


def columns_of_condition(condition: object) -> list[str]:
    """The columns of a condition: text of Great Expectations, pandas or Spark, or a condition's document."""
    match condition:
        case {"column": {"name": str(name)}, **rest}:
            return [name, *columns_of_condition(rest)]
        case dict():
            return [name for value in condition.values() for name in columns_of_condition(value)]
        case list():
            return [name for value in condition for name in columns_of_condition(value)]
        case str() if found := _GX_COLUMN.findall(condition):
            return found
        case str() if not condition.isidentifier():
            names = (quoted or plain for quoted, plain in _NAME.findall(_NO_NAME.sub(" ", condition)))
            return [name for name in names if name.lower() not in WORDS]
    return []


_WORDS = WORDS | {
    *("select", "with", "recursive", "join", "inner", "left", "right", "full", "outer", "cross", "semi", "anti"),
    *("natural", "on", "union", "intersect", "except", "minus"),
    *("distinct", "all", "from", "where", "group", "order", "sort", "by", "having", "limit", "offset", "asc"),
    *("desc", "nulls", "first", "last", "over", "partition", "rows", "range", "unbounded", "preceding", "following"),
    *("current", "row", "filter", "within", "exists", "any", "some", "ilike", "regexp", "similar", "to", "rollup"),
    *("cube", "grouping", "sets", "week", "weeks", "quarter", "window", "qualify", "tablesample", "percent", "both"),
    *("leading", "trailing", "for", "current_date", "current_timestamp", "unknown", "collate", "using", "millisecond"),
    *("milliseconds", "microsecond", "microseconds", "dayofweek", "doy", "dow", "epoch", "timestamp_ntz", "at", "zone"),
    *("timestamp_ltz", "time", "string", "int", "bigint", "double", "boolean", "decimal", "default", "distribute"),
}
_OTHER_NAMES = {"lateral", "table", "values", "pivot", "unpivot"}
"""What gives names that are not told here."""
_BATCH = "{batch}"
_TOKEN = re.compile(
    r"(?P<no>--[^\n]*|/\*.*?\*/|\s+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\d[\w.]*)"
    r"|(?P<name>`[^`]+`|[a-z_]\w*)|(?P<batch>\{batch\})|(?P<sign>->|.)",
    re.IGNORECASE | re.DOTALL,
)
_TEXT = "''"


def columns_of_query(query: object) -> list[str]:
    """The columns that a query over `{batch}` names; none where it reads other tables, so that they are not known."""
    tokens = _tokens(query) if isinstance(query, str) else []
    try:
        given = _given(tokens)
    except ValueError:  # brackets do not match; Spark says so
        return []
    if _BATCH not in tokens or _OTHER_NAMES.intersection(tokens) or "$" in tokens or _reads_others(tokens, given):
        return []
    found = []
    for before, token, after in _with_neighbours(tokens):
        is_field = before[-1:] == ["."] and before[0].strip("`").lower() not in given
        is_function = after[:1] == ["("] and not token.startswith("`")
        is_type = before[-1:] in (["as"], [":"])
        is_argument = after == ["=", ">"]
        if _is_name(token) and not (is_field or is_function or is_type or is_argument):
            found.append(token.strip("`"))
    return [name for name in found if name.lower() not in given]


def _tokens(query: str) -> list[str]:
    """The query's words and signs: words of SQL in lower case, each text and number as an empty text."""
    found = []
    for match in _TOKEN.finditer(query):
        token = match[0]
        if match["text"]:
            found.append(_TEXT)
        elif not match["no"]:
            found.append(token.lower() if token.lower() in _WORDS | _OTHER_NAMES | {_BATCH, "as"} else token)
    return found


def _with_neighbours(tokens: Sequence[str]) -> list[tuple[list[str], str, list[str]]]:
    return [(list(tokens[max(0, i - 2) : i]), token, list(tokens[i + 1 : i + 3])) for i, token in enumerate(tokens)]


def _is_name(token: str) -> bool:
    return bool(re.match(r"[`A-Za-z_]", token)) and token not in _WORDS | _OTHER_NAMES | {"as"}


def _given(tokens: Sequence[str]) -> set[str]:
    """Names in lower case that the query itself gives: to columns, tables, queries, variables of lambda functions."""
    found: set[str] = set()
    for index, (before, token, after) in enumerate(_with_neighbours(tokens)):
        follows_a_value = before and (before[-1] in (")", _TEXT, _BATCH, "as", "end") or _is_name(before[-1]))
        if _is_name(token) and (follows_a_value or after[:1] == ["->"] or after == ["as", "("]):
            found.add(token.strip("`").lower())
            opening = index + 1
        elif token == "->" and before[-1:] == [")"]:
            opening = len(tokens) - 1 - tokens[::-1].index("(", len(tokens) - index)
        else:
            continue
        if tokens[opening : opening + 1] == ["("]:  # the columns of a sub-query, or variables
            names = tokens[opening + 1 : tokens.index(")", opening)]
            found |= {name.lower() for name in names if _is_name(name)}
    return found


def _reads_others(tokens: Sequence[str], given: set[str]) -> bool:
    """Whether the query reads another table than the batch and what it makes of it."""
    for index, token in enumerate(tokens[:-1]):
        if token not in ("from", "join"):
            continue
        source, *behind = tokens[index + 1 : index + 4]
        is_other = _is_name(source) and (source.lower() not in given or behind[:1] == ["."])
        if is_other or "," in behind:  # tables behind commas are not told from columns
            return True
    return False
