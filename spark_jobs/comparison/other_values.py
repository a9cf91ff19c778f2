"""Which field of the definition the live job's rows contradict: those that neither log nor checkpoint tells.

Where windows differ, they are replayed with another value of each such field. A value explains a window if it gives
what the live job emitted, and changes no other window of the same end that is as it should be.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AMBIGUOUS, ROWS, emitted_name
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.comparison.recount import RecountContext, checkpointed, recounted_name
from spark_jobs.comparison.verdicts import LABEL, MATCHES_WITH, VERDICT, ComparisonScope, Verdict, all_same
from spark_jobs.eventtime.durations import DAY
from spark_jobs.eventtime.ranges import TimeRange, ranges_of
from spark_jobs.eventtime.windows import RegularWindows
from spark_jobs.lakehouse.verdict import UNEXPLAINED
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import STATE
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.other_values import OtherValue

MAX_TRIED = 2_000
"""The most windows that differ that other values are tried on: the earliest ones."""
_MAX_RANGES = 4
_AS_IT_SHOULD_BE = (Verdict.MATCH.value, Verdict.LATE_ARRIVALS.value, Verdict.ALL_LATE.value)
_DIFFERS = "rw_differs"


def label_of(other: OtherValue) -> str:
    """The label of a window that matches with the other value: `matches_with_allow_multiple_false`."""
    name = f"{other.field.rpartition('.')[2]}_{other.value}"
    words = "".join(letter if letter.isalnum() else " " for letter in name.replace("_", " ")).split()
    return MATCHES_WITH + "_".join(words)


def with_other_values(
    rows: DataFrame,
    everything: DataFrame,
    scope: ComparisonScope,
    context: RecountContext,
    others: Sequence[OtherValue],
) -> DataFrame:
    """`rows` with a label on those that differ and match with another value; `everything` has all windows."""
    window = join_columns(scope.keys)
    differs = F.col(VERDICT).isin(*UNEXPLAINED) & ~F.col(AMBIGUOUS)
    tried = checkpointed(rows.where(differs).orderBy(START, *window).limit(MAX_TRIED)) if others else rows.limit(0)
    if tried.isEmpty():
        return rows
    tried = tried.withColumn(_DIFFERS, F.lit(True))
    if not context.replay.merges:  # sessions have ends of their own
        ends = F.broadcast(tried.select(END).distinct())
        alike = everything.where(F.col(VERDICT).isin(*_AS_IT_SHOULD_BE)).join(ends, END, "left_semi")
        tried = tried.unionByName(alike.withColumn(_DIFFERS, F.lit(False)), allowMissingColumns=True)
    tried = checkpointed(tried)
    found = [
        _matching(tried, scope, context.replay, other).withColumn("rw_rank", F.lit(i)) for i, other in enumerate(others)
    ]
    nearest = reduce(DataFrame.unionByName, found).groupBy(*window).agg(F.min("rw_rank").alias("rw_rank"))
    labels = F.array(*(F.lit(label_of(other)) for other in others))
    joined = rows.join(checkpointed(nearest), window, "left")
    return joined.withColumn(LABEL, F.coalesce(F.get(labels, F.col("rw_rank")), LABEL)).drop("rw_rank")


def _matching(tried: DataFrame, scope: ComparisonScope, replay: Replay, other: OtherValue) -> DataFrame:
    """The windows, by `join_columns`, that the other value explains."""
    window = join_columns(scope.keys)
    only = tried.select(*(f"`{key}`" for key in scope.keys), START, END)
    with replay.by(other.spec) as another:
        parts = [another.windows(span, None, only) for span in _spans(tried, replay)]
        given = with_join_keys(reduce(DataFrame.unionByName, parts), scope.keys).select(
            *window, F.col(STATE).alias("rw_state"), *(F.col(f"`{v}`").alias(recounted_name(v)) for v in scope.computed)
        )
        given = checkpointed(given)
    joined = tried.join(given, window, "left")
    is_given = F.coalesce(F.col("rw_state") == "closed", F.lit(False))
    agrees = F.when(F.col(ROWS) > 0, is_given & all_same(joined, scope, emitted_name, recounted_name)).otherwise(
        ~is_given
    )
    judged = checkpointed(joined.withColumn("rw_agrees", agrees))
    against = judged.where(~F.col(_DIFFERS) & ~F.col("rw_agrees")).select(END).distinct()
    return judged.where(F.col(_DIFFERS) & F.col("rw_agrees")).join(against, END, "left_anti").select(*window)


def _spans(tried: DataFrame, replay: Replay) -> Sequence[TimeRange]:
    starts = [row[0] for row in tried.select(START).distinct().orderBy(START).collect()]
    windows = replay.spec.windows
    return ranges_of(starts, windows.start_step if isinstance(windows, RegularWindows) else DAY, _MAX_RANGES)
