"""The compare stage of a run: judges the live job's windows with the run's own replay, and keeps the verdicts.

Where no record is new, `has_live_news` says whether the live job has emitted rows that no comparison has seen.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.comparison.chosen import Chosen, chosen_windows
from spark_jobs.comparison.comparer import Comparer
from spark_jobs.comparison.deployed import no_deployment, only_of, replay_of
from spark_jobs.comparison.emitted import AT, ROWS, EmittedRows, emitted_name, live_of
from spark_jobs.comparison.emitted_pruning import of_windows
from spark_jobs.comparison.emitted_topic import pin_rows
from spark_jobs.comparison.join_keys import join_columns, key_types, with_join_keys
from spark_jobs.comparison.report import make_report, of_deployments
from spark_jobs.comparison.tally import width_of
from spark_jobs.comparison.timing_band import final_until
from spark_jobs.comparison.verdicts import BASIS, LABEL, VERDICT, EvidenceKind, Label, Verdict
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import Deployed, deployments_of
from spark_jobs.definition.live import TopicEmitted
from spark_jobs.engines import live_engine
from spark_jobs.errors import CatalogError, RewindowError, RunStateError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.tables import Tables, starting_in, starts_within
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
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.work.comparing import ToCompare
from spark_jobs.runs.work.job import Job
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.parallel import run_parallel

SHOWN = 20
"""Windows that `verdicts.json` lists."""
_NOT_KEPT = (Verdict.MATCH.value, Verdict.NOT_CLOSED.value)


@dataclass(frozen=True, slots=True)
class _Deployment:
    """A deployment of the live job, what it emitted, and what of it is compared. `last`: its last comparison."""

    deployed: Deployed
    rows: EmittedRows
    chosen: Chosen
    notes: list[str]
    last: LastComparison | None


@dataclass(frozen=True, slots=True)
class _Compared:
    """What the comparison of one deployment has found; None: no window of it was to be compared."""

    one: _Deployment
    final: int | None
    report: Verdicts | None = None


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
    table = VerdictTable(job.spark, job.result.tables.verdicts, replay.spec.keys)
    run = ComparingRun(job.result.run_id, json.dumps(job.plan.as_of, sort_keys=True), job.now())
    with CachedFrames() as cached:
        deployments = [
            _opened(job, replay, deployed, table, windows, cached)
            for deployed in deployments_of(job.pipeline)
            if deployed.clipped(job.plan.span) is not None
        ]
        if not deployments:
            raise no_deployment(job.pipeline)
        width = width_of([span for one in deployments for span in one.chosen.everywhere])
        uncommitted = None
        if any(one.chosen.everywhere for one in deployments):
            spec, plan = replay.spec, job.plan
            engine = live_engine(job.pipeline)
            uncommitted = engine.in_doubt(job.spark, job.pipeline, spec, plan.as_of, plan.processing_time_end)
        found = [_compare_one(job, replay, one, table, windows, run, width, uncommitted) for one in deployments]
        if windows.keeps:
            _record_counts(job, run, found)
    return _document(job, found, windows)


def _opened(
    job: Job, replay: Replay, deployed: Deployed, table: VerdictTable, windows: ToCompare, cached: CachedFrames
) -> _Deployment:
    types = key_types(replay.history.records.schema, replay.spec.keys)
    rows = EmittedRows(job.spark, deployed.pipeline, types, cached)
    if windows.keeps:
        rows.keep()
    last = None
    if windows.touched is not None:
        last = last_comparison(job.spark, job.result.tables.comparisons, deployed.name)
    chosen, notes = chosen_windows(job, deployed, rows, table, windows, last, cached)
    return _Deployment(deployed, rows, chosen, notes, last)


def _compare_one(
    job: Job,
    replay: Replay,
    one: _Deployment,
    table: VerdictTable,
    windows: ToCompare,
    run: ComparingRun,
    width: int,
    uncommitted: DataFrame | None,
) -> _Compared:
    """Compare a deployment's windows, and write its verdicts unless it is a dry run. `uncommitted`: see `Comparer`."""
    deployed, chosen, keys = one.deployed, one.chosen, replay.spec.keys
    if not chosen.everywhere:
        if deployed.has_own_rules:  # its timeline is not made for nothing
            return _Compared(one, None if one.last is None else one.last.final_before)
        return _Compared(one, final_until(replay.timeline, replay.spec))
    with replay_of(deployed, replay, [p.partition for p in job.plan.partitions]) as own:
        final = final_until(own.timeline, own.spec)
        if chosen.is_partial:
            emitted = one.rows.chosen(chosen.spans, chosen.older, chosen.pairs)
        else:
            emitted = only_of(deployed, one.rows.windows(chosen.hull))
        with Comparer(
            own, deployed.pipeline, emitted, chosen.spans, chosen.older, chosen.pairs, uncommitted
        ) as comparer:
            comparison = comparer.compare()

            def reported() -> Verdicts:
                return make_report(comparison, comparer.context, emitted, SHOWN, width)

            def recorded() -> dict[str, int]:
                if not windows.keeps:
                    return {}
                found = comparison.rows.where(~F.col(VERDICT).isin(*_NOT_KEPT))
                found = _decided_before(found, table, chosen, keys, emitted.values)
                columns = _kept_columns(found, keys, emitted.values, deployed.name)
                return table.record(columns, lambda earlier: _in_scope(earlier, keys, chosen), chosen.hull, run)

            report, kept = run_parallel(job.spark, reported, recorded)
            return _Compared(one, final, report.model_copy(update={"kept": kept}))


def _in_scope(earlier: DataFrame, keys: Sequence[str], chosen: Chosen) -> DataFrame:
    """The earlier rows of the table of verdicts whose windows were compared."""
    placed = earlier.withColumns({START: F.unix_millis(START), END: F.unix_millis(END)})
    inside = of_windows(placed, keys, chosen.spans, chosen.pairs)
    return inside.withColumns({START: F.timestamp_millis(START), END: F.timestamp_millis(END)})


def _kept_columns(found: DataFrame, keys: Sequence[str], values: Sequence[str], deployment: str | None) -> DataFrame:
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
        F.lit(deployment).cast("string").alias("live_deployment"),
    )


def _decided_before(
    found: DataFrame, table: VerdictTable, chosen: Chosen, keys: Sequence[str], values: Sequence[str]
) -> DataFrame:
    """Windows compared again one by one keep the verdict that a cut for all keys of their end has given.

    New records do not change what the live job should have emitted for a window that has closed, and a cut that has to
    explain a few keys only explains too much. So while the emitted values are the same, the verdict is too.
    """
    current = table.current()
    if not chosen.is_partial or current is None or not chosen.older:
        return found
    by_fit = starting_in(current, chosen.everywhere).where(
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


def _record_counts(job: Job, run: ComparingRun, found: Sequence[_Compared]) -> None:
    rows: list[dict[str, Any]] = []
    for each in found:
        one, until = each.one, each.report and each.report.emitted_until
        is_complete = one.chosen.is_partial or not one.chosen.everywhere or job.plan.is_whole
        if until is None:
            last = one.last or last_comparison(job.spark, job.result.tables.comparisons, one.deployed.name)
            until = last and last.emitted_until
        shared = {
            "as_of": job.plan.as_of,
            "is_complete": is_complete,
            "emitted_until": None if until is None else datetime.fromtimestamp(until / 1000, UTC),
            "emitted_offsets": one.rows.opened.ends,
            "final_before": None if each.final is None else datetime.fromtimestamp(each.final / 1000, UTC),
            "live_deployment": one.deployed.name,
        }
        days: list[dict[str, Any]] = [
            {
                "day": datetime.fromtimestamp(day.start / 1000, UTC).date(),
                "verdicts": day.counts,
                "lag_mean_ms": day.lag.mean,
                "lag_largest_ms": day.lag.largest,
            }
            for day in (each.report.days if each.report else ())
        ]
        empty = [{"day": None, "verdicts": {}, "lag_mean_ms": None, "lag_largest_ms": None}]
        rows += [shared | day for day in days or empty]
    record_counts(job.spark, job.ledger, job.result.tables.comparisons, run, rows)


def _document(job: Job, found: Sequence[_Compared], windows: ToCompare) -> Verdicts:
    tables = job.result.tables
    is_whole = not any(each.one.chosen.is_partial for each in found) and any(each.report for each in found)
    notes = [_named(each.one.deployed, note) for each in found for note in each.one.notes]
    compared = [(each.one.deployed, each.report) for each in found if each.report is not None]
    report = of_deployments(compared, SHOWN) if compared else Verdicts()
    of_run = {
        "attempt": job.attempt,
        "whole_range": is_whole,
        "keys": list(job.spec.keys) if compared else [],
        "notes": [*notes, *report.notes],
        "tables": {"verdicts": tables.verdicts, "comparisons": tables.comparisons}
        if windows.keeps and compared
        else {},
    }
    return report.model_copy(update=of_run)


def _named(deployed: Deployed, note: str) -> str:
    return note if deployed.name is None else f"{deployed.name}: {note}"


def has_live_news(spark: SparkSession, pipeline: Pipeline, records: StructType, within: TimeRange) -> bool:
    """Whether a comparison may find something new about windows that start in `within`, though no record is new.

    A topic shows it by its end offsets, files and tables by `live.emitted_at`. Without that, windows whose rows were
    missing may have got them. `records` is the schema of the canonical records. True also where nothing was compared
    yet, and where the rows are out of reach: the comparison then says so.
    """
    tables = Tables.of(pipeline)
    for deployed in deployments_of(pipeline):
        span = deployed.clipped(within)
        if span is None:
            continue
        last = last_comparison(spark, tables.comparisons, deployed.name)
        if last is None:
            return True
        try:
            if _has_news(spark, deployed.pipeline, records, span, last, VerdictTable(spark, tables.verdicts, ())):
                return True
        except RewindowError:
            return True
    return False


def _has_news(
    spark: SparkSession,
    pipeline: Pipeline,
    records: StructType,
    within: TimeRange,
    last: LastComparison,
    verdicts: VerdictTable,
) -> bool:
    live = live_of(pipeline)
    if isinstance(live.source, TopicEmitted):
        pinned, _ = pin_rows(spark, live.source, ("live", "source"), is_upsert=live.mode == "upsert")
        seen = last.emitted_offsets or {}
        return any(chosen.end > seen.get(chosen.partition, chosen.start) for chosen in pinned.ranges)
    if live.emitted_at is not None and last.emitted_until is not None:
        rows = EmittedRows(spark, pipeline, key_types(records, tuple(pipeline.keys)))
        later = rows.changed(within, last.emitted_until + 1, None)
        return later is not None and not later.isEmpty()
    current = verdicts.current()
    return (
        current is not None and not current.where((F.col(VERDICT) == Verdict.MISSING) & starts_within(within)).isEmpty()
    )
