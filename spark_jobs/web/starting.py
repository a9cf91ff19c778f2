"""Forms that start a run of a DAG, as Airflow's own form does: who may start it, by which page, with which fields.

Airflow's form cannot be opened with its fields filled, so a report's links lead to forms here. Who may start the DAG
decides who sees the form, and the DAG's own task checks the fields again.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

from airflow.api.common.trigger_dag import trigger_dag
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.serialized_dag import SerializedDagModel
from airflow.utils.types import DagRunTriggeredByType

from spark_jobs.orchestration.form import DISCARD, MAX_REASON, PUBLISH, REPEAT, REVERT
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunFolder
from spark_jobs.runs.work.corrected import DeliveredCorrections


def form_token(user: str, form: str, day: date | None = None) -> str:
    """A text that only this server can make, for one user, form and day: another site cannot send the form."""
    key = (conf.get("api", "secret_key", fallback="") or conf.get("api_auth", "jwt_secret", fallback="")).encode()
    if not key:
        raise OSError("Airflow has no [api] secret_key")
    text = f"rewindow {user} {form} {(day or _today()).isoformat()}".encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest()


def is_own_form(token: str, user: str, form: str) -> bool:
    """Whether the token is of today or of yesterday."""
    days = (_today(), _today() - timedelta(days=1))
    return any(hmac.compare_digest(token, form_token(user, form, day)) for day in days)


def started(dag_id: str, fields: Mapping[str, Any], user: str) -> str:
    """Start the DAG with the fields of its form; the id of its DAG run."""
    begun = trigger_dag(
        dag_id,
        triggered_by=DagRunTriggeredByType.UI,
        triggering_user_name=user,
        conf=dict(fields),
        replace_microseconds=False,
    )
    if begun is None:
        raise OSError(f"Airflow has not started {dag_id}")
    return begun.run_id


def is_paused(dag_id: str) -> bool:
    """Whether the DAG's runs wait until somebody unpauses it."""
    found = DagModel.get_current(dag_id)
    return found is not None and bool(found.is_paused)


def dag_run(dag_id: str, dag_run_id: str) -> DagRun | None:
    """A run of a DAG; None where Airflow knows none."""
    return next(iter(DagRun.find(dag_id=dag_id, run_id=[dag_run_id])), None)


def choices(dag_id: str, field: str) -> list[str] | None:
    """The values that a field of the DAG's form can have; None where Airflow does not know them."""
    found = SerializedDagModel.get_dag(dag_id)
    param = found.params.get_param(field) if found is not None and field in found.params else None
    values = None if param is None else param.schema.get("enum")
    return None if values is None else [str(value) for value in values]


def _today() -> date:
    return datetime.now(UTC).date()


_OF_WAITING = {
    PUBLISH: "Publish what the run has staged, even if its gate is closed",
    DISCARD: "Discard it: the published windows stay as they are",
}
_OF_CORRECTED = {
    REPEAT: "Repeat its corrections: deliver them once more, to a destination that has lost them",
    REVERT: "Revert its corrections: bring back what readers of the live job's output had before them",
}


def actions_of(folder: RunFolder, status: RunStatus | None) -> dict[str, str]:
    """The actions that a run can have, with their meanings: none is chosen at first. Empty: nothing can be decided."""
    if status is not None and status.waits:
        return _OF_WAITING
    corrections = DeliveredCorrections.read(folder) if status is not None and status.is_published else None
    return _OF_CORRECTED if corrections is not None and corrections.delivered else {}


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has chosen."""

    action: str
    reason: str

    def problem(self, actions: dict[str, str]) -> str:
        """Which field is wrong; empty: none."""
        if self.action not in actions:
            return "Choose what is to be done."
        if not self.reason:
            return "Write why: it is kept with the run, together with your name."
        if len(self.reason) > MAX_REASON:
            return f"The reason has {len(self.reason):,} characters: {MAX_REASON:,} are the most."
        return ""
