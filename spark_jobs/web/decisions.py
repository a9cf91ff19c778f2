"""The form of a decision: it starts a run of the DAG `decide__<pipeline>`, as Airflow's own form does.

Airflow's form cannot be opened with its fields filled, so the report's link leads here. Who may start the DAG decides
who sees the form, and the DAG's own task checks the fields again.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from airflow.api.common.trigger_dag import trigger_dag
from airflow.configuration import conf
from airflow.models.dag import DagModel
from airflow.utils.types import DagRunTriggeredByType

from spark_jobs.orchestration.form import DISCARD, MAX_REASON, PUBLISH

ACTIONS = {
    PUBLISH: "Publish what the run has staged, in spite of a closed gate too",
    DISCARD: "Discard it: the published windows stay as they are",
}
"""The actions with their meanings. None is chosen at first."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person has chosen; `problem` says which field is wrong, empty: none."""

    action: str
    reason: str

    @property
    def problem(self) -> str:
        if self.action not in ACTIONS:
            return "Choose what becomes of the run."
        if not self.reason:
            return "Write why: it is kept with the run, together with your name."
        if len(self.reason) > MAX_REASON:
            return f"The reason has {len(self.reason):,} characters: {MAX_REASON:,} are the most."
        return ""


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


def start_decision(dag_id: str, run_id: str, decision: Decision, user: str) -> str:
    """Start the DAG with the decision; the id of its DAG run."""
    fields = {"run": run_id, "action": decision.action, "reason": decision.reason}
    begun = trigger_dag(
        dag_id,
        triggered_by=DagRunTriggeredByType.UI,
        triggering_user_name=user,
        conf=fields,
        replace_microseconds=False,
    )
    if begun is None:
        raise OSError(f"Airflow has not started {dag_id}")
    return begun.run_id


def is_paused(dag_id: str) -> bool:
    """Whether the DAG's runs wait until somebody unpauses it."""
    found = DagModel.get_current(dag_id)
    return found is not None and bool(found.is_paused)


def _today() -> date:
    return datetime.now(UTC).date()
