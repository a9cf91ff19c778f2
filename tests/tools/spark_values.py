"""What Spark SQL gives over the table of values in `tests/data/flink_expressions/given.json`.

`Evaluator` does it in a process that may die: some expressions take more memory than Spark's JVM has.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from spark_jobs.project.flink_script import spark_type
from spark_jobs.project.flink_types import Kind, flink_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path("tests/data/flink_expressions")
GIVEN: dict[str, Any] = json.loads((FOLDER / "given.json").read_text())
ENDS = {"error": "ends Spark's process"}
"""In the place of a value: no memory is enough."""
_TOGETHER = 25


@dataclass(frozen=True, slots=True)
class Asked:
    """Expressions over the rows or, of aggregates, the groups of the table, in a session's zone.

    `only`: the rows, or groups; None for all.
    """

    zone: str
    is_aggregate: bool
    sql: tuple[str, ...]
    only: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        """The column of the rows' names."""
        return "g" if self.is_aggregate else "rid"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the rows, or groups."""
        rows = enumerate(GIVEN["rows"])
        return self.only or tuple(dict.fromkeys(row["g"] if self.is_aggregate else str(place) for place, row in rows))

    def parts(self) -> list[Asked]:
        """The two halves of the expressions; the rows of a single one."""
        if len(self.sql) > 1:
            half = len(self.sql) // 2
            return [replace(self, sql=self.sql[:half]), replace(self, sql=self.sql[half:])]
        return [replace(self, only=(name,)) for name in self.names]


@dataclass(frozen=True, slots=True)
class InSpark:
    """What Spark gives: its type and values, or why it refuses the expression."""

    type: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    refused: str = ""


def values_in_spark(spark: SparkSession, zone: str) -> DataFrame:
    """The table of values, as a source decodes them: a time with a zone is that instant."""
    columns: dict[str, str] = GIVEN["columns"]

    def value(name: str, text: str | None) -> str:
        kind = spark_type(columns[name])
        if text is None:
            return f"CAST(NULL AS {kind})"
        if flink_type(columns[name]).kind in (Kind.ROW, Kind.ARRAY, Kind.MAP):
            text = re.sub(r"\b(ARRAY|MAP)\[(.*?)\]", r"\1(\2)", text.replace("ROW(", "STRUCT("))
            return f"CAST({text} AS {kind})"
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        read = f"CAST('{escaped}' AS {kind})"
        return f"to_utc_timestamp({read}, '{zone}')" if "LTZ" in columns[name] else read

    rows = (
        f"SELECT {place} AS rid, " + ", ".join(f"{value(name, row.get(name))} AS `{name}`" for name in columns)
        for place, row in enumerate(GIVEN["rows"])
    )
    return spark.sql(" UNION ALL ".join(rows)).localCheckpoint()


def together(frame: DataFrame, asked: Asked) -> list[InSpark]:
    """What Spark gives for all expressions, in one job. Raises PySparkException, Py4JJavaError."""
    chosen = _chosen(frame, asked)
    types = [one.dataType.simpleString() for one in chosen.schema.fields[1:]]
    rows = chosen.selectExpr(asked.key, *(_as_text(f"v{place}", kind) for place, kind in enumerate(types))).collect()
    return [InSpark(kind, {str(row[0]): row[place + 1] for row in rows}) for place, kind in enumerate(types)]


def _chosen(frame: DataFrame, asked: Asked) -> DataFrame:
    from pyspark.sql.functions import expr

    columns = [expr(one).alias(f"v{place}") for place, one in enumerate(asked.sql)]
    if asked.only is not None:
        frame = frame.where(frame[asked.key].isin(*asked.only))
    return frame.groupBy("g").agg(*columns) if asked.is_aggregate else frame.select("rid", *columns)


def _as_text(name: str, kind: str) -> str:
    if kind.startswith("array"):
        return f"transform({name}, x -> string(x)) AS {name}"
    if kind == "binary":
        return f"lower(hex({name})) AS {name}"
    if kind in ("timestamp", "string"):  # text that is only a time is one of this day
        today = f"replace(string({name}), string(current_date()), 'today')"
        return f"replace({today}, string(year(current_date())), 'this year') AS {name}"
    return f"string({name}) AS {name}"


def evaluated(frame: DataFrame, asked: Asked) -> list[InSpark]:
    """What Spark gives for expressions: together, else by halves, else row by row."""
    try:
        return together(frame, asked)
    except (PySparkException, Py4JJavaError) as error:
        if len(asked.sql) > 1:
            return [one for part in asked.parts() for one in evaluated(frame, part)]
        return [_by_rows(frame, asked, _first_line(error))]


def _by_rows(frame: DataFrame, asked: Asked, error: str) -> InSpark:
    try:
        kind = _chosen(frame, asked).schema["v0"].dataType.simpleString()
    except PySparkException:
        return InSpark(refused=error)
    if asked.only is not None and len(asked.only) == 1:
        return InSpark(kind, {asked.only[0]: {"error": error}})
    return _joined([evaluated(frame, part)[0] for part in asked.parts()])


def _joined(rows: Sequence[InSpark]) -> InSpark:
    return InSpark(
        next((one.type for one in rows if one.type), ""), {k: v for one in rows for k, v in one.values.items()}
    )


def _first_line(error: PySparkException | Py4JJavaError) -> str:
    text = str(error.java_exception if isinstance(error, Py4JJavaError) else error)
    causes = re.findall(r"(?:Caused by|SparkException|Exception): (.*)", text)
    return re.sub(r" SQLSTATE.*", "", (causes or [text])[-1].splitlines()[0])[:120]


class Evaluator:
    """Evaluates in a process with a Spark of its own, and begins another one where that dies."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def evaluated(self, asked: Asked) -> list[InSpark]:
        """What Spark gives; `ENDS` in the place of the values that end it."""
        groups = (asked.sql[start : start + _TOGETHER] for start in range(0, len(asked.sql), _TOGETHER))
        return [one for group in groups for one in self._survived(replace(asked, sql=group))]

    def _survived(self, asked: Asked) -> list[InSpark]:
        self._pool = self._pool or ProcessPoolExecutor(1, get_context("spawn"))
        try:
            return self._pool.submit(_in_process, asked).result()
        except BrokenProcessPool:
            self._pool = None
        if len(asked.sql) > 1:
            return [one for part in asked.parts() for one in self._survived(part)]
        if asked.only is not None:
            return [InSpark(values={asked.only[0]: ENDS})]
        return [_joined([self._survived(part)[0] for part in asked.parts()])]


@cache
def _frame(zone: str) -> DataFrame:
    from spark_jobs.spark.session import spark_session

    return values_in_spark(spark_session("flink functions", master="local[1]"), zone)


def _in_process(asked: Asked) -> list[InSpark]:
    try:
        return evaluated(_frame(asked.zone), asked)
    except (Py4JError, OSError):
        os._exit(1)  # Spark's JVM has gone
