"""Who is to be forgotten: a condition on columns of the definition, of equalities alone.

The condition's text never reaches a query. Spark's parser reads it; what is kept of it are names of columns that are
there, and values.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.definition.fields import nearest
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.tables import literal
from spark_jobs.spark.expression_tree import children_of
from spark_jobs.spark.gateway import JavaObject, elements, session_state

WHERE = "--where"
_EXAMPLE = "Write an equality of a column, such as \"user_id = 'u-17'\"; also IN, AND and OR."
Values = tuple[tuple[str, str], ...]
"""Columns and their values as text; all of them hold."""


@dataclass(frozen=True)
class Person:
    """Whose records go: those with all values of one of `choices`."""

    choices: tuple[Values, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for choice in self.choices for name, _ in choice))

    def within(self, columns: Collection[str]) -> tuple[Values, ...]:
        """The choices that a table with these columns can tell."""
        return tuple(c for c in self.choices if {name for name, _ in c} <= set(columns))

    def sql(self, columns: Collection[str]) -> str | None:
        """Whether a row is of the person, as SQL of quoted names and literals; None: these columns do not say it."""
        choices = [
            " AND ".join(f"CAST(`{name}` AS STRING) <=> {literal(value)}" for name, value in choice)
            for choice in self.within(columns)
        ]
        return " OR ".join(f"({one})" for one in choices) if choices else None

    def text_sql(self, text: str) -> str:
        """A condition in SQL: the text that the expression `text` gives names the person."""
        words = ([literal(_pattern((value,))) for _, value in choice] for choice in self.choices)
        choices = (" AND ".join(f"{text} RLIKE {word}" for word in one) for one in words)
        return " OR ".join(f"coalesce({one}, false)" for one in choices)

    @cached_property
    def values(self) -> dict[str, set[str]]:
        """By column, the values that are to be found nowhere."""
        found: dict[str, set[str]] = {}
        for name, value in (pair for choice in self.choices for pair in choice):
            found.setdefault(name, set()).add(value)
        return found

    @cached_property
    def words(self) -> re.Pattern[str] | None:
        """The values as words of a text; None: all are short numbers, which other things may be too."""
        texts = {v for values in self.values.values() for v in values if not re.fullmatch(r"-?\d{1,5}", v)}
        return re.compile(_pattern(texts)) if texts else None


def spellings(value: str) -> set[str]:
    """How a value may be written in documents: as it is, in JSON, in HTML."""
    in_json = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    in_html = {html.escape(one) for one in (value, *in_json)} | {html.escape(value).replace("&#x27;", "&#39;")}
    return {value} | in_json | in_html


def _pattern(values: Iterable[str]) -> str:
    every = sorted({text for value in values for text in spellings(value)}, key=len, reverse=True)
    return rf"(?<!\w)(?:{'|'.join(map(_escaped, every))})(?!\w)"


def _escaped(text: str) -> str:
    """For Python and Java alike: every character that is no letter or digit is escaped."""
    return re.sub(r"([^\w])", r"\\\1", text)


def person_of(spark: SparkSession, text: str, columns: Collection[str]) -> Person:
    """Read the condition `text`; `columns`: those of the definition's records.

    Raises DefinitionError for anything but equalities of these columns with values.
    """
    try:
        parsed = session_state(spark).sqlParser().parseExpression(text)
    except PySparkException as problem:
        raise DefinitionError("is no condition", WHERE, _EXAMPLE) from problem
    choices = tuple(dict.fromkeys(tuple(sorted(choice.items())) for choice in _choices(parsed, columns)))
    if not choices:
        raise DefinitionError("holds for nobody", WHERE, _EXAMPLE)
    return Person(choices)


def _choices(node: JavaObject, columns: Collection[str]) -> list[dict[str, str]]:
    name, children = node.nodeName(), children_of(node)
    if name == "Or":
        return [*_choices(children[0], columns), *_choices(children[1], columns)]
    if name == "And":
        pairs = ((a, b) for a in _choices(children[0], columns) for b in _choices(children[1], columns))
        return [a | b for a, b in pairs if all(a.get(key, value) == value for key, value in b.items())]
    if name in ("EqualTo", "EqualNullSafe"):
        known = sorted(children, key=lambda child: child.nodeName() != "UnresolvedAttribute")
        return [{_column(known[0], columns): _value(known[1])}]
    if name == "In":
        return [{_column(children[0], columns): _value(child)} for child in children[1:]]
    raise DefinitionError(f"`{node.sql()[:60]}` is no equality of a column and a value", WHERE, _EXAMPLE)


def _column(node: JavaObject, columns: Collection[str]) -> str:
    if node.nodeName() != "UnresolvedAttribute":
        raise DefinitionError("compares no column of the records", WHERE, _EXAMPLE)
    written = ".".join(elements(node.nameParts()))
    known = {column.lower(): column for column in columns}
    if written.lower() not in known:
        near = nearest(written, sorted(columns))
        hint = f"Did you mean {near}?" if near else f"Its columns are {', '.join(sorted(columns))}."
        raise DefinitionError(f"the records have no column `{written[:60]}`", WHERE, hint)
    return known[written.lower()]


def _value(node: JavaObject) -> str:
    if node.nodeName() == "UnaryMinus":
        return f"-{_value(node.child())}"
    value = node.value() if node.nodeName() == "Literal" else None
    if node.nodeName() != "Literal" or value is None or not str(node.toString()).strip():
        raise DefinitionError("compares a column with no value", WHERE, _EXAMPLE)
    return str(node.toString())
