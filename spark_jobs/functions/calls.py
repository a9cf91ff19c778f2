"""Where an SQL expression calls functions of a definition, and with which arguments."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from pyspark.sql import SparkSession

from spark_jobs.errors import DefinitionError
from spark_jobs.spark.calls import Call, calls_in

FOLD = "rw_fold_"
"""In front of an aggregate's name: the function that takes the list of all records."""
_BEFORE_CONDITION = re.compile(r"\)\s*FILTER\s*\(\s*WHERE\b[\s(]*$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OwnCall:
    """A call in a text: its name, where it starts and stops, its arguments, and its FILTER clause if it has one."""

    name: str
    start: int
    stop: int
    arguments: str
    filter: str


def calls_of(spark: SparkSession, text: str, names: Collection[str]) -> list[OwnCall]:
    """The calls of these functions (names in lower case), in the order in which they begin; none in what is no SQL."""
    try:
        calls = calls_in(spark, text)
    except DefinitionError:
        return []
    return sorted((_own(text, call) for call in calls if call.name in names), key=lambda call: call.start)


def _own(text: str, call: Call) -> OwnCall:
    closed = call.stop - 1
    if call.filter_span is not None:
        before = _BEFORE_CONDITION.search(text[: call.filter_span[0]])
        closed = before.start() if before else closed
    opened = text.index("(", call.start)
    return OwnCall(call.name, call.start, call.stop, text[opened + 1 : closed], text[closed + 1 : call.stop])
