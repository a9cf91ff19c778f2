"""A comparison in numbers: counts by verdict, the largest changes, what could not be told, and what to do next."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import NumericType

from spark_jobs.comparison.comparer import Comparison
from spark_jobs.comparison.emitted import ROWS, Emitted, emitted_name
from spark_jobs.comparison.fitting import FIT_KEYS, KIND, LEFT_OUT
from spark_jobs.comparison.late_records import late_records_of
from spark_jobs.comparison.recount import RecountContext
from spark_jobs.comparison.verdicts import BASIS, DIFFERS, LABEL, VERDICT, Comparing, EvidenceKind, Verdict
from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.spec import complete_name
from spark_jobs.replay.windows import DROPPED

GATE_CLOSED = 3
UNEXPLAINED = (Verdict.DRIFT, Verdict.MISSING, Verdict.UNEXPECTED)
_SHOWN_FIRST = (*UNEXPLAINED, Verdict.UNDECIDED, Verdict.TIMING, Verdict.LATE_ARRIVALS)


@dataclass(frozen=True)
class Report:
    """What a comparison found. Instants are ISO-8601, `late_by` ms.

    `windows` counts all but those not closed. `not_told`: windows of which the log alone could not have told a
    difference within their undecided records; `fitted` of them rest on a cut, `fits` are those cuts by kind and by how
    many keys they rest on.
    """

    pipeline: str
    emitted: str
    fidelity: str
    windows: int
    verdicts: dict[str, int]
    labels: dict[str, dict[str, int]]
    not_told: int
    contradicted: int
    fits: list[dict[str, Any]]
    lags: list[dict[str, str]]
    late_records: int
    rows_unreadable: int
    rows_outside_range: int
    top: list[dict[str, Any]]
    causes: list[dict[str, Any]]
    next_step: str
    exit_code: int
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make_report(
    comparison: Comparison, context: RecountContext, pipeline: str, emitted: Emitted, *, limit: int
) -> Report:
    """Count, and list at most `limit` windows and twice as many late records."""
    rows, comparing = comparison.rows, comparison.comparing
    counted = rows.groupBy(VERDICT, LABEL).count().collect()
    verdicts: dict[str, int] = {}
    labels: dict[str, dict[str, int]] = {}
    for verdict, label, count in counted:
        verdicts[verdict] = verdicts.get(verdict, 0) + count
        if label:
            labels.setdefault(verdict, {})[label] = count
    untold = (F.col(UNDECIDED) > 0) & (F.col(BASIS) != EvidenceKind.RECORDED) & (F.col(VERDICT) != Verdict.NOT_CLOSED)
    late = F.when(F.col(VERDICT) == Verdict.LATE_ARRIVALS, F.col(DROPPED))
    totals = rows.agg(F.count_if(untold), F.count_if(F.col("contradicted") > 0), F.sum(late)).collect()[0]
    fits = (
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
    shown = _largest(rows, comparing, limit)
    top = [_plain(row.asDict()) for row in shown]
    return Report(
        pipeline=pipeline,
        emitted=emitted.description,
        fidelity=comparison.fidelity,
        windows=sum(n for v, n in verdicts.items() if v != Verdict.NOT_CLOSED),
        verdicts={v.value: verdicts[v] for v in Verdict if v in verdicts},
        labels=labels,
        not_told=int(totals[0]),
        contradicted=int(totals[1]),
        fits=[row.asDict() for row in fits],
        lags=[{"from": format_instant(lag.start), "to": format_instant(lag.end)} for lag in comparison.band.lags],
        late_records=int(totals[2] or 0),
        rows_unreadable=emitted.unreadable,
        rows_outside_range=emitted.outside,
        top=top,
        causes=_causes(rows, comparing, context, limit),
        next_step=_next_step(verdicts, labels, pipeline),
        exit_code=GATE_CLOSED if any(verdicts.get(v) for v in UNEXPLAINED) else 0,
        notes=_notes(comparison, verdicts, emitted),
    )


def _by_change(rows: DataFrame, comparing: Comparing) -> DataFrame:
    """`rows` with `rw_most`: how far the emitted values are from what they should be, else from the complete ones."""
    types = {f.name: f.dataType for f in rows.schema}

    def change(v: str) -> Column:
        if not isinstance(types[v], NumericType) or not isinstance(types[emitted_name(v)], NumericType):
            return F.lit(0.0)
        late = F.col(VERDICT) == Verdict.LATE_ARRIVALS
        truth = F.when(late, F.col(f"`{complete_name(v)}`")).otherwise(F.col(f"`{v}`"))
        emitted = F.coalesce(F.col(f"`{emitted_name(v)}`"), F.lit(0)).cast("double")
        return F.abs(emitted - F.coalesce(truth, F.lit(0)).cast("double"))

    return rows.withColumn("rw_most", F.greatest(*(change(v) for v in comparing.values), F.lit(0.0), F.lit(0.0)))


def _largest(rows: DataFrame, comparing: Comparing, limit: int) -> list:
    """The windows that say most: unexplained ones first, then by the largest change."""
    rank = F.lit(None).cast("int")
    for place, verdict in reversed(list(enumerate(_SHOWN_FIRST))):
        rank = F.when(F.col(VERDICT) == verdict, F.lit(place)).otherwise(rank)
    values = [c for v in comparing.values for c in (emitted_name(v), v, complete_name(v))]
    shown = (VERDICT, LABEL, BASIS, *values, DIFFERS, ROWS, UNDECIDED, FIT_KEYS, LEFT_OUT)
    return (
        _by_change(rows.withColumn("rw_rank", rank), comparing)
        .where("rw_rank IS NOT NULL")
        .orderBy("rw_rank", F.desc("rw_most"), START, *comparing.keys)
        .limit(limit)
        .select(*comparing.keys, START, END, *shown)
        .collect()
    )


def _causes(rows: DataFrame, comparing: Comparing, context: RecountContext, limit: int) -> list[dict[str, Any]]:
    if context.replay.merges:
        return []
    late = _by_change(rows.where(F.col(VERDICT) == Verdict.LATE_ARRIVALS), comparing)
    chosen = late.orderBy(F.desc("rw_most"), START, *comparing.keys).limit(limit)
    if chosen.isEmpty():
        return []
    return [_plain(row.asDict()) for row in late_records_of(context, chosen, 2 * limit).collect()]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON-able, instants in words."""
    for name in (START, END, "arrival", "event_time"):
        if isinstance(row.get(name), int):
            row[name] = format_instant(row[name])
    return {k: v if isinstance(v, int | float | str | bool | list | None) else str(v) for k, v in row.items()}


def _next_step(verdicts: dict[str, int], labels: dict[str, dict[str, int]], pipeline: str) -> str:
    drift = labels.get(Verdict.DRIFT, {})
    if verdicts.get(Verdict.DRIFT) or verdicts.get(Verdict.UNEXPECTED) or verdicts.get(Verdict.MISSING):
        if drift.get("equals_complete"):
            return (
                "Some emitted values equal the complete ones: compare allowed_lateness and bound with the live job's."
            )
        if any(label.startswith("shifted_by_") for label in drift):
            return "Some rows hold the values of another window: check live.window.time_zone, unit and the offset."
        if any(label.startswith("without_partition_") for label in drift):
            return "Some rows lack the records of a partition: check that the live job read all of them."
        return "Look at the windows above: the definition or the source has changed, or the live job has failed."
    if verdicts.get(Verdict.UNDECIDED):
        return "Name evidence under `live:` (last_offsets), so that these windows can be told."
    if verdicts.get(Verdict.LATE_ARRIVALS):
        return f"`rewindow run {pipeline}` publishes the complete values beside the faithful ones."
    return "Nothing to do."


def _notes(comparison: Comparison, verdicts: dict[str, int], emitted: Emitted) -> list[str]:
    notes = list(emitted.notes)
    if emitted.outside:
        notes.append(f"{emitted.outside:,} emitted rows lie outside of the compared range and were left out")
    if comparison.fidelity != "recorded":
        margin = format_duration(comparison.band.margin)
        notes.append(f"from the log alone: records within {margin} of a close cannot be told apart")
    if comparison.band.lags:
        total = sum(lag.end - lag.start for lag in comparison.band.lags)
        notes.append(f"the live job lagged {len(comparison.band.lags)} times, {format_duration(total)} in all")
    if verdicts.get(Verdict.NOT_CLOSED):
        notes.append(f"{verdicts[Verdict.NOT_CLOSED]} windows are not closed at the as-of vector and were not counted")
    return notes
