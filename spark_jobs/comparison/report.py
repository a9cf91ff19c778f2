"""The report of a comparison: counts by verdict, the largest changes, what stays in doubt, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from spark_jobs.comparison.comparer import Comparison
from spark_jobs.comparison.emitted import OFFSETS, ROWS, Emitted, emitted_name
from spark_jobs.comparison.fitting import FIT_KEYS, KIND, LEFT_OUT
from spark_jobs.comparison.other_values import label_of
from spark_jobs.comparison.recount import (
    RecountContext,
    checkpointed,
    close_position,
    ends_of,
    records_in,
    taken_by_offsets,
)
from spark_jobs.comparison.tally import tally
from spark_jobs.comparison.verdicts import (
    BASIS,
    DIFFERS,
    LABEL,
    MATCHES_WITH,
    SHIFTED_BY,
    VERDICT,
    WITHOUT_PARTITION,
    ComparisonScope,
    EvidenceKind,
    Label,
    Verdict,
)
from spark_jobs.definition.deployments import Deployed
from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.formatting import plural
from spark_jobs.lakehouse.verdict import UNEXPLAINED
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, record_position
from spark_jobs.replay.spec import complete_name
from spark_jobs.runs.life.verdicts import Deployment, Verdicts
from spark_jobs.spark.parallel import run_parallel

_SHOWN_FIRST = (*UNEXPLAINED, Verdict.UNDECIDED, Verdict.TIMING, Verdict.LATE_ARRIVALS)


def make_report(comparison: Comparison, context: RecountContext, emitted: Emitted, limit: int, width: int) -> Verdicts:
    """What a comparison has found; it lists at most `limit` windows and twice as many late records.

    `width`: of a stretch of time, ms.
    """
    rows, scope = comparison.rows, comparison.scope
    counted = tally(rows, width)
    fits, shown, late = run_parallel(
        rows.sparkSession,
        lambda: _fits(rows) if comparison.has_fits else [],
        lambda: _largest(rows, scope, limit) if any(counted.counts.get(v) for v in _SHOWN_FIRST) else [],
        lambda: _late_record_samples(rows, scope, context, limit) if counted.counts.get(Verdict.LATE_ARRIVALS) else [],
    )
    lags = [{"from": format_instant(lag.start), "to": format_instant(lag.end)} for lag in comparison.band.lags]
    found = {
        "emitted": emitted.description,
        "fidelity": comparison.fidelity,
        "fits": [row.asDict() for row in fits],
        "lags": lags,
        "rows_unreadable": emitted.unreadable,
        "rows_outside_range": emitted.outside,
        "keys": list(scope.keys),
        "values": list(scope.values),
        "top": [_plain(row.asDict()) for row in shown],
        "late_record_samples": late,
        "next_step": _next_step(counted.counts, counted.labels),
        "notes": _notes(comparison, counted, emitted),
    }
    return counted.model_copy(update=found)


def of_deployments(reports: Sequence[tuple[Deployed, Verdicts]], limit: int) -> Verdicts:
    """What the comparisons of several deployments of the live job have found; of the only one as it is."""
    (first, alone), *others = reports
    if first.name is None and not others:
        return alone
    merged = Verdicts.merged([_named(deployed, report) for deployed, report in reports])
    place = {verdict.value: number for number, verdict in enumerate(_SHOWN_FIRST)}
    found = {
        "rows_outside_range": 0,
        "top": sorted(merged.top, key=lambda window: place[window[VERDICT]])[:limit],
        "late_record_samples": merged.late_record_samples[: 2 * limit],
        "next_step": _next_step(merged.counts, merged.labels),
    }
    return merged.model_copy(update=found)


def _named(deployed: Deployed, report: Verdicts) -> Verdicts:
    """What was found about a deployment, with its name wherever it is merged with others."""
    name = {"live_deployment": deployed.name}
    itself = {
        "name": deployed.name,
        "from": None if deployed.start is None else format_instant(deployed.start),
        "to": None if deployed.end is None else format_instant(deployed.end),
        "emitted": report.emitted,
        "own_rules": deployed.has_own_rules,
        "windows": report.windows,
        "verdicts": report.counts,
    }
    found = {
        "top": [window | name for window in report.top],
        "fits": [fit | name for fit in report.fits],
        "notes": [f"{deployed.name}: {note}" for note in report.notes],
        "deployments": [Deployment.model_validate(itself)],
    }
    return report.model_copy(update=found)


def _fits(rows: DataFrame) -> list:
    """The cuts that were found, counted by kind."""
    return (
        rows.where(F.col(KIND).isNotNull() & (F.col(KIND) != ""))
        .select(END, KIND, FIT_KEYS, LEFT_OUT)
        .distinct()
        .groupBy(KIND)
        .agg(
            F.count(F.lit(1)).alias("window_ends"),
            F.min(FIT_KEYS).alias("fewest_keys"),
            F.percentile(FIT_KEYS, F.lit(0.5)).alias("median_keys"),
            F.sum(LEFT_OUT).alias("keys_left_out"),
        )
        .orderBy(KIND)
        .collect()
    )


def _by_change(rows: DataFrame, scope: ComparisonScope) -> DataFrame:
    """`rows` with `rw_most`: the largest difference between an emitted value and what it should be.

    That is the faithful value; for `late_arrivals`, where both are equal, the complete value.
    """
    types = {f.name: f.dataType for f in rows.schema}

    def change(v: str) -> Column:
        if not isinstance(types[v], NumericType) or not isinstance(types[emitted_name(v)], NumericType):
            return F.lit(0.0)
        late = F.col(VERDICT) == Verdict.LATE_ARRIVALS
        truth = F.when(late, F.col(f"`{complete_name(v)}`")).otherwise(F.col(f"`{v}`"))
        emitted = F.coalesce(F.col(f"`{emitted_name(v)}`"), F.lit(0)).cast("double")
        return F.abs(emitted - F.coalesce(truth, F.lit(0)).cast("double"))

    return rows.withColumn("rw_most", F.greatest(*(change(v) for v in scope.values), F.lit(0.0), F.lit(0.0)))


def _largest(rows: DataFrame, scope: ComparisonScope, limit: int) -> list:
    """The windows to show: unexplained ones first, then by the largest change."""
    rank = F.lit(None).cast("int")
    for place, verdict in reversed(list(enumerate(_SHOWN_FIRST))):
        rank = F.when(F.col(VERDICT) == verdict, F.lit(place)).otherwise(rank)
    values = [c for v in scope.values for c in (emitted_name(v), v, complete_name(v))]
    shown = (VERDICT, LABEL, BASIS, *values, DIFFERS, ROWS, UNDECIDED, FIT_KEYS, LEFT_OUT)
    return (
        _by_change(rows.withColumn("rw_rank", rank), scope)
        .where("rw_rank IS NOT NULL")
        .orderBy("rw_rank", F.desc("rw_most"), START, *scope.keys)
        .limit(limit)
        .select(*scope.keys, START, END, *shown)
        .collect()
    )


def _late_record_samples(
    rows: DataFrame, scope: ComparisonScope, context: RecountContext, limit: int
) -> list[dict[str, Any]]:
    if context.replay.merges:
        return []
    late = _by_change(rows.where(F.col(VERDICT) == Verdict.LATE_ARRIVALS), scope)
    chosen = checkpointed(late.orderBy(F.desc("rw_most"), START, *scope.keys).limit(limit))
    return [_plain(row.asDict()) for row in late_records_of(context, chosen, 2 * limit).collect()]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """The row as JSON values, with instants as ISO-8601 texts."""
    for name in (START, END, "arrival", "event_time"):
        if isinstance(row.get(name), int):
            row[name] = format_instant(row[name])
    return {k: v if isinstance(v, int | float | str | bool | list | None) else str(v) for k, v in row.items()}


def _next_step(verdicts: dict[str, int], labels: dict[str, dict[str, int]]) -> str:
    mismatches = labels.get(Verdict.MISMATCH, {})
    if any(verdicts.get(verdict) for verdict in UNEXPLAINED):
        if any(label.startswith(MATCHES_WITH) for verdict in UNEXPLAINED for label in labels.get(verdict, {})):
            return "Rows contradict a field of the definition: the notes name it, and the value with which they match."
        if mismatches.get(Label.EQUALS_COMPLETE):
            return (
                "Some emitted values equal the complete ones: compare allowed_lateness and bound with the live job's."
            )
        if any(label.startswith(SHIFTED_BY) for label in mismatches):
            return "Some rows hold the values of another window: check live.window.time_zone, unit and the offset."
        if any(label.startswith(WITHOUT_PARTITION) for label in mismatches):
            return "Some rows lack the records of a partition: check that the live job read all of them."
        return "Look at the windows above: the definition or the source has changed, or the live job has failed."
    if verdicts.get(Verdict.UNDECIDED) and Label.BATCH_NOT_COMMITTED in labels.get(Verdict.UNDECIDED, {}):
        return "Start the query again, and compare then: its next start runs the batch that was not committed."
    if verdicts.get(Verdict.UNDECIDED):
        return "Add evidence to `live:` (last_offsets): it decides the undecided windows."
    if verdicts.get(Verdict.LATE_ARRIVALS):
        return "A run publishes the complete values beside the faithful ones."
    return "There is nothing to do."


def _notes(comparison: Comparison, counted: Verdicts, emitted: Emitted) -> list[str]:
    verdicts, notes = counted.counts, list(emitted.notes)
    for other in comparison.tried:
        windows = sum(counted.labels.get(verdict, {}).get(label_of(other), 0) for verdict in UNEXPLAINED)
        if windows:
            notes.append(f"{windows:,} windows that differ match with `{other.field}: {other.value}`")
    if emitted.outside:
        notes.append(f"{emitted.outside:,} emitted rows lie outside of the compared range and were left out")
    if comparison.fidelity != "recorded" and comparison.band.margin:
        margin = format_duration(comparison.band.margin)
        notes.append(f"the log alone does not show whether what arrived within {margin} of a close came in time")
    if comparison.band.lags:
        total = sum(lag.end - lag.start for lag in comparison.band.lags)
        notes.append(f"the live job lagged {len(comparison.band.lags)} times, {format_duration(total)} in all")
    if verdicts.get(Verdict.NOT_CLOSED):
        open_now = verdicts[Verdict.NOT_CLOSED]
        was = "was" if open_now == 1 else "were"
        notes.append(f"{plural(open_now, 'window')} {was} still open at the end offsets and {was} not counted")
    return notes


def late_records_of(context: RecountContext, windows: DataFrame, limit: int) -> DataFrame:
    """The records that the live job left out of `windows`; at most `limit`, ordered by position.

    `windows` are few rows of a comparison.

    Columns: keys, `window_start`, `window_end`, `partition`, `offset`, `arrival`, `event_time` (epoch ms) and
    `late_by`: ms of processing time from the window's final close to the record's arrival (negative where evidence says
    that the record was late, although it arrived before the close).
    """
    bounds = windows.select(START, END).collect()
    ends = ends_of(context, windows, {row[1] for row in bounds})
    records = records_in(context, windows, ends, OFFSETS, BASIS, starts=[row[0] for row in bounds], are_few=True)
    close = ends.select(END, *(f"rw_close_{p}" for p in ("arrival", "major", "minor")))
    records = records.join(close, END)
    recorded = (F.col(f"rw_d_{BASIS}") == EvidenceKind.RECORDED) & F.col(f"rw_d_{OFFSETS}").isNotNull()
    in_log = record_position(records).not_after(close_position())
    left_out: Column = ~F.when(recorded, taken_by_offsets()).otherwise(in_log)
    return (
        records.where(left_out)
        .select(
            *context.keys,
            START,
            END,
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            F.col(ARRIVAL).alias("arrival"),
            F.col(EVENT_TIME).alias("event_time"),
            (F.col(ARRIVAL) - F.col("rw_close_arrival")).alias("late_by"),
        )
        .orderBy(START, "arrival", "partition", "offset")
        .limit(limit)
    )
