"""The columns that a query of an expectation names. Its words are looked at, not its grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence

from spark_jobs.quality.conditions import WORDS

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
