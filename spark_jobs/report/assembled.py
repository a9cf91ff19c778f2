"""The report of a run from its documents, with its parts about corrections and the advisor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spark_jobs.definition.union import BLOCK, names_of_inputs
from spark_jobs.formatting import written_time
from spark_jobs.quality.suites import Severity
from spark_jobs.report.counted import COUNTS, Advisor, Changes, Facts, Recommended, Setting
from spark_jobs.report.documents import Documents
from spark_jobs.report.live_job import live_job
from spark_jobs.report.model import (
    Account,
    Corrections,
    Expectation,
    Expectations,
    Links,
    NextStep,
    Plan,
    Report,
    RunPart,
)
from spark_jobs.report.normal import normal_of
from spark_jobs.report.pages import decision_page, look_page
from spark_jobs.report.verdict import Origin, verdict_of
from spark_jobs.runs.life import documents as written
from spark_jobs.runs.life.documents import AnyOutcome, Checked, Gate
from spark_jobs.runs.life.status import RunStatus, Stage
from spark_jobs.runs.life.unfinished import stage_at_work
from spark_jobs.runs.planning.looks import Subject
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.runs.work.figures import RunFigures
from spark_jobs.runs.work.unmet import is_counted

_SEVERITIES = tuple(Severity)
"""The worst first."""
_FIGURES = ("changed", "windows_recomputed", "unchanged", "match_share", "late_share", "dropped_share")
_STAGES = tuple(Stage)


def report_of(documents: Documents) -> Report:
    """The report; a part is None where the run did not get that far."""
    outcome = documents.outcome or AnyOutcome(status=RunStatus.RUNNING)
    facts = documents.facts or Facts()
    run = _run(documents, outcome)
    changes, expectations = _changes(documents, facts), _expectations(documents.gate)
    plan = _plan(documents, outcome)
    said = documents.changes or written.Changes()
    return Report(
        damaged=documents.damaged,
        run=run,
        verdict=verdict_of(
            documents.outcome,
            said.counts or outcome.changes,
            [result for result in expectations.results if not result.success] if expectations else (),
            documents.approval,
            run.output_table,
            run.pipeline,
            changes.top if changes else (),
            reader=Origin(documents.run_id, run.dag_id),
            at_work=_work_of(documents, run),
            said=documents.changes,
            live=documents.verdicts,
        ),
        approval=documents.approval,
        changes=changes,
        watermark=facts.watermark and facts.watermark.without_points(),
        late=facts.late,
        account=None if documents.account is None else Account.model_validate(documents.account.to_dict()),
        quarantine=documents.quarantine.reasons if documents.quarantine else (),
        live=live_job(documents.verdicts),
        corrections=corrections_of(
            documents.corrections, run.pipeline, documents.run_id, in_airflow=run.dag_id is not None
        ),
        expectations=expectations,
        advisor=advise(facts.advisor),
        plan=plan,
        normal=normal_of(documents.changes, run.kind, documents.plan.span if documents.plan else None),
        unchecked=said.unchecked or None,
        decision=(outcome.decision or {}).get("why"),
        links=Links(
            run_before=said.run_before,
            definition=documents.request.definition_version if documents.request else None,
            late_rows=_late_rows(run, outcome, plan.inputs if plan else ()),
        ),
    )


def _run(documents: Documents, outcome: AnyOutcome) -> RunPart:
    request: dict[str, Any] = documents.request.to_dict() if documents.request else {}
    ended = {
        "run_id": documents.run_id,
        "started_at": outcome.started_at,
        "finished_at": outcome.finished_at,
        "at_work": documents.outcome is None,
        "output_table": request.get("output_table") or outcome.tables.get("windows"),
    }
    return RunPart.model_validate(request | ended)


def _work_of(documents: Documents, run: RunPart) -> str:
    """Where a run without an outcome is, in words: since when, and in which stage."""
    stage = stage_at_work(documents.applications)
    since = f" since {written_time(run.requested_at)} UTC" if run.requested_at else ""
    done, planned = len(documents.chunks), len(documents.plan.chunks) if documents.plan else 0
    chunks = f" ({done} of {planned} chunks are done)" if stage is Stage.REPLAY and planned > 1 else ""
    return f"{since}, in the stage {stage}{chunks}" if stage else f"{since}, between two stages" if since else ""


def _late_rows(run: RunPart, outcome: AnyOutcome, inputs: Sequence[str]) -> str | None:
    """The command that lists the run's late records; None where the run has published none.

    `inputs`: the names of a union's inputs, which become columns. In Airflow nobody has a command line: the page shows
    some of them, and leads to the others.
    """
    late, status = outcome.tables.get("late"), outcome.known_status
    if run.dag_id or not late or status is None or not status.is_published:
        return None
    names = ", ".join(f"'{name}'" for name in inputs)
    own = f"elt(partition div {BLOCK} + 1, {names}) AS input, partition % {BLOCK} AS input_partition, "
    query = f"SELECT {own if inputs else ''}* FROM {late} WHERE run_id = '{run.run_id}' ORDER BY missed_by DESC"
    return f'rewindow sql "{query}"'


def _changes(documents: Documents, facts: Facts) -> Changes | None:
    gathered, changes, outcome = facts.changes, documents.changes, documents.outcome
    if changes is None:
        if gathered is None:
            return None
        changes = written.Changes(counts=gathered.counts, causes=gathered.causes)
    figures = RunFigures.of(changes, outcome)
    status = outcome.known_status if outcome else None
    return Changes.model_validate(
        {
            **(gathered.model_dump() if gathered else {}),
            "counts": figures.by_change,
            "causes": changes.causes or (gathered.causes if gathered else {}),
            "causes_by_change": changes.causes_by_change,
            "restated": changes.restated,
            "published": status is not None and status.is_published,
            **{name: getattr(figures, name) for name in _FIGURES},
            **{name: figures.counts[name] for name in COUNTS},
            "in_words": figures.in_words(),
        }
    )


def _expectations(gate: Gate | None) -> Expectations | None:
    """The results of the gate, the worst first: failed before met, then critical, warning, info."""
    if gate is None:
        return None

    def rank(result: Expectation) -> tuple[bool, int]:
        known = result.severity in _SEVERITIES
        return result.success, _SEVERITIES.index(Severity(result.severity)) if known else len(_SEVERITIES)

    results = [Expectation(**result.to_dict(), counted=is_counted(result)) for result in gate.results]
    not_counted = sum(1 for r in results if r.success and not r.counted)
    return Expectations(
        **{name: getattr(gate, name) for name in Checked.model_fields},
        met=len(results) - len(gate.failures) - not_counted,
        not_counted=not_counted,
        failed=dict.fromkeys(_SEVERITIES, 0) | gate.failed,
        results=tuple(sorted(results, key=rank)),
    )


def _plan(documents: Documents, outcome: AnyOutcome) -> Plan | None:
    plan, request = documents.plan, documents.request
    if plan is None and request is None and documents.outcome is None:
        return None
    given = plan.to_dict() if plan else {}
    of_run = {name: given.get(name) for name in ("fidelity", "fidelity_reasons", "version")}
    applications = documents.applications or outcome.applications
    return Plan.model_validate(
        {
            **given,
            **{name: getattr(outcome, name) or value for name, value in of_run.items()},
            "planned_chunks": len(plan.chunks) if plan else 0,
            "reading": plan.reading.in_words() if plan else None,
            "chunks": documents.chunks,
            "timings": outcome.timings,
            "applications": sorted(applications, key=lambda a: (_STAGES.index(a.stage), a.chunk or 0)),
            "tables": outcome.tables,
            "definition": request.definition if request else None,
            "inputs": names_of_inputs(request.definition if request else None),
        }
    )


def corrections_of(
    found: DeliveredCorrections | None, pipeline: str, run_id: str = "", *, in_airflow: bool = False
) -> Corrections | None:
    """The part `corrections` of the report; None where the run delivers nothing.

    `rows`: delivered or, before the run is published, planned. `in_airflow`: without command lines.
    """
    if found is None:
        return None
    steps = tuple((_in_airflow if in_airflow else _in_terminal)(found, pipeline, run_id))
    return Corrections(
        destination=found.destination,
        value=found.value,
        is_delivered=found.is_delivered,
        rows=found.delivered if found.is_delivered else found.planned,
        sentence=found.sentence(),
        problem=found.problem or None,
        notes=found.notes,
        next=tuple(step.text for step in steps),
        steps=steps,
    )


def _in_terminal(found: DeliveredCorrections, pipeline: str, _run_id: str) -> list[NextStep]:
    text = f"`rewindow corrections {pipeline}` lists each window with its old and its new value."
    if found.problem:
        text = f"Correct that, then `rewindow corrections {pipeline} deliver`: it goes on where this run ended."
    elif not found.is_delivered:
        text = f"`rewindow corrections {pipeline} --dry-run` lists what is due now."
    return [NextStep(text=text)]


def _in_airflow(found: DeliveredCorrections, pipeline: str, run_id: str) -> list[NextStep]:
    if found.problem:
        return [NextStep(text="Correct that, then clear the task `correct`: it goes on where this run ended.")]
    if not found.is_delivered:
        due = look_page(pipeline, Subject.CORRECTIONS)
        return [NextStep(text="They are delivered when the run is published.", page=due, label="List what is due now")]
    listed = look_page(pipeline, Subject.CORRECTIONS, run=run_id)
    text = f"The DAG `look__{pipeline}` lists each window with its old and its new value."
    steps = [NextStep(text=text, page=listed, label="List them")]
    if found.delivered:
        text = f"The DAG `decide__{pipeline}` repeats them where the destination has lost them, or reverts them."
        steps.append(NextStep(text=text, page=decision_page(run_id), label="Open its form"))
    return steps


LEVELS = (0.99, 0.999, 0.9999)


def advise(facts: Advisor | None) -> Advisor | None:
    """The advisor of the report from its facts; None where there are no facts.

    A tolerance is the sum of bound and allowed lateness (ms). Adds `now` (the definition's own setting; None: unlimited
    lateness) and `recommended`: for each level in `LEVELS` the smallest tolerance with at least that share of the
    records on time (None: no tolerance that was tried). `refires` is the number of records that would make their window
    fire again if the bound stayed and the rest were allowed lateness; None where the tolerance is below the bound.
    """
    if facts is None or not facts.records:
        return None
    total, configured = facts.records, facts.configured
    own = next(row for row in facts.tolerances if row.tolerance == configured)

    def with_costs(row: Setting) -> Setting:
        above = row.tolerance - configured
        costs = {"allowed_lateness": above, "refires": own.closed - row.closed} if above >= 0 else {}
        return row.model_copy(update={"on_time_share": 1 - row.closed / total, **costs})

    rows = tuple(map(with_costs, facts.tolerances))
    now = None if facts.lateness is None else configured + facts.lateness

    def smallest(level: float) -> Recommended:
        enough = (row for row in rows if row.closed <= (1 - level) * total + 1e-9)
        return Recommended(on_time=level, setting=next(enough, None))

    added = {
        "tolerances": rows,
        "bound_only": with_costs(own),
        "now": None if now is None else next(row for row in rows if row.tolerance == now),
        "recommended": tuple(map(smallest, LEVELS)),
    }
    return facts.model_copy(update=added)
