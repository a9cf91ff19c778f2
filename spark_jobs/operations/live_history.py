"""The life of a window in the live job: each row that it emitted, what the comparisons said, what readers then got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark_jobs.comparison.emitted import EmittedRows, emitted_name, refuse_without_live
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import deployments_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.corrections import new_name, old_name
from spark_jobs.lakehouse.delivery import CorrectionAction
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.query import in_utc
from spark_jobs.operations.window_history import INSTANT, of_keys
from spark_jobs.replay.spec import complete_name


@dataclass(frozen=True, slots=True)
class EmittedPane:
    """One row that the live job emitted for a window. `emitted_at`: epoch ms, None where it is not known.

    `deleted`: the row retracts the window. `deployment`: which one emitted it, where the live job had several.
    """

    keys: dict[str, Any]
    pane: int | None
    emitted_at: int | None
    values: dict[str, Any]
    deleted: bool
    deployment: str | None = None


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """What comparisons said of a window from `valid_from` to `valid_to` (None: now). Times are in UTC, without a zone.

    `values`: for each aggregate the emitted, the faithful and the complete value.
    """

    keys: dict[str, Any]
    verdict: str
    label: str | None
    basis: str
    valid_from: datetime
    valid_to: datetime | None
    first_seen: datetime
    last_seen: datetime
    values: dict[str, tuple[Any, Any, Any]]
    run_id: str
    deployment: str | None = None


@dataclass(frozen=True, slots=True)
class WindowCorrection:
    """What readers got for a window. `delivered_at`: UTC, without a zone; None: it is only prepared.

    `values`: for each aggregate the old and the new value; `deleted`: the row went.
    """

    keys: dict[str, Any]
    kind: str
    status: str
    destination: str
    deleted: bool
    values: dict[str, tuple[Any, Any]]
    revision: int
    cause: str | None
    run_id: str
    delivered_at: datetime | None


def window_corrections(
    spark: SparkSession, pipeline: Pipeline, keys: Sequence[tuple[str, str]], start: int
) -> list[WindowCorrection]:
    """What readers got for the windows with this start and these keys, the oldest first; empty: nothing."""
    rows = _rows_of(spark, Tables.of(pipeline).corrections, pipeline, keys, start, "prepared_at", "number")
    if rows is None:
        return []
    names = [a for a in pipeline.aggregates if old_name(a) in rows.columns]
    return [
        WindowCorrection(
            {k: row[k] for k in pipeline.keys},
            row["kind"],
            row["status"],
            row["destination"],
            row["action"] == CorrectionAction.DELETE.value,
            {a: (row[old_name(a)], row[new_name(a)]) for a in names},
            row["revision"],
            row["cause"],
            row["run_id"],
            in_utc(row["delivered_at"], INSTANT),
        )
        for row in rows.collect()
    ]


def window_verdicts(
    spark: SparkSession, pipeline: Pipeline, keys: Sequence[tuple[str, str]], start: int
) -> list[WindowVerdict]:
    """The rows of the table of verdicts about the windows with this start and these keys, the oldest first.

    `keys`, `start`: as for `spark_jobs.operations.window_history.window_history`. Empty: they were always `match`, or
    never compared.
    """
    rows = _rows_of(spark, Tables.of(pipeline).verdicts, pipeline, keys, start, "valid_from")
    if rows is None:
        return []
    there = set(rows.columns)
    names = [a for a in pipeline.aggregates if emitted_name(a) in there]
    return [
        WindowVerdict(
            {k: row[k] for k in pipeline.keys},
            row["verdict"],
            row["label"],
            row["basis"],
            in_utc(row["valid_from"], INSTANT),
            in_utc(row["valid_to"], INSTANT),
            in_utc(row["first_seen"], INSTANT),
            in_utc(row["last_seen"], INSTANT),
            {a: (row[emitted_name(a)], row[a], row[complete_name(a)]) for a in names},
            row["run_id"],
            row["live_deployment"] if "live_deployment" in there else None,
        )
        for row in rows.collect()
    ]


def emitted_panes(
    spark: SparkSession, pipeline: Pipeline, keys: Sequence[tuple[str, str]], start: int
) -> list[EmittedPane]:
    """Each row that the live job emitted for the windows with this start and these keys, in their order.

    Raises DefinitionError where the definition has no section `live:`, SourceError where the rows cannot be read.
    """
    refuse_without_live(pipeline)
    panes = []
    for deployed in deployments_of(pipeline):
        if deployed.clipped(TimeRange(start, start + 1)) is None:
            continue
        rows, values = EmittedRows(spark, deployed.pipeline, _key_types(spark, pipeline)).panes(start)
        panes += [
            EmittedPane(
                {k: row[k] for k in pipeline.keys},
                row["pane"],
                row["at"],
                {a: row[emitted_name(a)] for a in values},
                bool(row["deleted"]),
                deployed.name,
            )
            for row in of_keys(rows, keys).collect()
        ]
    return panes


def _key_types(spark: SparkSession, pipeline: Pipeline) -> dict[str, DataType]:
    """The types of the keys, from the published windows."""
    schema = spark.table(Tables.of(pipeline).windows).schema
    return {key: schema[key].dataType for key in pipeline.keys}


def _rows_of(
    spark: SparkSession, table: str, pipeline: Pipeline, keys: Sequence[tuple[str, str]], start: int, *order: str
) -> DataFrame | None:
    """The rows of a side table about the windows with this start and these keys; None where there is no table."""
    if not spark.catalog.tableExists(table):
        return None
    rows = spark.table(table).where(F.col("window_start") == F.timestamp_millis(F.lit(start)))
    return of_keys(rows, keys).orderBy(*(f"`{k}`" for k in pipeline.keys), "window_end", *order)
