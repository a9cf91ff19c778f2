"""The columns that an expectation's row condition names."""

from __future__ import annotations

import re

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
