"""The verify stage: is all staged, what would publishing change, and what do the expectations say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.errors import RunStateError
from spark_jobs.lakehouse.difference import Difference
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.replay.columns import DROPPED, HISTORY_GONE, LATE, ON_TIME, PANE, STATE
from spark_jobs.replay.spec import Panes, ReplaySpec
from spark_jobs.replay.timeline import Timeline
from spark_jobs.runs.comparing import verdicts_of
from spark_jobs.runs.difference import publication_of, staged_windows
from spark_jobs.runs.documents import Changes, Duplicates, Evidence, Facts, Gate, StagedRange
from spark_jobs.runs.earlier import earlier_runs
from spark_jobs.runs.figures import recomputed_windows
from spark_jobs.runs.job import Job
from spark_jobs.runs.not_staged import not_staged
from spark_jobs.runs.staged_run import StagedRun
from spark_jobs.spark.parallel import run_parallel

GateCheck = Callable[[StagedRun], Mapping[str, Any]]
"""The gate: takes the evidence, returns the fields of `gate.json`."""
ReportCollector = Callable[[StagedRun], Mapping[str, Any]]
"""Gathers the report's facts: takes the evidence, returns the fields of `facts.json`."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A verified run: the difference to what is published, the documents that say so, and the evidence."""

    difference: Difference
    changes: Changes
    gate: Gate | None
    evidence: Evidence


def check_staged(job: Job, staged: StagedRange) -> None:
    """Raises RunStateError where a chunk of the plan is not staged by this attempt."""
    if staged.expected is None:  # staged by a version that counted no chunks
        expected = {StagedPart.WINDOWS.value: tuple(range(1, len(job.plan.chunks) + 1))}
        found = {StagedPart.WINDOWS.value: {c for c in expected[StagedPart.WINDOWS.value] if _has_document(job, c)}}
        if not any(found.values()):
            return
    else:
        expected = staged.expected
        found = {part: job.staging.chunks(StagedPart(part)) for part in expected}
    for part, numbers in expected.items():
        missing = sorted(set(numbers) - found[part])
        if missing:
            what = {StagedPart.LATE.value: "late records of chunk", StagedPart.QUARANTINE.value: "quarantine of chunk"}
            shown = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
            raise RunStateError(
                f"not everything is staged: {what.get(part, 'chunk')} {shown} of {len(numbers)} is missing",
                job.result.run_id,
                "Repeat the stage `replay` of it (in Airflow: clear the task), or start the run again.",
            )


def _has_document(job: Job, number: int) -> bool:
    return job.folder.read_bytes(f"chunk-{number:04}.json") is not None


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
) -> Iterator[Verified]:
    """Count what is staged, compare it with what is published, and call the gate; the documents record the results.

    `records` are the good ones up to the end offsets; `deduplicated` those without duplicates, where the live job drops
    some. `unchecked`: why there are no `checks`. Raises RunStateError
    where a chunk is missing.
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
        evidence = StagedRun(
            job.spark,
            job.pipeline,
            job.plan,
            job.spec,
            job.kind,
            job.result.run_id,
            publication.identity,
            publication.staged,
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
        )
        run_before = job.published.latest
        changes = Changes(
            counts=counts,
            causes=difference.causes,
            causes_by_change=difference.causes_by_change,
            windows_recomputed=job.result.windows_recomputed,
            changed_span=difference.span,
            run_before=run_before,
            earlier=earlier_runs(job.folder, run_before),
            unchecked=unchecked,
            not_staged=beside,
            history_gone=kept or 0,
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
            Facts.model_validate(collector(evidence)).write(job.folder)

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
        last = written.where(_is_last_pane(job.spec))
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
    kept = job.staging.rows(StagedPart.KEPT).count()
    if kept:
        windows = "1 window keeps its value" if kept == 1 else f"{kept:,} windows keep their values"
        said = f"{windows} (state `{HISTORY_GONE}`): records that they were made of are not in the history any more"
        job.result.note = "; ".join(part for part in (job.result.note, said) if part)
    return kept


def _is_last_pane(spec: ReplaySpec) -> str:
    if spec.panes is Panes.LAST:
        return "TRUE"
    if spec.has_sessions:
        return f"{PANE} IS NULL OR {PANE} = 0"
    return f"{PANE} IS NULL OR {PANE} = {LATE} - IF({ON_TIME} > 0, 0, 1)"
