"""The publish stage, and all that it needs to be allowed: what becomes of a verified run.

To publish takes proof. What is staged must be what was verified (the same snapshots of the staging tables). A closed
gate must be overridden by a named person with a reason. An approval must be there where the policy requires one. No
other process may publish the run, and no other run may have published the range meanwhile.

Behind a publication the days that are complete now are marked: see `spark_jobs.lakehouse.complete_days`.
"""

from __future__ import annotations

import json
from dataclasses import astuple
from datetime import date
from functools import partial
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from spark_jobs.definition.output import Policy
from spark_jobs.errors import CatalogError, NotApprovedError, RunStateError
from spark_jobs.lakehouse.complete_days import Mark, mark_days
from spark_jobs.lakehouse.difference import Difference
from spark_jobs.lakehouse.ledger import LedgerRow
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import branch_of, ensure_table, guarded
from spark_jobs.runs.life.documents import Answer, Approval, Changes, Evidence, Request, StagedRange, TimelineDocument
from spark_jobs.runs.life.lifecycle import Event, event_that_drops, new_token, next_status
from spark_jobs.runs.life.permission import Action, Decision, decide
from spark_jobs.runs.life.processes import STAGES_PROCESS, this_process
from spark_jobs.runs.life.start import instant
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import STEPS
from spark_jobs.runs.night.looked_up import kept_lookup
from spark_jobs.runs.night.stored import KEY as READING
from spark_jobs.runs.work.difference import publication_of
from spark_jobs.runs.work.job import Job, end
from spark_jobs.runs.work.verification import Verified
from spark_jobs.sources import QUARANTINE_SCHEMA, clocks_of
from spark_jobs.spark.parallel import run_parallel

_QUARANTINE = StructType([StructField("run_id", StringType()), *QUARANTINE_SCHEMA])


def conclude(
    job: Job, policy: Policy, verified: Verified, *, ends_as: RunStatus | None = None, waits: bool = False
) -> Decision:
    """What becomes of a verified run: to be published next, left staged for a person, or dropped.

    It is dropped where it was only to be compared: by `ends_as` (dry_run or compared_only), or by the policy `never`.
    `waits`: another process publishes it, if that is what becomes of it.
    """
    if ends_as is not None:
        drop(job, ends_as, "nothing was to be published")
        return Decision(Action.STOP, ends_as.value)
    decision = decide(policy, job.pipeline.publish.tolerance, verified.changes, verified.gate)
    if decision.action is Action.STOP and not verified.evidence.gate_blocks:
        drop(job, RunStatus.COMPARED_ONLY, decision.why)
    elif decision.action is not Action.PUBLISH or waits:
        _wait(job, decision, verified.evidence)
    return decision


def _wait(job: Job, decision: Decision, evidence: Evidence) -> None:
    """Leave what is staged, for `publish` or `discard`; the ledger and the outcome say why."""
    event = Event.PASS if decision.action is Action.PUBLISH else Event.REQUEST_APPROVAL
    if evidence.gate_blocks:
        event = Event.CLOSE_GATE
    status = job.life.apply(event, evidence=evidence.model_dump_json(), process=STAGES_PROCESS, **_counts(job))
    run_id = job.result.run_id
    hint = f"Look with `rewindow report {run_id}`, then `rewindow publish {run_id} --reason ...` or `rewindow discard`."
    request = Request.read(job.folder)
    if request is not None and request.dag_id:
        hint = f"Read the report, then trigger the DAG `decide__{job.pipeline.name}` with the run `{run_id}`."
        if status is RunStatus.AWAITING_APPROVAL:
            hint = "Read the report, then answer the task `approve`."
    end(job, status, message=decision.why, hint=hint, decision=decision.to_dict())


def drop(job: Job, status: RunStatus, why: str) -> None:
    """Drop what is staged. `status`: dry_run, compared_only, rejected or discarded.

    Raises RunStateError where the run's state does not allow it; then nothing is dropped.
    """
    # Without an end in the ledger the next run's recovery does what a kill in between leaves undone.
    job.life.apply(event_that_drops(status), finished_at=None, **_counts(job))
    job.staging.drop()
    end(job, status, message=why)
    job.life.set(finished_at=job.now())


def publish(
    job: Job,
    staged: StagedRange,
    *,
    difference: Difference | None = None,
    evidence: Evidence | None = None,
    reason: str = "",
    person: str = "",
) -> None:
    """Publish the windows and what belongs to them in the side tables, in one commit; then drop what is staged.

    A run that is published already is left as it is. `evidence` is what this process has verified just now; None: what
    the ledger keeps counts. `reason` and `person`: why it is published all the same, and who says so; the ledger keeps
    both. Raises NotApprovedError or RunStateError where it may not be published; then all is as it was. Raises
    CatalogError where another run has published the range meanwhile.
    """
    result, tables, life = job.result, job.result.tables, job.life
    if not evidence and life.status() is RunStatus.PUBLISHED:
        result.note = "nothing was done: the run is published already"
        return
    with job.stage("publish", tables.windows):
        committed = evidence is None and _is_committed(job)
        earlier_claims: list[str | None] = []

        def guard(row: LedgerRow | None) -> None:
            earlier_claims[:] = [row["claim"]] if row is not None and row["claim"] else []
            if evidence is None and not committed:
                _check_proof(job, row, reason, person)

        known = {"evidence": evidence.model_dump_json()} if evidence else {}
        known |= {"reason": reason} if reason else {}
        known |= {"person": person} if person else {}
        life.apply(
            Event.START_PUBLISHING,
            guard,
            process=this_process(),
            claim=new_token(),
            replaces=staged.replaces,
            **known,
            **_counts(job),
        )
        for claim in earlier_claims:
            job.published_table.drop_branches(branch_of(result.run_id, claim))
        if not committed:
            run_parallel(job.spark, lambda: _prepare_side_tables(job), lambda: save_state(job))
            result.changes = job.published_table.publish(
                publication_of(job, staged), staged.base, job.now(), difference
            )
        branch = branch_of(result.run_id, life.claim)
        run_parallel(
            job.spark,
            lambda: job.published_table.follow(branch),
            lambda: _drop_older_states(job),
            job.staging.drop,
        )
    end(job, RunStatus.PUBLISHED if result.changes else RunStatus.UNCHANGED, message=reason)
    _mark(job)
    # Last of all: recovery does not look at the leftovers and the documents of a run that has ended.
    table = job.published_table
    at = table.now()
    place = {"table_id": at.table_id, "sequence": table.sequence_of(result.run_id) if result.changes else at.sequence}
    life.apply(Event.FINISH_PUBLISHING, finished_at=job.now(), process=this_process(), **place, **_counts(job))


def _mark(job: Job) -> None:
    """Say which days are complete. The windows are published whatever becomes of that."""
    try:
        mark_published(job)
    except CatalogError as problem:
        job.result.note = "; ".join(part for part in (job.result.note, f"days are not marked: {problem.what}") if part)


def _is_committed(job: Job) -> bool:
    """Whether a process before this one has published the run's windows."""
    table = job.published_table
    return table.head() is not None and job.result.run_id in table.published_runs()


def _check_proof(job: Job, row: LedgerRow | None, reason: str, person: str) -> None:
    """Raises NotApprovedError or RunStateError where a run that waits may not be published."""
    run_id = job.result.run_id
    status = None if row is None else RunStatus(row["status"])
    next_status(run_id, status, Event.START_PUBLISHING)
    if row is None or status is None:
        return
    evidence = Evidence.model_validate_json(row["evidence"]) if row["evidence"] else None
    if evidence is None or evidence.attempt != row["attempt"]:
        raise RunStateError(
            "the run has not been verified", run_id, "Repeat the stage `verify`, or start the run again."
        )
    if evidence.snapshots != job.staging.snapshots():
        raise RunStateError(
            "what is staged is not what was verified: a chunk was staged again since, or the staging is gone",
            run_id,
            "Repeat the stage `verify`, or start the run again.",
        )
    if evidence.gate_blocks and not (reason and person):
        raise NotApprovedError(
            "the gate is closed: critical expectations failed",
            run_id,
            f"To publish it all the same, {_by_hand(job)}; or discard it.",
        )
    if status is RunStatus.AWAITING_APPROVAL and not (reason and person) and not _is_approved(job, row):
        raise NotApprovedError(
            "the run waits for an approval",
            run_id,
            f"Answer the task `approve` in Airflow, or {_by_hand(job)}.",
        )


def _by_hand(job: Job) -> str:
    """How a person publishes the run with a reason: in Airflow, if it came from there."""
    run_id, request = job.result.run_id, Request.read(job.folder)
    if request is not None and request.dag_id:
        return f"trigger the DAG `decide__{job.pipeline.name}` with the run `{run_id}` and a reason"
    return f"run `rewindow publish {run_id} --reason ...`"


def _is_approved(job: Job, row: LedgerRow) -> bool:
    approval = Approval.read(job.folder)
    if approval is None or approval.decision is not Answer.APPROVED:
        return False
    return approval.attempt == row["attempt"]


def _prepare_side_tables(job: Job) -> None:
    """Every pipeline has tables of late and of quarantined records, also empty ones."""
    tables, staging = job.result.tables, job.staging
    schemas = {tables.quarantine: _QUARANTINE} if not staging.has(StagedPart.QUARANTINE) else {}
    if staging.has(StagedPart.LATE):
        schemas[tables.late] = StructType([StructField("run_id", StringType()), *staging.rows(StagedPart.LATE).schema])
    for table, schema in schemas.items():
        if not job.spark.catalog.tableExists(table):
            guarded("cannot make", table, partial(ensure_table, job.spark, table, schema))


def save_state(job: Job) -> None:
    """Keep the state that the watermark logic ended with, the timeline where it is small, and what the run has read.

    A run of complete values alone has read something, and has no timeline.
    """
    document = TimelineDocument.read(job.folder) if job.is_faithful else None
    if document is None and job.is_faithful:
        return
    plan, table = job.plan, job.result.tables.timeline_state
    state = ({} if document is None else document.state) | {
        "records": plan.history_records,
        "last_arrivals": {p.partition: p.last_arrival for p in plan.partitions if p.last_arrival is not None},
        "clocks": [astuple(bound) for bound in clocks_of(plan.pins)],
    }
    state |= {READING: plan.named_reading.to_json(), **kept_lookup(plan.lookup)}
    row = {
        "pipeline": job.pipeline.name,
        "definition_hash": plan.definition_hash,
        "run_id": job.result.run_id,
        "as_of": plan.as_of,
        "processing_time_end": instant(plan.processing_time_end),
        "watermark_below": None if document is None else document.watermark_below,
        "state": json.dumps(state),
        "steps": None if document is None else job.folder.read_bytes(STEPS),
        "saved_at": job.now(),
    }
    job.ledger.put_rows(table, job.result.run_id, [row])


def _drop_older_states(job: Job) -> None:
    """Once a run is published, its state stands for those of earlier runs of its table at the same end offsets.

    A run of a part of the range stands for no whole one: the next reconciliation goes on from that.
    """
    plan, table = job.plan, job.result.tables.timeline_state
    same = (
        job.spark.table(table)
        .where((F.col("pipeline") == job.pipeline.name) & (F.col("definition_hash") == plan.definition_hash))
        .where(F.col("processing_time_end") == F.lit(instant(plan.processing_time_end)))
    )
    if not job.is_faithful:
        same = same.where(F.col("watermark_below").isNull())
    runs = {row["run_id"] for row in same.select("run_id", "as_of").collect() if row["as_of"] == plan.as_of}
    if job.result.run_id not in runs or len(runs) == 1:
        return
    earlier = job.ledger.runs().where(F.col("run_id").isin(sorted(runs - {job.result.run_id})))
    if not plan.is_whole:
        earlier = earlier.where(~F.coalesce("whole", F.lit(False)))
    for row in earlier.select("run_id").orderBy("run_id").collect():
        job.ledger.delete_rows(table, row["run_id"])


def _counts(job: Job) -> dict[str, Any]:
    """The columns of the ledger that say what a run counted."""
    result = job.result
    return {**result.counts.counted(), "changes": result.changes, "timings": result.timings}


def mark_published(job: Job) -> None:
    """Mark the days of a published run. Can be repeated: a run that has marked its days changes nothing more."""
    changes = Changes.read(job.folder)
    changed = frozenset(date.fromisoformat(period[:10]) for period in (changes.changed_periods if changes else ()))
    spec = job.spec
    reach = 0 if spec.has_sessions else max(0, spec.aligned_windows.longest - spec.windows.usual_step)
    mark = Mark(job.result.run_id, job.plan.as_of, job.now(), changed, closed_to(job), reach)
    with job.progress.stage("mark", job.result.tables.windows):
        mark_days(job.spark, job.result.tables, mark)


def closed_to(job: Job) -> int | None:
    """The watermark has passed every window's last millisecond up to this, as windows count; None: it has none.

    Where each partition has its own, the least counts.
    """
    document = TimelineDocument.read(job.folder) if job.is_faithful else None
    if document is None:
        return None
    if document.state.get("kind") == "stream_time":
        return min((values["reached"] for values in document.state["partitions"].values()), default=None)
    return job.spec.windows.closed_until(document.watermark_below + 1) - 1
