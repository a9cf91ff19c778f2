"""The compare stage of a run: judges the live job's windows with the run's own replay, and keeps the verdicts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.comparer import Comparer
from spark_jobs.comparison.delivered import delivered_since
from spark_jobs.comparison.emitted import AT, ROWS, EmittedRows, emitted_name
from spark_jobs.comparison.emitted_pruning import of_windows, ranges_of
from spark_jobs.comparison.join_keys import join_columns, key_types, with_join_keys
from spark_jobs.comparison.report import Report, make_report
from spark_jobs.comparison.tally import DAY, Stretch, Tally, tally
from spark_jobs.comparison.timing_band import final_until
from spark_jobs.comparison.verdicts import BASIS, LABEL, VERDICT, EvidenceKind, Label, Verdict
from spark_jobs.errors import CatalogError, RewindowError, RunStateError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import RegularWindows
from spark_jobs.lakehouse.verdicts import (
    ComparingRun,
    LastComparison,
    VerdictTable,
    last_comparison,
    record_counts,
)
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.spec import complete_name
from spark_jobs.runs.comparing import ToCompare
from spark_jobs.runs.job import Job
from spark_jobs.runs.plan import chunks_of
from spark_jobs.runs.verdicts import Verdicts
from spark_jobs.spark.cached import CachedFrames

SHOWN = 20
"""Windows that `verdicts.json` lists."""
COMMIT_DELAY = 3_600_000
"""Sinks commit in batches: a row may come so much later than it was emitted (ms)."""
_NOT_KEPT = (Verdict.MATCH.value, Verdict.NOT_CLOSED.value)
_MAX_STARTS = 100_000


@dataclass(frozen=True)
class _Chosen:
    """What is compared: all windows in `spans`, and of those in `older` the windows of `pairs`."""

    spans: Sequence[TimeRange]
    older: Sequence[TimeRange] = ()
    pairs: DataFrame | None = None

    @property
    def is_partial(self) -> bool:
        return self.pairs is not None

    @property
    def hull(self) -> TimeRange:
        """A range that holds all starts."""
        everywhere = (*self.older, *self.spans)
        if not everywhere:
            return TimeRange(0, 1)
        return TimeRange(min(s.start for s in everywhere), max(s.end for s in everywhere))


def compare_run(job: Job, replay: Replay, windows: ToCompare) -> Verdicts:
    """Compare the windows, write the tables of verdicts unless it is a dry run; the document of the run.

    What the live job emitted may be out of reach, or the definition may not fit it: that is the document's `problem`,
    and the run goes on. Raises CatalogError where the tables cannot be written.
    """
    try:
        last = replay.with_last_panes()
        with nullcontext() if last is replay else last:
            return _compared(job, last, windows)
    except (CatalogError, RunStateError):
        raise
    except RewindowError as problem:
        where = f" ({problem.where})" if problem.where else ""
        return Verdicts(
            attempt=job.attempt, problem=f"{problem.what}{where}", next_step=problem.hint, emitted=problem.where or ""
        )


def _compared(job: Job, replay: Replay, windows: ToCompare) -> Verdicts:
    spark, pipeline, spec = job.spark, job.pipeline, replay.spec
    table = VerdictTable(spark, job.result.tables.verdicts, spec.keys)
    with CachedFrames() as cached:
        rows = EmittedRows(spark, pipeline, key_types(replay.history.records.schema, spec.keys), cached)
        chosen, notes = _chosen(job, rows, table, windows, cached)
        final = final_until(replay.timeline, replay.spec.allowed_lateness)
        if not chosen.spans and not chosen.older:
            if windows.keeps:  # how far the emitted rows were seen
                _record_counts(job, _comparing(job), Tally(DAY), rows, is_complete=True, final=final)
            return Verdicts(attempt=job.attempt, whole_range=False, notes=notes)
        if chosen.is_partial:
            emitted = rows.chosen(chosen.spans, chosen.older, chosen.pairs)
        else:
            emitted = rows.windows(chosen.hull)
        with Comparer(replay, pipeline, emitted, chosen.spans, chosen.older, chosen.pairs) as comparer:
            comparison = comparer.compare()
            counts = tally(comparison.rows, (*chosen.older, *chosen.spans))
            report = make_report(comparison, comparer.context, pipeline.name, emitted, limit=SHOWN, counts=counts)
            run = _comparing(job)
            kept: dict[str, int] = {}
            if windows.keeps:
                found = comparison.rows.where(~F.col(VERDICT).isin(*_NOT_KEPT))
                found = _decided_before(found, table, chosen, spec.keys, emitted.values)
                kept = table.record(
                    _kept_columns(found, spec.keys, emitted.values),
                    lambda earlier: _in_scope(earlier, spec.keys, chosen),
                    chosen.hull,
                    run,
                )
                is_complete = chosen.is_partial or job.plan.is_whole
                _record_counts(job, run, counts, rows, is_complete=is_complete, final=final)
            return _document(job, report, counts, kept, [*notes, *report.notes], chosen, windows, emitted.values)


def _comparing(job: Job) -> ComparingRun:
    return ComparingRun(job.result.run_id, json.dumps(job.plan.as_of, sort_keys=True), job.now())


def _chosen(
    job: Job, rows: EmittedRows, table: VerdictTable, windows: ToCompare, cached: CachedFrames
) -> tuple[_Chosen, list[str]]:
    """What to compare, and notes about it."""
    if windows.touched is None or windows.before is None:
        return _Chosen(windows.chunks), []
    last = last_comparison(job.spark, job.result.tables.comparisons)
    if last is None or not _has_seen(last, windows.before):
        return _Chosen(job.plan.chunks), ["all windows were compared: no complete comparison came before"]
    keys, touched, notes = job.spec.keys, windows.touched, []
    parts = [touched.pairs] if touched.older is not None and touched.pairs is not None else []
    earlier = TimeRange(min(job.plan.span.start, touched.recent.start), touched.recent.start)
    since = None if last.emitted_until is None else last.emitted_until - COMMIT_DELAY
    again = rows.changed(earlier, since, last.emitted_offsets)
    if again is not None:
        parts.append(again)
    elif rows.live.emitted_at is None:
        notes.append(
            "of windows that were compared before, those with new records were compared again; new rows of the live "
            "job for other ones show only if `live.emitted_at` is given"
        )
    current = table.current()
    if current is not None:  # their rows may have come since
        is_missing = current.where(F.col(VERDICT) == Verdict.MISSING)
        starts, ends = (F.unix_millis(name).alias(name) for name in (START, END))
        parts.append(is_missing.select(*(f"`{k}`" for k in keys), starts, ends))
        corrected = delivered_since(current, job.pipeline, keys)
        if corrected is not None:
            parts.append(corrected.select(*(f"`{k}`" for k in keys), starts, ends))
    if not parts:
        return _Chosen(windows.chunks), notes
    columns = [*(f"`{k}`" for k in keys), START, END]
    united = reduce(DataFrame.unionByName, (part.select(*columns) for part in parts))
    pairs = cached.keep(united.where(F.col(START) < F.lit(touched.recent.start)).distinct())
    starts = [row[0] for row in pairs.select(START).distinct().orderBy(START).limit(_MAX_STARTS + 1).collect()]
    if len(starts) > _MAX_STARTS:
        low, high = pairs.agg(F.min(START), F.max(START)).collect()[0]
        reach: tuple[TimeRange, ...] = (TimeRange(low, high + 1),)
    else:
        step = job.spec.windows.start_step if isinstance(job.spec.windows, RegularWindows) else 86_400_000
        reach = ranges_of(starts, step)
    older = [chunk for part in reach for chunk in chunks_of(job.spec.windows, part)]
    return _Chosen(windows.chunks, older, pairs), notes


def _has_seen(last: LastComparison, before: dict[int, int]) -> bool:
    """Whether the comparison was of a state at least as late as the run that this one goes on from."""
    return all(last.as_of.get(partition, -1) >= end for partition, end in before.items())


def _in_scope(earlier: DataFrame, keys: Sequence[str], chosen: _Chosen) -> DataFrame:
    """Of earlier rows of the table of verdicts those whose windows were compared."""
    placed = earlier.withColumns({START: F.unix_millis(START), END: F.unix_millis(END)})
    inside = of_windows(placed, keys, chosen.spans, chosen.pairs)
    return inside.withColumns({START: F.timestamp_millis(START), END: F.timestamp_millis(END)})


def _kept_columns(found: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """The rows in the columns of the table of verdicts."""

    def three(v: str) -> list[Column]:
        return [F.col(f"`{name}`") for name in (emitted_name(v), v, complete_name(v))]

    return found.select(
        *(f"`{k}`" for k in keys),
        F.timestamp_millis(START).alias(START),
        F.timestamp_millis(END).alias(END),
        *(column for v in values for column in three(v)),
        VERDICT,
        LABEL,
        BASIS,
        UNDECIDED,
        ROWS,
        F.timestamp_millis(AT).alias(AT),
    )


def _decided_before(
    found: DataFrame, table: VerdictTable, chosen: _Chosen, keys: Sequence[str], values: Sequence[str]
) -> DataFrame:
    """Windows compared again one by one keep the verdict that a cut for all keys of their end has given.

    New records do not change what the live job should have emitted for a window that has closed, and a cut that has to
    explain a few keys only explains too much. So while the emitted values are the same, the verdict is too.
    """
    current = table.current()
    if not chosen.is_partial or current is None or not chosen.older:
        return found
    by_fit = current.where(
        (F.col(VERDICT) == Verdict.TIMING)
        | (F.col(LABEL).isin(Label.NO_ADMISSIBLE_CUT.value, Label.TOO_MANY_CUTS.value))
        | (F.col(BASIS) == EvidenceKind.FIT)
    )
    there = set(current.columns)
    names = [emitted_name(v) for v in values if emitted_name(v) in there]
    placed = by_fit.withColumns({START: F.unix_millis(START), END: F.unix_millis(END)})
    before = with_join_keys(placed, keys).select(
        *join_columns(keys),
        *(F.col(f"`{c}`").alias(f"rw_was_{c}") for c in (VERDICT, LABEL, BASIS, *names, *values) if c in there),
    )
    joined = found.join(F.broadcast(before), join_columns(keys), "left")
    kept = F.col(f"rw_was_{VERDICT}").isNotNull()
    for name in names:
        kept = kept & F.col(f"`{name}`").eqNullSafe(F.col(f"`rw_was_{name}`"))
    changed = [VERDICT, LABEL, BASIS, *(v for v in values if v in there)]
    return joined.withColumns(
        {c: F.when(kept, F.col(f"`rw_was_{c}`")).otherwise(F.col(f"`{c}`")) for c in changed}
    ).select(*(f"`{c}`" for c in found.columns))


def _record_counts(
    job: Job, run: ComparingRun, counts: Tally, rows: EmittedRows, *, is_complete: bool, final: int
) -> None:
    tables, last = job.result.tables, None
    until = counts.emitted_until
    if until is None or not is_complete:
        last = last_comparison(job.spark, tables.comparisons)
        until = until if until is not None else last and last.emitted_until
    shared = {
        "as_of": job.plan.as_of,
        "is_complete": is_complete,
        "emitted_until": None if until is None else datetime.fromtimestamp(until / 1000, UTC),
        "emitted_offsets": rows.opened.ends,
        "final_before": datetime.fromtimestamp(final / 1000, UTC),
    }
    days: list[dict[str, Any]] = [
        {"day": _date(start), "verdicts": dict(day.counts), **_lag_columns(day)}
        for start, day in sorted(counts.days.items())
    ]
    empty = [{"day": None, "verdicts": {}, "lag_mean_ms": None, "lag_largest_ms": None}]
    record_counts(job.spark, job.ledger, tables.comparisons, run, [shared | day for day in days or empty])


def _date(milliseconds: int) -> date:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).date()


def _lag_columns(day: Stretch) -> dict[str, Any]:
    lag = day.delays.to_dict()
    return {"lag_mean_ms": lag["mean"], "lag_largest_ms": lag["largest"]}


def _document(
    job: Job,
    report: Report,
    counts: Tally,
    kept: dict[str, int],
    notes: list[str],
    chosen: _Chosen,
    windows: ToCompare,
    values: Sequence[str],
) -> Verdicts:
    tables = job.result.tables

    def over_time(stretches: dict[int, Stretch]) -> list[dict[str, Any]]:
        return [
            {"start": start, "counts": dict(one.counts), "lag": one.delays.to_dict()}
            for start, one in sorted(stretches.items())
        ]

    return Verdicts.model_validate(
        {
            "attempt": job.attempt,
            "emitted": report.emitted,
            "fidelity": report.fidelity,
            "whole_range": not chosen.is_partial,
            "windows": report.windows,
            "counts": report.verdicts,
            "labels": report.labels,
            "windows_in_doubt": report.windows_in_doubt,
            "contradicted": report.contradicted,
            "late_records": report.late_records,
            "rows_unreadable": report.rows_unreadable,
            "keys": list(job.spec.keys),
            "values": list(values),
            "fits": report.fits,
            "lags": report.lags,
            "lag": counts.delays.to_dict(),
            "days": over_time(counts.days),
            "stretches": over_time(counts.stretches),
            "width": counts.width,
            "top": report.top,
            "late_record_samples": report.late_record_samples,
            "next_step": report.next_step,
            "notes": notes,
            "kept": kept,
            "tables": {"verdicts": tables.verdicts, "comparisons": tables.comparisons} if windows.keeps else {},
        }
    )
