"""Where an SQL expression calls functions of a definition, and with which arguments."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_jobs.spark.expression_tree import nodes_of
from spark_jobs.spark.gateway import JAVA_ERRORS, session_state

FOLD = "rw_fold_"
"""In front of an aggregate's name: the function that takes the list of all records."""
_FILTER = re.compile(r"\s*filter\s*\(", re.IGNORECASE)
_QUOTES = "'\"`"


@dataclass(frozen=True, slots=True)
class Call:
    """A call in a text: its name, where it starts and stops, its arguments, and its FILTER clause if it has one."""

    name: str
    start: int
    stop: int
    arguments: str
    filter: str


def calls_of(spark: SparkSession, text: str, names: Collection[str]) -> list[Call]:
    """The calls of these functions (names in lower case), in the order in which they begin; none in what is no SQL."""
    try:
        nodes = list(nodes_of(session_state(spark).sqlParser().parseExpression(text)))
    except Exception as error:
        if isinstance(error, JAVA_ERRORS) or "ParseException" in type(error).__name__:
            return []
        raise
    found = []
    for node, kind in nodes:
        if kind != "UnresolvedFunction" or node.nameParts().size() != 1:
            continue
        name = node.nameParts().last()
        if name.lower() in names:
            start = node.origin().startIndex().get()
            opened = text.index("(", start)
            closed = _closing(text, opened)
            given = _FILTER.match(text, closed + 1)
            stop = _closing(text, given.end() - 1) if given else closed
            found.append(Call(name.lower(), start, stop + 1, text[opened + 1 : closed], text[closed + 1 : stop + 1]))
    return sorted(found, key=lambda call: call.start)


def _closing(text: str, opened: int) -> int:
    """The bracket that closes the one at `opened`; brackets in quotes do not count."""
    depth, quote, at = 0, "", opened
    while at < len(text):
        letter = text[at]
        if quote:
            if letter == "\\" and quote != "`":
                at += 1
            elif letter == quote:
                quote = ""
        elif letter in _QUOTES:
            quote = letter
        else:
            depth += {"(": 1, ")": -1}.get(letter, 0)
            if depth == 0:
                return at
        at += 1
    raise ValueError(f"no closing bracket in {text!r}")
