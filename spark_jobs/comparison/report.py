"""The report of a comparison: counts by verdict, the largest changes, what stays in doubt, and what to do next."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from spark_jobs.comparison.comparer import Comparison
from spark_jobs.comparison.emitted import ROWS, Emitted, emitted_name
from spark_jobs.comparison.fitting import FIT_KEYS, KIND, LEFT_OUT
from spark_jobs.comparison.late_records import late_records_of
from spark_jobs.comparison.recount import RecountContext, checkpointed
from spark_jobs.comparison.tally import Tally, tally
from spark_jobs.comparison.verdicts import (
    BASIS,
    DIFFERS,
    LABEL,
    SHIFTED_BY,
    VERDICT,
    WITHOUT_PARTITION,
    ComparisonScope,
    Label,
    Verdict,
)
from spark_jobs.definition.deployments import Deployed
from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.spec import complete_name
from spark_jobs.spark.parallel import run_parallel

GATE_CLOSED = 3
"""The exit code where some window is mismatch, missing or extra."""
UNEXPLAINED = (Verdict.MISMATCH, Verdict.MISSING, Verdict.EXTRA)
_SHOWN_FIRST = (*UNEXPLAINED, Verdict.UNDECIDED, Verdict.TIMING, Verdict.LATE_ARRIVALS)


@dataclass(frozen=True)
class Report:
    """The result of a comparison. Instants are ISO-8601 texts, `late_by` is in ms.

    `windows`: the number of windows that have closed. `verdicts`: windows by verdict; `labels`: by verdict and label.
    `windows_in_doubt`: windows with undecided records and no evidence: the log alone would not show a difference in
    these records. `contradicted`: windows whose evidence contradicts the log. `fits`: the cuts, by kind.
    `top`: the windows with the largest changes. `late_record_samples`: some of the late records behind them.
    `deployments`: of each deployment its name, range, source, windows and counts; empty where there is only one.

    `not_told` and `causes` are the older names of `windows_in_doubt` and `late_record_samples`.
    """

    pipeline: str
    emitted: str
    fidelity: str
    windows: int
    verdicts: dict[str, int]
    labels: dict[str, dict[str, int]]
    windows_in_doubt: int
    contradicted: int
    fits: list[dict[str, Any]]
    lags: list[dict[str, str]]
    late_records: int
    rows_unreadable: int
    rows_outside_range: int
    top: list[dict[str, Any]]
    late_record_samples: list[dict[str, Any]]
    next_step: str
    exit_code: int
    notes: list[str] = field(default_factory=list)
    deployments: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, those with an older name under both names."""
        return asdict(self) | {"not_told": self.windows_in_doubt, "causes": self.late_record_samples}


def make_report(
    comparison: Comparison,
    context: RecountContext,
    pipeline: str,
    emitted: Emitted,
    *,
    limit: int,
    counts: Tally | None = None,
) -> Report:
    """The report of a comparison; it lists at most `limit` windows and twice as many late records.

    `counts`: those of its rows, if they have been counted already.
    """
    rows, scope = comparison.rows, comparison.scope
    counts = counts or tally(rows)
    verdicts = dict(counts.verdicts)
    labels = {verdict: dict(found) for verdict, found in counts.labels.items()}
    fits, shown, late = run_parallel(
        rows.sparkSession,
        lambda: _fits(rows) if comparison.has_fits else [],
        lambda: _largest(rows, scope, limit) if any(verdicts.get(v) for v in _SHOWN_FIRST) else [],
        lambda: _late_record_samples(rows, scope, context, limit) if verdicts.get(Verdict.LATE_ARRIVALS) else [],
    )
    top = [_plain(row.asDict()) for row in shown]
    return Report(
        pipeline=pipeline,
        emitted=emitted.description,
        fidelity=comparison.fidelity,
        windows=counts.closed,
        verdicts={v.value: verdicts[v] for v in Verdict if v in verdicts},
        labels=labels,
        windows_in_doubt=counts.in_doubt,
        contradicted=counts.contradicted,
        fits=[row.asDict() for row in fits],
        lags=[{"from": format_instant(lag.start), "to": format_instant(lag.end)} for lag in comparison.band.lags],
        late_records=counts.late_records,
        rows_unreadable=emitted.unreadable,
        rows_outside_range=emitted.outside,
        top=top,
        late_record_samples=late,
        next_step=_next_step(verdicts, labels, pipeline),
        exit_code=GATE_CLOSED if any(verdicts.get(v) for v in UNEXPLAINED) else 0,
        notes=_notes(comparison, verdicts, emitted),
    )


def of_deployments(reports: Sequence[tuple[Deployed, Report]], limit: int) -> Report:
    """One report of the comparisons of several deployments of the live job; that of the only one as it is."""
    (first, alone), *others = reports
    if first.name is None and not others:
        return alone
    every = [report for _, report in reports]
    verdicts: Counter[str] = Counter()
    labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for report in every:
        verdicts.update(report.verdicts)
        for verdict, found in report.labels.items():
            labels[verdict].update(found)
    named = [(deployed.name, report) for deployed, report in reports]
    top = [{**window, "live_deployment": name} for name, report in named for window in report.top]
    place = {verdict.value: number for number, verdict in enumerate(_SHOWN_FIRST)}
    pipeline, total = alone.pipeline, dict(verdicts)
    return Report(
        pipeline=pipeline,
        emitted=", ".join(dict.fromkeys(report.emitted for report in every)),
        fidelity="recorded" if all(report.fidelity == "recorded" for report in every) else "log_order",
        windows=sum(report.windows for report in every),
        verdicts={v.value: verdicts[v] for v in Verdict if v in verdicts},
        labels={verdict: dict(found) for verdict, found in labels.items()},
        windows_in_doubt=sum(report.windows_in_doubt for report in every),
        contradicted=sum(report.contradicted for report in every),
        fits=[{**fit, "live_deployment": name} for name, report in named for fit in report.fits],
        lags=[lag for report in every for lag in report.lags],
        late_records=sum(report.late_records for report in every),
        rows_unreadable=sum(report.rows_unreadable for report in every),
        rows_outside_range=0,
        top=sorted(top, key=lambda window: place[window[VERDICT]])[:limit],
        late_record_samples=[record for report in every for record in report.late_record_samples][: 2 * limit],
        next_step=_next_step(total, {verdict: dict(found) for verdict, found in labels.items()}, pipeline),
        exit_code=max(report.exit_code for report in every),
        notes=list(dict.fromkeys(f"{name}: {note}" for name, report in named for note in report.notes)),
        deployments=[
            {
                "name": deployed.name,
                "from": None if deployed.start is None else format_instant(deployed.start),
                "to": None if deployed.end is None else format_instant(deployed.end),
                "emitted": report.emitted,
                "own_rules": deployed.has_own_rules,
                "windows": report.windows,
                "verdicts": report.verdicts,
            }
            for deployed, report in reports
        ],
    )


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


def _next_step(verdicts: dict[str, int], labels: dict[str, dict[str, int]], pipeline: str) -> str:
    mismatches = labels.get(Verdict.MISMATCH, {})
    if verdicts.get(Verdict.MISMATCH) or verdicts.get(Verdict.EXTRA) or verdicts.get(Verdict.MISSING):
        if mismatches.get(Label.EQUALS_COMPLETE):
            return (
                "Some emitted values equal the complete ones: compare allowed_lateness and bound with the live job's."
            )
        if any(label.startswith(SHIFTED_BY) for label in mismatches):
            return "Some rows hold the values of another window: check live.window.time_zone, unit and the offset."
        if any(label.startswith(WITHOUT_PARTITION) for label in mismatches):
            return "Some rows lack the records of a partition: check that the live job read all of them."
        return "Look at the windows above: the definition or the source has changed, or the live job has failed."
    if verdicts.get(Verdict.UNDECIDED):
        return "Add evidence to `live:` (last_offsets): it decides the undecided windows."
    if verdicts.get(Verdict.LATE_ARRIVALS):
        return "A run publishes the complete values beside the faithful ones."
    return "There is nothing to do."


def _notes(comparison: Comparison, verdicts: dict[str, int], emitted: Emitted) -> list[str]:
    notes = list(emitted.notes)
    if emitted.outside:
        notes.append(f"{emitted.outside:,} emitted rows lie outside of the compared range and were left out")
    if comparison.fidelity != "recorded":
        margin = format_duration(comparison.band.margin)
        notes.append(f"from the log alone: it does not show whether records within {margin} of a close came in time")
    if comparison.band.lags:
        total = sum(lag.end - lag.start for lag in comparison.band.lags)
        notes.append(f"the live job lagged {len(comparison.band.lags)} times, {format_duration(total)} in all")
    if verdicts.get(Verdict.NOT_CLOSED):
        notes.append(f"{verdicts[Verdict.NOT_CLOSED]} windows were still open at the end offsets and were not counted")
    return notes
