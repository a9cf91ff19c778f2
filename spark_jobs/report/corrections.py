"""The report's part about corrections: what the readers of the live job's output get, from `corrections.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_jobs.runs.corrected import DeliveredCorrections


def corrections_of(
    corrections: Mapping[str, Any] | None, pipeline: str, in_airflow: bool = False, table: str | None = None
) -> dict[str, Any] | None:
    """The part `corrections` of `report.json`; None where the run delivers nothing.

    `rows`: by action (`upsert`, `delete`), delivered or, before the run is published, planned. `sentence`, `next`: for
    people: of a run of Airflow (`in_airflow`) without command lines. `table`: that of the windows.
    """
    if corrections is None:
        return None
    found = DeliveredCorrections.model_validate(dict(corrections))
    following = [f"`rewindow corrections {pipeline}` lists each window with its old and its new value."]
    if found.problem:
        following = [f"Correct that, then `rewindow corrections {pipeline} deliver`: it goes on where this run ended."]
    elif not found.is_delivered:
        following = [f"`rewindow corrections {pipeline} --dry-run` lists what is due now."]
    if in_airflow:
        following = [f"The table `{table}__corrections` lists each window with its old and its new value."]
        if found.problem:
            following = ["Correct that, then clear the task `correct`: it goes on where this run ended."]
        elif not found.is_delivered:
            following = ["They are delivered when the run is published."]
    return {
        "destination": found.destination,
        "value": found.value,
        "is_delivered": found.is_delivered,
        "rows": dict(found.delivered if found.is_delivered else found.planned),
        "sentence": found.sentence(),
        "problem": found.problem or None,
        "notes": list(found.notes),
        "next": following,
    }
