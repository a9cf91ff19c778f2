"""A window's life: every value that it had, when, why, and by which run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables

_SHOWN_LAST = ("records_on_time", "records_late", "records_dropped", "pane", "state")


@dataclass(frozen=True, slots=True)
class Revision:
    """One value of a window. `definition_hash` and `reason` are the run's; `valid_to` None: it is valid now."""

    revision: int
    cause: str
    valid_from: datetime
    valid_to: datetime | None
    window_start: datetime
    window_end: datetime
    values: dict[str, Any]
    run_id: str
    as_of: dict[int, int]
    definition_hash: str | None
    reason: str | None


def window_history(
    spark: SparkSession, pipeline: Pipeline, keys: Sequence[tuple[str, str]], start: int
) -> list[Revision]:
    """All revisions of the windows that start at `start` (epoch ms) and have these keys; oldest first.

    `keys` are pairs of column and text; those left out may have any value, the text `null` means none. Raises
    DefinitionError for a column that is no key, EmptyRangeError where no run has published such a window.
    """
    tables = Tables.of(pipeline)
    facts = PublishedTable(spark, tables.windows)
    known = ", ".join(pipeline.keys)
    if not spark.catalog.tableExists(tables.windows):
        raise EmptyRangeError("no run has published this pipeline yet", tables.windows, "Start with `rewindow run`.")
    rows = facts.revisions().where(F.col("window_start") == F.timestamp_millis(F.lit(start)))
    for name, text in keys:
        if name not in pipeline.keys:
            raise DefinitionError(f"--key: {name!r} is no key of {pipeline.name}", hint=f"Its keys: {known}.")
        kind = rows.schema[name].dataType
        value = F.lit(None) if text == "null" else F.lit(text)
        rows = rows.where(F.col(f"`{name}`").eqNullSafe(value.try_cast(kind)))
    columns = [*pipeline.keys, *(name for a in pipeline.aggregates for name in (a, f"{a}__complete")), *_SHOWN_LAST]
    there = [name for name in columns if name in rows.columns]
    runs = spark.table(tables.runs).select("run_id", "definition_hash", "reason")
    order = ["window_start", "window_end", *pipeline.keys, "revision", *(["pane"] if "pane" in rows.columns else [])]
    found = rows.join(runs, "run_id", "left").orderBy(*(F.col(f"`{name}`") for name in order)).collect()
    if not found:
        raise EmptyRangeError(
            "no run has published such a window",
            tables.windows,
            f"Give its start with --window, in UTC or with a zone, and its keys ({known}) with --key name=value.",
        )
    return [
        Revision(
            row["revision"],
            row["cause"],
            row["valid_from"],
            row["valid_to"],
            row["window_start"],
            row["window_end"],
            {name: row[name] for name in there},
            row["run_id"],
            row["as_of"],
            row["definition_hash"],
            row["reason"],
        )
        for row in found
    ]
