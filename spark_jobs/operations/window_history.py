"""The history of a window: every value that it had, when, why, and by which run."""

from __future__ import annotations

import json
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

_COUNT_COLUMNS = ("records_on_time", "records_late", "records_dropped", "pane", "state")


@dataclass(frozen=True, slots=True)
class Revision:
    """One value of a window.

    Attributes:
        cause: Why the value changed, as `backfill` or `late_arrivals`.
        valid_to: When the next revision replaced it; None: it is valid now.
        values: The keys, the aggregates and the record counts, by column.
        as_of: The run's as-of vector: end offset (exclusive) by partition.
        definition_hash: The hash of the run's definition; None where the run is no longer known.
        reason: Why the run was started, if a reason was given.
    """

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
    """All revisions of the windows with this start and these keys, the oldest first.

    Args:
        keys: Pairs of key column and text; the text `null` means null. A key that is left out can have any value.
        start: The window's start in epoch ms.

    Raises:
        DefinitionError: A column is not a key of the pipeline.
        EmptyRangeError: No run has published such a window.
    """
    tables = Tables.of(pipeline)
    facts = PublishedTable(spark, tables.windows)
    known = ", ".join(pipeline.keys)
    if not spark.catalog.tableExists(tables.windows):
        raise EmptyRangeError("no run has published this pipeline yet", tables.windows, "Start with `rewindow run`.")
    rows = facts.revisions().where(F.col("window_start") == F.timestamp_millis(F.lit(start)))
    for name, text in keys:
        if name not in pipeline.keys:
            raise DefinitionError(f"--key: {name!r} is not a key of {pipeline.name}", hint=f"Its keys are {known}.")
        kind = rows.schema[name].dataType
        value = F.lit(None) if text == "null" else F.lit(text)
        rows = rows.where(F.col(f"`{name}`").eqNullSafe(value.try_cast(kind)))
    columns = [*pipeline.keys, *(name for a in pipeline.aggregates for name in (a, f"{a}__complete")), *_COUNT_COLUMNS]
    present = [name for name in columns if name in rows.columns]
    runs = spark.table(tables.runs).select("run_id", "definition_hash", "reason")
    order = ["window_start", "window_end", *pipeline.keys, "revision", *(["pane"] if "pane" in rows.columns else [])]
    found = rows.join(runs, "run_id", "left").orderBy(*(F.col(f"`{name}`") for name in order)).collect()
    if not found:
        raise EmptyRangeError(
            "no run has published a window with this start and these keys",
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
            {name: row[name] for name in present},
            row["run_id"],
            {int(partition): end for partition, end in json.loads(row["as_of"]).items()},
            row["definition_hash"],
            row["reason"],
        )
        for row in found
    ]
