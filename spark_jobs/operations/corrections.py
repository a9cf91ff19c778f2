"""Lists of corrections: those that were delivered, and those that would be."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.corrections.due import CorrectionScope, due, scope_of
from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.corrections import pair_names
from spark_jobs.operations.query import Rows, in_utc


def delivered_rows(spark: SparkSession, pipeline: Pipeline, limit: int, run_id: str | None = None) -> Rows:
    """The corrections of a pipeline, the last delivered first, and what is prepared before them. Times are in UTC.

    `run_id`: only those of the revisions that this run has published.
    """
    scope = scope_of(spark, pipeline)
    names = ["delivered_at", "status", "kind", "destination", *_columns(scope), "delivery"]
    if not scope.ledger.exists():
        return Rows(tuple(names), (), False)
    rows = scope.ledger.rows()
    if run_id is not None:
        rows = rows.where(F.col("run_id") == run_id)
    places = (F.asc_nulls_first(f"`{c}`") for c in ("window_start", "window_end", *scope.keys))
    return _rows(rows.orderBy(F.desc_nulls_first("delivered_at"), F.desc("number"), *places), names, limit)


def due_rows(spark: SparkSession, pipeline: Pipeline, limit: int) -> Rows:
    """What `deliver` would deliver now. Times are in UTC."""
    scope = scope_of(spark, pipeline)
    names, found = _columns(scope), due(scope)
    if found is None:
        return Rows(tuple(names), (), False)
    return _rows(found.rows.orderBy("window_start", *(f"`{k}`" for k in scope.keys)), names, limit)


def _columns(scope: CorrectionScope) -> list[str]:
    return [*scope.identity, "action", *pair_names(scope.values), "value", "revision", "cause", "run_id"]


def _rows(frame: DataFrame, names: list[str], limit: int) -> Rows:
    chosen = frame.select(*(f"`{c}`" for c in names if c in frame.columns))
    found = chosen.limit(limit + 1).collect()
    kinds = [field.dataType for field in chosen.schema]
    rows = tuple(tuple(in_utc(v, kind) for v, kind in zip(row, kinds, strict=True)) for row in found[:limit])
    return Rows(tuple(chosen.columns), rows, len(found) > limit)
