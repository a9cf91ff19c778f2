"""The history of a window: every value that it had, when, why, and by which run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.fields import nearest
from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, refuse_unpublished
from spark_jobs.operations.query import in_utc

INSTANT = TimestampType()
_COUNT_COLUMNS = ("records_on_time", "records_late", "records_dropped", "records_not_counted", "pane", "state")


@dataclass(frozen=True, slots=True)
class Revision:
    """One value of a window. Times are in UTC, without a zone.

    Attributes:
        cause: Why the value changed, as `backfill` or `late_arrivals`.
        valid_to: When the next revision replaced it; None: it is valid now.
        values: The keys, the aggregates and the record counts, by column.
        as_of: The run's end offsets (exclusive) by partition.
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

    def changed(self, before: Revision | None) -> dict[str, Change]:
        """By column, what this revision changed in the one before it; empty for a window's first one."""
        if before is None:
            return {}
        pairs = {name: Change(before.values.get(name), value) for name, value in self.values.items()}
        return {name: pair for name, pair in pairs.items() if pair.before != pair.after}


@dataclass(frozen=True, slots=True)
class Change:
    """A column's value in two revisions that follow each other."""

    before: Any
    after: Any


def with_previous(revisions: Sequence[Revision], keys: Sequence[str]) -> list[tuple[Revision, Revision | None]]:
    """Each revision with the one before it of the same window; None for a window's first one.

    Where a window has a row for each of its panes, each pane has revisions of its own.
    """

    def window(revision: Revision) -> tuple[Any, ...]:
        return revision.window_start, revision.window_end, *(revision.values.get(name) for name in keys)

    has_panes = len({(*window(r), r.revision) for r in revisions}) < len(revisions)
    last: dict[tuple[Any, ...], Revision] = {}
    paired = []
    for revision in revisions:
        place = (*window(revision), revision.values.get("pane") if has_panes else None)
        paired.append((revision, last.get(place)))
        last[place] = revision
    return paired


def check_keys(pipeline: Pipeline, keys: Sequence[tuple[str, str]]) -> None:
    """Raises DefinitionError for a column that is not a key of the pipeline. Needs no Spark."""
    for name, _ in keys:
        if name not in pipeline.keys:
            near = nearest(name, pipeline.keys)
            known = ", ".join(pipeline.keys) or "none"
            hint = f"Did you mean {near}?" if near else f"Its keys are {known}."
            raise DefinitionError(f"--key: {name!r} is not a key of {pipeline.name}", hint=hint)


def of_keys(rows: DataFrame, keys: Sequence[tuple[str, str]]) -> DataFrame:
    """The rows with these keys: pairs of column and text; the text `null` means null."""
    for name, text in keys:
        value = F.lit(None) if text == "null" else F.lit(text)
        rows = rows.where(F.col(f"`{name}`").eqNullSafe(value.try_cast(rows.schema[name].dataType)))
    return rows


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
    check_keys(pipeline, keys)
    refuse_unpublished(spark, tables)
    rows = facts.revisions().where(F.col("window_start") == F.timestamp_millis(F.lit(start)))
    rows = of_keys(rows, keys)
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
            in_utc(row["valid_from"], INSTANT),
            in_utc(row["valid_to"], INSTANT),
            in_utc(row["window_start"], INSTANT),
            in_utc(row["window_end"], INSTANT),
            {name: in_utc(row[name], rows.schema[name].dataType) for name in present},
            row["run_id"],
            {int(partition): end for partition, end in json.loads(row["as_of"]).items()},
            row["definition_hash"],
            row["reason"],
        )
        for row in found
    ]
