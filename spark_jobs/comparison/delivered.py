"""Corrections in what the comparison reads: a row that Rewindow has put right is not the live job's any more.

Where the output has the value that was delivered last, the window is `match` with the label `corrected` as long as that
is the value that readers should have; `late_arrivals`, if more late records have come since.
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AT, ROWS, emitted_name, live_of
from spark_jobs.comparison.join_keys import hashed_columns, join_columns, with_join_keys, with_window_hash
from spark_jobs.comparison.verdicts import LABEL, VERDICT, ComparisonScope, Label, Verdict, all_same
from spark_jobs.definition import Pipeline
from spark_jobs.definition.corrections import CorrectedValue, destination_name
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.corrections import CorrectionTable, new_name
from spark_jobs.lakehouse.delivery import CorrectionAction, DeliveryKind
from spark_jobs.lakehouse.tables import Tables, starting_in
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.spec import complete_name


def deliveries_to(spark: SparkSession, pipeline: Pipeline) -> DataFrame | None:
    """The last correction of each window that the output under `live` got; None: that output gets none.

    Columns as in the table of corrections. What was reverted is the live job's own again, and not among them.
    """
    if pipeline.corrections is None or pipeline.live is None or not pipeline.corrections.is_of(live_of(pipeline)):
        return None
    table = CorrectionTable(spark, Tables.of(pipeline).corrections, tuple(pipeline.keys))
    if not table.exists():
        return None
    destination = destination_name(pipeline.corrections.destination(live_of(pipeline)))
    return table.latest(destination).where(F.col("kind") != DeliveryKind.REVERT.value)


def as_delivered(rows: DataFrame, pipeline: Pipeline, scope: ComparisonScope, spans: Iterable[TimeRange]) -> DataFrame:
    """The classified `rows`; those that have the value that was delivered get another verdict.

    All start in `spans`.
    """
    found = deliveries_to(rows.sparkSession, pipeline)
    if found is None:
        return rows
    there = set(found.columns)
    kinds = {f.name: f.dataType for f in rows.schema}
    placed = starting_in(found, spans).withColumns({START: F.unix_millis(START), END: F.unix_millis(END)})
    delivered = with_window_hash(placed, scope.keys).select(
        *hashed_columns(scope.keys),
        F.col("action").alias("rw_action"),
        F.col("value").alias("rw_value"),
        *(
            (F.col(f"`{new_name(v)}`") if new_name(v) in there else F.lit(None)).cast(kinds[v]).alias(f"rw_new_{v}")
            for v in scope.values
        ),
    )
    joined = rows.join(delivered, hashed_columns(scope.keys), "left")
    has_row = F.col(ROWS) > 0
    equals_delivered = F.when(
        has_row,
        (F.col("rw_action") == CorrectionAction.UPSERT.value)
        & all_same(joined, scope, emitted_name, lambda v: f"rw_new_{v}"),
    ).otherwise(F.col("rw_action") == CorrectionAction.DELETE.value)
    is_complete = F.lit(False)
    for value in scope.values:
        is_complete = is_complete | F.col(f"`{complete_name(value)}`").isNotNull()
    equals_complete = F.when(has_row, all_same(joined, scope, emitted_name, complete_name)).otherwise(~is_complete)
    by_truth = F.col("rw_value") == CorrectedValue.COMPLETE.value
    corrected = F.coalesce(equals_delivered, F.lit(False)) & (F.col(VERDICT) != Verdict.NOT_CLOSED.value)
    wanted = F.when(equals_complete, Verdict.MATCH.value).otherwise(Verdict.LATE_ARRIVALS.value)
    verdict = F.when(corrected & by_truth, wanted).otherwise(F.col(VERDICT))
    is_right = corrected & (by_truth | F.col(VERDICT).isin(Verdict.MATCH.value, Verdict.LATE_ARRIVALS.value))
    marked = joined.withColumns(
        {
            VERDICT: verdict,
            LABEL: F.when(is_right, Label.CORRECTED.value).otherwise(F.col(LABEL)),
            UNDECIDED: F.when(is_right, F.lit(0)).otherwise(F.col(UNDECIDED)),
            AT: F.when(~is_right, F.col(AT)),
        }
    )
    return marked.select(*(f"`{c}`" for c in rows.columns))


def delivered_since(current: DataFrame, pipeline: Pipeline, keys: tuple[str, ...]) -> DataFrame | None:
    """The `current` rows of the table of verdicts whose windows were corrected since they were last seen."""
    found = deliveries_to(current.sparkSession, pipeline)
    if found is None:
        return None
    names = join_columns(keys)
    when = with_join_keys(found, keys).select(*names, F.col("delivered_at").alias("rw_delivered_at"))
    joined = with_join_keys(current, keys).join(when, names)
    return joined.where(F.col("rw_delivered_at") > F.col("last_seen")).select(*(f"`{c}`" for c in current.columns))
