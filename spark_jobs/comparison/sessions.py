"""Compares sessions. Their bounds depend on which records were late, so they are classified by their records.

With evidence, the contents of a row are the records of its key inside its bounds, up to the last offset of each
partition. From the log alone, a session that differs is `undecided` if a record near it may have come before or after
a close. If there is no such record, it is mismatch, missing or extra. The closes come from the timeline's coarse
grid; where that is not exact, a record counts as undecided.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AMBIGUOUS, OFFSETS, ROWS, Emitted, emitted_name
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.comparison.recount import (
    CERTAIN,
    CONTRADICTED,
    KEPT,
    TAKEN,
    RecountContext,
    checkpointed,
    recount,
    recounted_name,
    taken_by_offsets,
)
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
    differing,
)
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.replay.assign import END, START, closing, out_of_order
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, is_within
from spark_jobs.replay.sessions import with_sessions_columns
from spark_jobs.replay.spec import complete_name

_TS, _OWN_END = "rw_ts", "rw_end"
_COVERED, _DOUBTFUL = "rw_covered", "rw_doubtful"


def classify_sessions(
    open_rows: DataFrame, emitted: Emitted, scope: ComparisonScope, context: RecountContext, *, evidence: bool
) -> DataFrame:
    """Classify the sessions again that differ, or that the log has not closed. The columns are those of `open_rows`."""
    records = checkpointed(_records_near(open_rows, scope, context, evidence=evidence))
    taken = F.col("rw_inside") & taken_by_offsets()
    inside = records.withColumn("rw_certain_out", F.col("rw_certain_out") & F.col("rw_inside"))
    inside = inside.withColumn("rw_certain_in", F.col("rw_certain_in") & F.col("rw_inside"))
    counted = recount(context, inside, taken, scope.computed)
    facts = _facts(records, emitted, scope, context) if evidence else _doubts(records, scope)
    window = join_columns(scope.keys)
    joined = open_rows.join(checkpointed(counted), window, "left").join(checkpointed(facts), window, "left")
    classified = _by_evidence(joined, scope) if evidence else _by_log(joined)
    added = (KEPT, CERTAIN, CONTRADICTED, _COVERED, _DOUBTFUL, *(recounted_name(v) for v in scope.computed))
    return classified.drop(*added)


def _records_near(
    open_rows: DataFrame, scope: ComparisonScope, context: RecountContext, *, evidence: bool
) -> DataFrame:
    """The records of each session's key that lie in the session or touch it, and what the log says for certain.

    With evidence it matters only whether the record itself came in time. Without, the bounds are in doubt as well if
    the record may have met a session that had already fired. It has not if it came before the watermark reached its
    event time.
    """
    replay = context.replay
    spec, keys = replay.spec, scope.keys
    usable = replay.entering.where(F.col(EVENT_TIME).isNotNull())
    base = with_join_keys(with_sessions_columns(usable, spec), keys)
    columns = [c for c in join_columns(keys) if c not in (START, END)]
    wanted = open_rows.select(*join_columns(keys), F.col(OFFSETS).alias(f"rw_d_{OFFSETS}"))
    touches = (F.col(_TS) <= F.col(END)) & (F.col(_OWN_END) >= F.col(START))
    joined = (base.join(wanted, columns) if columns else base.crossJoin(wanted)).where(touches)
    joined = joined.withColumn("rw_inside", (F.col(_TS) >= F.col(START)) & (F.col(_OWN_END) <= F.col(END)))
    lateness = spec.allowed_lateness
    if lateness == MAX_TIMESTAMP:
        return joined.withColumns({"rw_certain_in": F.lit(True), "rw_certain_out": F.lit(False)})
    cells, margin = replay.cells, F.lit(context.band.margin)
    # A session ends no earlier than the record's own window, and no later than the one it is looked at for.
    apart, windows = F.lit(out_of_order(spec.windows)), spec.windows
    own = closing(windows, F.col(_OWN_END if evidence else _TS)) - apart - F.lit(cells.grid.step) + F.lit(lateness)
    whole = closing(windows, F.greatest(F.col(END), F.col(_OWN_END))) + apart + F.lit(lateness)
    (_, low), (_, high) = (cells.around_close(time, joined) for time in (own, whole))
    placed = joined.withColumns({"rw_low": low.arrival, "rw_high": high.arrival})
    low_arrival, high_arrival = F.col("rw_low"), F.col("rw_high")
    certain_in = (F.col(ARRIVAL) <= F.greatest(low_arrival, F.lit(0)) - margin) & ~_lagging(context, low_arrival)
    certain_out = (F.col(ARRIVAL) - margin > high_arrival) & ~_lagging(context, high_arrival)
    return placed.withColumns({"rw_certain_in": certain_in, "rw_certain_out": certain_out})


def _lagging(context: RecountContext, close: Column) -> Column:
    behind = close <= F.lit(context.band.backlog_until)
    for lag in (*context.band.lags, *(one.during for one in context.band.wider)):
        behind = behind | is_within(close, lag)
    return behind


def _doubts(records: DataFrame, scope: ComparisonScope) -> DataFrame:
    """The number of records of each session that may have come before or after a close."""
    undecided = ~F.col("rw_certain_in") & ~F.col("rw_certain_out")
    return records.groupBy(*join_columns(scope.keys)).agg(F.count_if(undecided).alias(_DOUBTFUL))


def _facts(records: DataFrame, emitted: Emitted, scope: ComparisonScope, context: RecountContext) -> DataFrame:
    """For each session: how many records certainly in time are in no emitted row, and whether any record is in one."""
    keys = scope.keys
    columns = [c for c in join_columns(keys) if c not in (START, END)]
    rows = emitted.rows.select(
        *(F.col(c).alias(f"rw_e_{c}") for c in columns),
        F.col(START).alias("rw_e_start"),
        F.col(END).alias("rw_e_end"),
        F.col(OFFSETS).alias("rw_e_offsets"),
    )
    in_row = (
        (F.col(_TS) >= F.col("rw_e_start"))
        & (F.col(_OWN_END) <= F.col("rw_e_end"))
        & F.coalesce(F.col(OFFSET) <= F.element_at("rw_e_offsets", F.col(PARTITION)), F.lit(False))
    )
    for c in columns:
        in_row = in_row & (F.col(c) == F.col(f"rw_e_{c}"))
    of_session = records.where("rw_inside").join(rows, in_row, "left")
    identity = [*join_columns(keys), PARTITION, OFFSET]
    by_record = of_session.groupBy(*identity).agg(
        F.max(F.col("rw_e_start").isNotNull()).alias(TAKEN), F.max("rw_certain_in").alias("rw_sure")
    )
    return by_record.groupBy(*join_columns(keys)).agg(
        F.max(TAKEN).alias(_COVERED), F.count_if(~F.col(TAKEN) & F.col("rw_sure")).alias(_DOUBTFUL)
    )


def _by_evidence(joined: DataFrame, scope: ComparisonScope) -> DataFrame:
    """Classify by evidence. Here `rw_doubtful` counts the records that certainly came in time but were not emitted."""
    has_row, not_closed = F.col(ROWS) > 0, F.col(VERDICT) == Verdict.NOT_CLOSED
    recorded = has_row & F.col(OFFSETS).isNotNull() & ~F.col(AMBIGUOUS)
    agrees = all_same(joined, scope, emitted_name, recounted_name)
    complete = all_same(joined, scope, emitted_name, complete_name)
    against = F.when(not_closed | ~recorded, F.lit(0)).otherwise(F.coalesce(F.col(CONTRADICTED), F.lit(0)))
    unchanged = F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS)
    lost = F.coalesce(F.col(_DOUBTFUL), F.lit(0)) > 0
    verdict = (
        F.when(recorded & not_closed, F.when(agrees, unchanged).otherwise(Verdict.NOT_CLOSED))
        .when(recorded & (against > 0), Verdict.MISMATCH)
        .when(recorded & F.col(KEPT).isNull(), Verdict.EXTRA)
        .when(recorded, F.when(agrees, unchanged).otherwise(Verdict.MISMATCH))
        .when(has_row | not_closed | (F.col(VERDICT) != Verdict.MISSING) | lost, F.col(VERDICT))
        .when(F.col(_COVERED), Verdict.LATE_ARRIVALS)
        .otherwise(Verdict.ALL_LATE)
    )
    label = (
        F.when(against > 0, Label.EVIDENCE_CONTRADICTS_LOG)
        .when(~has_row & (verdict == Verdict.LATE_ARRIVALS), Label.IN_OTHER_PIECES)
        .when(verdict.isin(Verdict.MATCH.value, Verdict.LATE_ARRIVALS.value, Verdict.MISMATCH.value), F.lit(None))
        .otherwise(F.col(LABEL))
    )
    names = differing(joined, scope, emitted_name, recounted_name)
    values = {
        v: F.when(recorded & (F.col(KEPT) > 0), F.col(recounted_name(v))).otherwise(F.col(v)) for v in scope.computed
    }
    return joined.withColumns(
        {
            LABEL: label,
            "contradicted": against,
            BASIS: F.lit(EvidenceKind.RECORDED.value),
            **values,
            DIFFERS: F.when(recorded & ~agrees & ~not_closed, names),
            VERDICT: verdict,
        }
    )


def _by_log(joined: DataFrame) -> DataFrame:
    doubtful = (F.coalesce(F.col(_DOUBTFUL), F.lit(0)) > 0) & (F.col(VERDICT) != Verdict.NOT_CLOSED)
    doubtful = doubtful & ~F.col(AMBIGUOUS)
    return joined.withColumns(
        {
            VERDICT: F.when(doubtful, Verdict.UNDECIDED).otherwise(F.col(VERDICT)),
            LABEL: F.when(doubtful, Label.SESSION_NEAR_A_CLOSE).otherwise(F.col(LABEL)),
        }
    )
