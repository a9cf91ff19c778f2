"""Windows that a restarted job emitted anew, with the records alone that came since.

After a restore the watermark begins from nothing. A record of a window that had been closed, and whose state was gone,
is then no late one: it opens the window again, without what it had, until the new watermark passes it
(docs/three-truths.md). What comes out is what a job gives that begins with the restart, for windows closed before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AGAIN, AMBIGUOUS, OFFSETS, ROWS, emitted_name
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.comparison.recount import (
    CLOSE,
    CONTRADICTED,
    KEPT,
    RecountContext,
    checkpointed,
    close_position,
    ends_of,
    records_in,
    recount,
    recounted_name,
    taken_by_offsets,
)
from spark_jobs.comparison.timing_band import closes_of
from spark_jobs.comparison.verdicts import (
    BASIS,
    DIFFERS,
    LABEL,
    VERDICT,
    ComparisonScope,
    EvidenceKind,
    Label,
    Verdict,
    all_same,
)
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.lakehouse.verdict import UNEXPLAINED
from spark_jobs.replay.assign import END, START, closing, out_of_order
from spark_jobs.replay.columns import ARRIVAL, STATE, position_names, record_position
from spark_jobs.replay.spec import complete_name

MAX_REOPENED = 20_000
"""The most windows that differ that are looked for behind restarts; the others stay as they were found."""

_DOUBTS, _NEAR, _IS_OUT, _RESTART, _AGREES = "rw_doubts", "rw_near", "rw_is_out", "rw_restart", "rw_agrees"
_TOUCHED_END = "rw_touched_end"

Spans = Sequence[TimeRange]


def with_reopened(
    rows: DataFrame, everything: DataFrame, scope: ComparisonScope, context: RecountContext, spans: Spans
) -> DataFrame:
    """`rows`, in which a window that a restart explains counts as emitted as it should be.

    Its faithful values are then those that came out anew. A window that came out before a restart and after it, and
    that no restart explains, is undecided only where a record of it lies so near to the restart, or to the close after
    it, that the log cannot say on which side it was. `everything` has all windows of `spans`.
    """
    spec, window = context.replay.spec, join_columns(scope.keys)
    if not spec.restarts:
        return rows
    differs = F.col(VERDICT).isin(*UNEXPLAINED) & (F.col(ROWS) > 0) & ~F.col(AMBIGUOUS)
    differs = differs | (F.col(AGAIN) & (F.col(VERDICT) == Verdict.UNDECIDED))
    chosen = checkpointed(rows.where(differs).orderBy(START, *window).limit(MAX_REOPENED))
    if chosen.isEmpty():
        return rows
    find = _sessions_since if context.replay.merges else _windows_since
    found = [find(chosen, everything, scope, context, restart, spans) for restart in spec.restarts]
    values = [recounted_name(v) for v in scope.computed]
    judged = chosen.join(reduce(DataFrame.unionByName, found), window)
    is_equal = F.col(_IS_OUT) & all_same(judged, scope, emitted_name, recounted_name)
    judged = judged.withColumn(_AGREES, F.coalesce(is_equal, F.lit(False)))
    earliest = F.min_by(F.struct(_AGREES, *values), F.struct(~F.col(_AGREES), F.col(_RESTART)))
    best = judged.groupBy(*window).agg(earliest.alias("rw_best"), F.max(F.col(_DOUBTS) > 0).alias(_DOUBTS))
    best = checkpointed(best.select(*window, "rw_best.*", _DOUBTS))
    decided = _decided(rows.join(best, window, "left"), differs, scope, context)
    return checkpointed(decided.drop(_AGREES, _DOUBTS, *values))


def _decided(joined: DataFrame, differs: Column, scope: ComparisonScope, context: RecountContext) -> DataFrame:
    explains = differs & F.coalesce(F.col(_AGREES), F.lit(False))
    again = differs & F.col(AGAIN) & ~explains
    # Sessions that are not equal may be cut in another way: their own records do not say so.
    in_doubt = again & F.coalesce(F.col(_DOUBTS), F.lit(context.replay.merges))
    complete = all_same(joined, scope, emitted_name, complete_name)
    as_it_should_be = F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS)
    verdict = F.when(explains, as_it_should_be).when(in_doubt, Verdict.UNDECIDED)
    values = {v: F.when(explains, F.col(recounted_name(v))).otherwise(F.col(v)) for v in scope.computed}
    return joined.withColumns(
        {
            VERDICT: F.coalesce(verdict, F.col(VERDICT)),
            LABEL: F.when(explains | in_doubt, Label.EMITTED_AGAIN_AFTER_RESTART).otherwise(F.col(LABEL)),
            BASIS: F.when(explains & (F.col(BASIS) == EvidenceKind.LOG_UNDECIDED), EvidenceKind.LOG).otherwise(
                F.col(BASIS)
            ),
            DIFFERS: F.when(~explains, F.col(DIFFERS)),
            "contradicted": F.when(explains, 0).otherwise(F.col("contradicted")),
            **values,
        }
    )


def _windows_since(
    chosen: DataFrame, _: DataFrame, scope: ComparisonScope, context: RecountContext, restart: int, __: Spans
) -> DataFrame:
    """What came out of windows that the restart found closed: records since then, in time or by evidence."""
    spec, window = context.replay.spec, join_columns(scope.keys)
    ends = np.array(sorted(row[0] for row in chosen.select(END).distinct().collect()), np.int64)
    is_kept_forever = spec.allowed_lateness == MAX_TIMESTAMP
    closes = closes_of(context.replay.timeline, spec, ends, 0 if is_kept_forever else spec.allowed_lateness)
    closed = [] if is_kept_forever else ends[closes[:, 0] < restart].tolist()
    reopened = chosen.where(F.col(END).isin(closed))
    with context.replay.since(restart) as since:
        new_closes = checkpointed(ends_of(replace(context, replay=since), reopened, closed))
    records = records_in(context, reopened, new_closes, OFFSETS)
    records = records.join(F.broadcast(new_closes.select(END, *position_names(CLOSE))), END)
    came_since, near = F.col(ARRIVAL) >= restart, F.abs(F.col(ARRIVAL) - F.lit(restart)) <= context.band.margin
    certain_in = F.col("rw_certain_in") & came_since
    records = records.withColumns({"rw_certain_in": certain_in, _NEAR: near})
    has_evidence = F.col(f"rw_d_{OFFSETS}").isNotNull()
    in_time = record_position(records).not_after(close_position())
    taken = came_since & F.when(has_evidence, taken_by_offsets()).otherwise(in_time)
    records = checkpointed(records)
    counted = recount(context, records, taken, scope.computed).where((F.col(KEPT) > 0) & (F.col(CONTRADICTED) == 0))
    undecided = F.col(_NEAR) | (came_since & ~has_evidence & ~F.col("rw_certain_in") & ~F.col("rw_certain_out"))
    doubts = records.groupBy(*window).agg(F.count_if(undecided).alias(_DOUBTS))
    values = [recounted_name(v) for v in scope.computed]
    found = doubts.join(counted.select(*window, *values, F.lit(True).alias(_IS_OUT)), window, "left")
    return found.withColumn(_RESTART, F.lit(restart))


def _sessions_since(
    chosen: DataFrame,
    everything: DataFrame,
    scope: ComparisonScope,
    context: RecountContext,
    restart: int,
    spans: Spans,
) -> DataFrame:
    """The sessions that began anew: no session of the key that they touch was open when the job was restarted."""
    spec, window, replay = context.replay.spec, join_columns(scope.keys), context.replay
    of_key = [name for name in window if name not in (START, END)]
    last = closing(spec.windows, F.col(_TOUCHED_END)) + F.lit(out_of_order(spec.windows))
    theirs = everything.where(F.col(STATE).isNotNull()).select(
        *of_key, F.col(START).alias("rw_touched_start"), F.col(END).alias(_TOUCHED_END)
    )
    touches = (F.col("rw_touched_start") <= F.col(END)) & (F.col(_TOUCHED_END) >= F.col(START))
    met = chosen.select(*window).join(theirs, of_key).where(touches)
    if spec.allowed_lateness != MAX_TIMESTAMP:
        _, latest = replay.cells.around_close(last + F.lit(spec.allowed_lateness), met)
        met = met.where(latest.arrival >= F.lit(restart))
    reopened = chosen.select(*window).join(met.select(*window).distinct(), window, "left_anti")
    with replay.since(restart) as since:
        windows = reduce(DataFrame.unionByName, (since.windows(span) for span in spans))
        given = with_join_keys(windows.where(F.col(STATE) == "closed"), scope.keys).select(
            *window, *(F.col(f"`{v}`").alias(recounted_name(v)) for v in scope.computed)
        )
        found = reopened.join(given, window).withColumns({_DOUBTS: F.lit(0).cast("bigint"), _IS_OUT: F.lit(True)})
        return checkpointed(found.withColumn(_RESTART, F.lit(restart)))
