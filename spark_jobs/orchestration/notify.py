"""Notifications of a failed gate, a refused input and a pending approval: Airflow notifiers, by configuration.

`REWINDOW_NOTIFIERS` is a JSON list, each item a notifier's class, its arguments and its events:

    [{"class": "airflow.providers.slack.notifications.slack.SlackNotifier",
      "arguments": {"slack_conn_id": "slack", "text": "{{ rewindow.message }}"}, "on": ["gate_failed", "approval"]}]

`on` takes `gate_failed`, `refused` (input, form or definition), `failed` (anything else), `approval` and
`live_mismatch` (windows of the live job differ for no reason that the log gives), and `restated` (a run was published
that changes numbers that readers have had); left out, all.
The arguments' templates see `rewindow`: `event`, `run_id`, `pipeline`, `message`, `report` (a path on the server), and
`periods`, the days or hours whose windows the run changes, such as `2026-12-01T00:00:00`.
Each text is one line, visible and cut.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any, cast

from airflow.sdk import BaseNotifier
from airflow.sdk.definitions.context import Context

from spark_jobs.errors import EnvironmentSetupError, first_line
from spark_jobs.formatting import told
from spark_jobs.orchestration.airflow_names import AirflowSkipException
from spark_jobs.orchestration.links import report_path
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.runs.life.documents import Changes, Outcome
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.settings import Variable, settings

EVENTS = ("gate_failed", "refused", "failed", "approval", "live_mismatch", "restated")
_EARLIER_EVENTS = {"live_drift": "live_mismatch"}
REFUSED = frozenset({2, 5, 6})
"""Exit codes of input, form and definition."""

log = logging.getLogger(__name__)


def configured(event: str) -> Iterator[BaseNotifier]:
    """The notifiers of `event`. Raises EnvironmentSetupError for a list that cannot be read."""
    text = settings().notifiers
    if not text:
        return
    try:
        items = json.loads(text)
        for item in items:
            named = (_EARLIER_EVENTS.get(name, name) for name in item.get("on", EVENTS))
            if event in named:
                yield _imported(item["class"])(**item.get("arguments", {}))
    except (ValueError, KeyError, TypeError, ImportError, AttributeError) as problem:
        raise EnvironmentSetupError(
            f"the notifiers cannot be made: {problem}",
            Variable.NOTIFIERS,
            'Write a list like [{"class": "package.Notifier", "arguments": {}, "on": ["gate_failed"]}].',
        ) from problem


class Relay(BaseNotifier):
    """Calls the configured notifiers of one event, with `rewindow` in their context."""

    template_fields = ()

    def __init__(self, event: str) -> None:
        super().__init__()
        self.event = event

    def notify(self, context: Context) -> None:
        notify(self.event, context)


def notified_approval() -> list[BaseNotifier]:
    """The notifiers of the task that waits for an approval."""
    return [Relay("approval")] if settings().notifiers else []


def on_failure(context: Context) -> None:
    """The failure callback of the tasks: notify, and say once more why, as the last line of the log."""
    outcome = _outcome(context)
    if outcome is None or outcome.status is not RunStatus.REJECTED:  # who rejects a run knows
        notify(_event_of(outcome), context)
    say_why(context)


def say_why(context: Context) -> None:
    """Log why a task failed in one plain line, behind the traceback that Airflow logs."""
    problem = context.get("exception")
    lines = str(problem or "").splitlines()
    if lines:
        log.error("%s", told(lines[0]))


def say_before_traceback(to: Any, problem: Exception) -> None:
    """Log why a task fails in one plain line. What comes after Airflow's traceback is in a closed group of its page."""
    if not isinstance(problem, AirflowSkipException):
        to.error("%s", told(first_line(problem)))


def notify(event: str, context: Context) -> None:
    """Call the notifiers of an event. One that fails is logged: it must not change what became of the run."""
    outcome = _outcome(context)
    run_id = _run_id(context)
    changes = Changes.read(RunStore.configured().folder(run_id))
    facts = {
        "event": event,
        "run_id": run_id,
        "pipeline": getattr(context.get("task"), "pipeline", ""),
        "message": told(_message(event, outcome, run_id)),
        "report": report_path(run_id),
        "periods": [told(period) for period in changes.changed_periods] if changes else [],
    }
    log.info("notifying of %s: %s", event, facts["message"])
    try:
        for notifier in configured(event):
            notifier({**context, "rewindow": facts})
    except Exception:
        log.exception("a notifier failed")


def _message(event: str, outcome: Outcome | None, run_id: str) -> str:
    if event == "live_mismatch":
        from spark_jobs.report.verdict import live_in_words  # not where each DAG is parsed

        verdicts = Verdicts.read(RunStore.configured().folder(run_id))
        return live_in_words(verdicts) if verdicts else ""
    if event == "restated":
        changes = Changes.read(RunStore.configured().folder(run_id))
        return changes.of_readers.in_words() if changes else ""
    return outcome.message if outcome else ""


def _event_of(outcome: Outcome | None) -> str:
    if outcome is None:
        return "failed"
    if outcome.status is RunStatus.GATE_FAILED:
        return "gate_failed"
    is_refused = outcome.exit_code is None or outcome.exit_code in REFUSED
    return "refused" if outcome.status is RunStatus.FAILED and is_refused else "failed"


def _outcome(context: Context) -> Outcome | None:
    return Outcome.read(RunStore.configured().folder(_run_id(context)))


def _run_id(context: Context) -> str:
    run = cast(Any, context.get("dag_run"))
    return run_id_of(run.dag_id, run.run_id)


def _imported(path: str) -> Any:
    from importlib import import_module

    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
