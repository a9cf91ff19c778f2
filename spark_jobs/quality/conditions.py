"""The columns that an expectation's row condition, or a query of it, names."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_NO_NAME = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\bas\s+\w+(?:\([\d, ]*\))?", re.IGNORECASE)
"""Text in quotes, and the type behind AS."""
_GX_COLUMN = re.compile(r"\bcol\(\s*['\"]([^'\"]+)['\"]\s*\)")
_NAME = re.compile(r"`([^`]+)`|(?<![\w.])([A-Za-z_]\w*)(?!\w|\s*\()")
_WORDS = frozenset(
    {
        *("and", "or", "not", "is", "null", "notnull", "in", "between", "like", "rlike", "escape", "div", "true"),
        *("false", "none", "nan", "case", "when", "then", "else", "end", "date", "timestamp", "interval", "day"),
        *("days", "hour", "hours", "minute", "minutes", "second", "seconds", "month", "months", "year", "years"),
    }
)

_OF_QUERIES = _WORDS | {
    *("select", "distinct", "all", "from", "where", "group", "order", "sort", "by", "having", "limit", "offset", "asc"),
    *("desc", "nulls", "first", "last", "over", "partition", "rows", "range", "unbounded", "preceding", "following"),
    *("current", "row", "filter", "within", "exists", "any", "some", "ilike", "regexp", "similar", "to", "rollup"),
    *("cube", "grouping", "sets", "week", "weeks", "quarter", "window", "qualify", "tablesample", "percent", "both"),
    *("leading", "trailing", "for", "current_date", "current_timestamp", "unknown", "collate", "using", "millisecond"),
    *("milliseconds", "microsecond", "microseconds", "dayofweek", "doy", "dow", "epoch", "timestamp_ntz", "at", "zone"),
    *("timestamp_ltz", "time", "string", "int", "bigint", "double", "boolean", "decimal", "default", "distribute"),
}
_BATCH = re.compile(r"\{batch\}(?:\s+(?:as\s+)?([A-Za-z_]\w*))?", re.IGNORECASE)
_ALIAS = re.compile(
    r"\bas\s+`?([A-Za-z_]\w*)|[)`\w](?<!\bselect)(?<!\bdistinct)\s+`?([A-Za-z_]\w*)`?\s*(?=,|\bfrom\b)", re.IGNORECASE
)
_TOO_MUCH = re.compile(
    r"\bselect\b.*\bselect\b|\b(with|join|union|lateral|table|values|pivot|unpivot)\b|->|\$", re.I | re.S
)
"""Other tables, queries within queries, lambda functions: names may be theirs."""


def columns_of_query(query: object) -> list[str]:
    """The columns that a query over `{batch}` names; none where it reads more than that, so that they are not known."""
    if not isinstance(query, str):
        return []
    plain = re.sub(r"--[^\n]*|/\*.*?\*/", " ", _QUOTED.sub("''", query), flags=re.DOTALL)
    batch = _BATCH.search(plain)
    if batch is None or _TOO_MUCH.search(plain) or len(_BATCH.findall(plain)) != 1:
        return []
    alias = (batch[1] or "").lower()
    own = {name.lower() for found in _ALIAS.findall(plain) for name in found if name}
    if alias and alias not in _OF_QUERIES:
        plain = re.sub(rf"\b{alias}\.", "", plain, flags=re.IGNORECASE)
        own.add(alias)
    names = (quoted or name for quoted, name in _NAME.findall(_NO_NAME.sub(" ", _BATCH.sub(_without_alias, plain))))
    return [name for name in names if name.lower() not in _OF_QUERIES | own]


def _without_alias(batch: re.Match[str]) -> str:
    word = batch[1] or ""
    return f" {word}" if word.lower() in _OF_QUERIES else " "


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
            return [name for name in names if name.lower() not in _WORDS]
    return []
