"""The report's part about corrections: what the readers of the live job's output get, from `corrections.json`."""

from __future__ import annotations

from spark_jobs.report.model import Corrections, NextStep
from spark_jobs.report.pages import decision_page, look_page
from spark_jobs.runs.corrected import DeliveredCorrections
from spark_jobs.runs.looks import Subject


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
    if found.problem:
        return [
            NextStep(
                text=f"Correct that, then `rewindow corrections {pipeline} deliver`: it goes on where this run ended."
            )
        ]
    if not found.is_delivered:
        return [NextStep(text=f"`rewindow corrections {pipeline} --dry-run` lists what is due now.")]
    return [NextStep(text=f"`rewindow corrections {pipeline}` lists each window with its old and its new value.")]


def _in_airflow(found: DeliveredCorrections, pipeline: str, run_id: str) -> list[NextStep]:
    if found.problem:
        return [NextStep(text="Correct that, then clear the task `correct`: it goes on where this run ended.")]
    if not found.is_delivered:
        due = look_page(pipeline, Subject.CORRECTIONS)
        return [NextStep(text="They are delivered when the run is published.", page=due, label="List what is due now")]
    listed = look_page(pipeline, Subject.CORRECTIONS, run=run_id)
    steps = [
        NextStep(
            text=f"The DAG `look__{pipeline}` lists each window with its old and its new value.",
            page=listed,
            label="List them",
        )
    ]
    if found.delivered:
        text = f"The DAG `decide__{pipeline}` repeats them where the destination has lost them, or reverts them."
        steps.append(NextStep(text=text, page=decision_page(run_id), label="Open its form"))
    return steps
