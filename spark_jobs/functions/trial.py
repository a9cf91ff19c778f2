"""A definition's own functions on a few of its records: does their value depend on chance, or on the records' order?"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.functions.prepared import aggregates_of, in_other_order
from spark_jobs.spark.gateway import JAVA_ERRORS

SAMPLE = 1000
"""Records that are tried."""
_OTHER = "rw_other_order_"


def doubts(records: DataFrame, pipeline: Pipeline) -> tuple[str, ...]:
    """What is said of the functions in a plan: values that differ from one evaluation, or one order, to the next.

    `records`: good canonical ones, of which a few are tried. Nothing is read where the definition has no functions.
    """
    if not pipeline.functions:
        return ()
    others = in_other_order(records.sparkSession, pipeline)
    values = [F.expr(text).alias(name) for name, text in aggregates_of(pipeline).items()]
    values += [F.expr(text).alias(f"{_OTHER}{name}") for name, text in others.items()]
    sample = records.limit(SAMPLE).localCheckpoint()
    groups = sample.groupBy(*(f"`{key}`" for key in pipeline.keys)).agg(*values)
    try:
        first, second = groups.collect(), groups.collect()
    except JAVA_ERRORS:  # the trial mixes windows: where a function really fails, the run says so
        return ()
    said = []
    if sorted(map(repr, first)) != sorted(map(repr, second)):
        said.append(
            "the definition's own functions give other values when they are called again for the same records: no run "
            "can be repeated, and a night will find differences that are none"
        )
    said += [
        f"aggregate `{name}` depends on the order of the records, which is taken from their positions; where the live "
        "job depends on it too, write `ordered: true` for its function"
        for name in others
        if any(repr(row[name]) != repr(row[f"{_OTHER}{name}"]) for row in first)
    ]
    return tuple(said)
