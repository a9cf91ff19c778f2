"""The verify stage: is all staged, what would publishing change, and what do the expectations say of it.

What is staged can be right in itself and wrong beside what is published. So the gate also gets facts about what the
run did not look at (`not_staged`). They do not come from the code that decides what a run recomputes: they are counted
from the table, the history and the run before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.errors import RewindowError, RunStateError
from spark_jobs.eventtime.durations import HOUR
from spark_jobs.lakehouse.change import RESTATED
from spark_jobs.lakehouse.difference import Difference
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.replay.columns import DROPPED, HISTORY_GONE, LATE, ON_TIME, PANE, STATE
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Timeline
from spark_jobs.runs.life.documents import (
    Changes,
    Document,
    Duplicates,
    EarlierRun,
    Evidence,
    Gate,
    NotStaged,
    Request,
    StagedRange,
)
from spark_jobs.runs.life.restated import Restated
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.comparing import verdicts_of
from spark_jobs.runs.work.difference import GIVES_WAY, is_last_pane, publication_of, staged_windows
from spark_jobs.runs.work.figures import recomputed_windows
from spark_jobs.runs.work.job import Job
from spark_jobs.runs.work.restating import restated_by
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.sources import changed_files, files_there
from spark_jobs.spark.parallel import run_parallel

GateCheck = Callable[[StagedRun], Gate]
"""The gate, asked about the evidence: `gate.json`."""
AccountOf = Callable[[DataFrame], Account]
"""Counts the account of a run, given the published windows that it stands for: `account.json`."""
ReportCollector = Callable[[StagedRun], Document]
"""Gathers the report's facts from the evidence: `facts.json`."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A verified run: the difference to what is published, the documents that say so, and the evidence."""

    difference: Difference
    changes: Changes
    gate: Gate | None
    evidence: Evidence


def check_staged(job: Job, staged: StagedRange) -> None:
    """Raises RunStateError where a chunk of the plan is not staged by this attempt."""
    for part, numbers in staged.expected.items():
        missing = sorted(set(numbers) - job.staging.chunks(StagedPart(part)))
        if missing:
            what = {StagedPart.LATE.value: "late records of chunk", StagedPart.QUARANTINE.value: "quarantine of chunk"}
            shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            raise RunStateError(
                f"not everything is staged: {what.get(part, 'chunk')} {shown} of {len(numbers)} is missing",
                job.result.run_id,
                "Repeat the stage `replay` of it (in Airflow: clear the task), or start the run again.",
            )


@contextmanager
def verified(
    job: Job,
    staged: StagedRange,
    records: DataFrame,
    timeline: Timeline | None,
    checks: GateCheck | None = None,
    collector: ReportCollector | None = None,
    unchecked: str = "",
    deduplicated: DataFrame | None = None,
    account: AccountOf | None = None,
) -> Iterator[Verified]:
    """Count what is staged, compare it with what is published, and call the gate; the documents record the results.

    `records` are the good ones up to the end offsets; `deduplicated` those without duplicates, where the live job drops
    some. `unchecked`: why there are no `checks`. `account` counts the run's account, given the published windows that
    it stands for. Raises RunStateError where a chunk is missing.
    """
    check_staged(job, staged)
    snapshots = job.staging.snapshots()
    table = job.published_table
    table.prepare(staged_windows(job).schema)
    publication = publication_of(job, staged)
    before = publication.in_scope(table.current())
    made: list[Difference] = []

    def compared() -> dict[str, int]:
        made.append(table.difference(publication, job.now()))
        return made[0].counts

    try:
        with job.stage("diff", job.result.tables.windows):
            counts, _, computed, kept = run_parallel(
                job.spark, compared, lambda: count_staged(job), publication.staged.count, lambda: count_kept(job)
            )
        difference, job.result.changes = made[0], counts
        job.result.windows_recomputed = recomputed_windows(computed - (kept or 0), counts)
        beside = not_staged(job, staged, kept)
        if account is not None:
            found = account(before)
            found.write(job.folder)
            beside = beside.model_copy(
                update={
                    "unaccounted_records": found.unaccounted_records,
                    "unaccounted_pairs": found.unaccounted_pairs,
                }
            )
        evidence = StagedRun(
            job.spark,
            job.pipeline,
            job.plan,
            job.spec,
            job.kind,
            job.result.run_id,
            publication.identity,
            staged_windows(job),
            difference.changes,
            before,
            job.staging.rows(StagedPart.LATE) if job.is_faithful else None,
            job.spec.rules.placed(records),
            timeline,
            verdicts_of(job),
            is_distinct=checks is not None and job.staging.is_distinct_by(publication.identity),
            former=tuple(c for c in publication.row_identity if c not in publication.identity),
            may_repeat=publication.may_repeat,
            not_staged=beside,
            deduplicated=deduplicated,
            since=staged.since,
        )
        run_before = job.published.latest
        restates = any(counts.get(change) for change in RESTATED)
        changes = Changes(
            counts=counts,
            causes=difference.causes,
            causes_by_change=difference.causes_by_change,
            windows_recomputed=job.result.windows_recomputed,
            changed_span=difference.span,
            changed_periods=periods_of(difference.hours, job.spec),
            run_before=run_before,
            earlier=earlier_runs(job.folder, run_before),
            unchecked=unchecked,
            not_staged=beside,
            history_gone=kept or 0,
            restated=restated_by(evidence, table.current()) if restates else Restated(),
            **job.result.counts.counted(),
        )
        changes.write(job.folder)
        gate = _gate_and_facts(job, evidence, checks, collector)
        proof = Evidence(
            attempt=job.attempt,
            snapshots=snapshots,
            gate=gate and gate.verdict,
            gate_blocks=gate is not None and gate.blocks,
        )
        yield Verified(difference, changes, gate, proof)
    finally:
        for difference in made:
            difference.release()


_MOST_HOURS = 1000


def periods_of(hours: Sequence[datetime], spec: ReplaySpec) -> tuple[str, ...]:
    """The hours of windows of at most an hour, else the days; days, too, where so many hours are too many partitions.

    As Airflow's mappers of partition keys read them.
    """
    is_short = not spec.has_sessions and spec.aligned_windows.longest <= HOUR and len(hours) <= _MOST_HOURS
    starts = hours if is_short else [hour.replace(hour=0) for hour in hours]
    return tuple(dict.fromkeys(f"{start:%Y-%m-%dT%H:%M:%S}" for start in starts))


def _gate_and_facts(
    job: Job, evidence: StagedRun, checks: GateCheck | None, collector: ReportCollector | None
) -> Gate | None:
    """Call the gate, and gather the report's facts beside it; the documents record both."""
    gates: list[Gate] = []

    def call_gate(checks: GateCheck) -> None:
        with job.result.timed("gate", job.clock):
            gates.append(Gate.model_validate(checks(evidence)))
            gates[0].write(job.folder)

    def gather_facts(collector: ReportCollector) -> None:
        with job.result.timed("facts", job.clock):
            collector(evidence).write(job.folder)

    steps: dict[str, Callable[[], None]] = {}
    if checks is not None:
        steps["expectations"] = partial(call_gate, checks)
    if collector is not None:
        steps["facts for the report"] = partial(gather_facts, collector)
    if steps:
        job.life.ensure()
        with job.progress.stage("gate" if checks is not None else "facts", ", ".join(steps)):
            run_parallel(job.spark, *steps.values())
    return gates[0] if gates else None


def count_staged(job: Job) -> None:
    """Count the staged windows and late records into the result."""
    written = staged_windows(job)
    if PANE in written.columns and STATE in written.columns:
        last = written.where(is_last_pane(job.spec))
        counted = {
            "windows": F.expr("count(*)"),
            "windows_open": F.count_if(F.col(STATE) == "open"),
            "windows_all_late": F.count_if(F.col(STATE) == "all_late"),
            "pairs_on_time": F.sum(ON_TIME),
            "pairs_late": F.sum(LATE),
            "pairs_dropped": F.sum(DROPPED),
        }
        row = last.agg(*(column.alias(name) for name, column in counted.items())).collect()[0]
        found = {name: int(row[name] or 0) for name in counted}
        found["records_late"] = job.staging.rows(StagedPart.LATE).count()
    else:
        found = {"windows": written.count()}
    if (duplicates := Duplicates.read(job.folder)) is not None:
        found["records_duplicate"] = duplicates.records
    job.result.counts = job.result.counts.model_copy(update=found)


def count_kept(job: Job) -> int | None:
    """How many windows keep their values, because records that they were made of are gone; the run's note says so.

    None: the run has not looked for such windows.
    """
    if not job.staging.has(StagedPart.KEPT):
        return None
    rows = job.staging.rows(StagedPart.KEPT).where(~F.col(GIVES_WAY))
    kept = (rows.where(F.col(STATE) == HISTORY_GONE) if STATE in rows.columns else rows).count()
    if kept:
        windows = "1 window keeps its value" if kept == 1 else f"{kept:,} windows keep their values"
        said = f"{windows} (state `{HISTORY_GONE}`): records that they were made of are not in the history any more"
        job.result.note = "; ".join(part for part in (job.result.note, said) if part)
    return kept


MAX_EARLIER = 60
"""Runs of both kinds; the report shows the last thirty of the run's own kind."""


def earlier_runs(folder: RunFolder, run_before: str | None) -> tuple[EarlierRun, ...]:
    """The runs before that of `folder`, the oldest first; none where the run before has left no documents.

    Each run copies the list of the run before it and adds that run. So one document has to be read, however many runs
    there are, and the list stays when old runs are deleted.
    """
    with suppress(RewindowError):
        before = folder.of_run(run_before) if run_before else None
        changes = before and Changes.read(before)
        request = before and Request.read(before)
        plan = before and Plan.read(before)
        if before and changes and request:
            last = EarlierRun(
                run_id=before.run_id,
                kind=request.kind,
                requested_at=request.requested_at,
                counts=changes.counts,
                windows_recomputed=changes.windows_recomputed,
                restated=changes.restated,
                span=plan.span if plan else None,
                **changes.counted(),
            )
            return (*changes.earlier, last)[-MAX_EARLIER:]
    return ()


def not_staged(job: Job, staged: StagedRange, kept: int | None) -> NotStaged:
    """The facts about a run whose windows are staged and compared with the published ones.

    `kept`: the windows that keep their values, because records that they were made of are gone; None: the run has not
    looked for such windows. No Spark job, unless another program has written delete files to the table.
    """
    before, below = _records(job) if kept is None else (None, None)
    return NotStaged(
        records_before=before,
        records_below=below,
        windows_left=_windows_left(job, staged, kept or 0),
        foreign_commits=_foreign_commits(job, staged),
        goes_on=staged.since is not None,
        files_changed=_files_changed(job),
    )


def _files_changed(job: Job) -> int | None:
    """The files of the plan that are gone or were written again since; None where nobody knows its files."""
    files = job.plan.files
    return None if files is None else len(list(changed_files(files, files_there(job.spark, files))))


def _records(job: Job) -> tuple[int | None, int | None]:
    """The records that the run before had read below this run's end offsets, and how many of them are there now.

    None where that run is not known, was of another definition, or had read further.
    """
    plan, latest = job.plan, job.published.latest
    if latest is None:
        return None, None
    try:
        before = Plan.read(job.folder.of_run(latest))
    except RewindowError:  # damaged: it says nothing
        return None, None
    if before is None or before.definition_hash != plan.definition_hash or plan.another_log:
        return None, None
    if any(plan.as_of.get(partition, -1) < end for partition, end in before.as_of.items()):
        return None, None
    read, gone = before.reading, plan.reading.gone - before.reading.gone
    return sum(read.counts.values()), sum(read.counts.values()) - max(0, gone)


def _windows_left(job: Job, staged: StagedRange, kept: int) -> int | None:
    """How many published rows a run over the whole history neither computes again nor retracts nor keeps on purpose.

    Below 0: readers see fewer windows than the table's revisions say. None: the run is over a part of the history.
    """
    if not job.plan.is_whole or staged.since is not None or job.result.windows_recomputed is None:
        return None
    if staged.repairs:  # compared row by row with what readers see
        return None
    rows = 0 if staged.base is None else job.published_table.rows_at(staged.base)
    return rows - job.result.windows_recomputed - kept


def _foreign_commits(job: Job, staged: StagedRange) -> int | None:
    """The commits of others since the last run that was published, of those that change rows; None: no table then.

    A run that has found them, and is compared with what readers see, has looked at them.
    """
    if staged.base is None:
        return None
    return 0 if staged.repairs else job.published_table.foreign_commits_before(staged.base)
