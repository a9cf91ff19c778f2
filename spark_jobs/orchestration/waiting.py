"""What ends an approval: an answer, or a decision by another way, as of the DAG `decide__<pipeline>`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.providers.standard.triggers.hitl import HITLTrigger
from airflow.triggers.base import TriggerEvent

from spark_jobs.errors import RewindowError
from spark_jobs.runs.corrected import DeliveredCorrections
from spark_jobs.runs.documents import Outcome
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.store import RunFolder, RunStore

_LOG = logging.getLogger(__name__)
_DECIDED = "decided"
_EVERY = 10.0
"""Seconds between two looks at the run."""
_DELIVERY = timedelta(minutes=10)
"""How long corrections are waited for: who publishes a run delivers them behind that."""


class AnsweredOrDecided(HITLTrigger):
    """The answer of a person; or that the run was published or dropped without one, see `decided_status`.

    Args:
        run_id: Rewindow's run.
        corrects: Whether corrections are delivered when it is published.
        given: What Airflow's trigger takes.
    """

    def __init__(self, *, run_id: str, corrects: bool, **given: Any) -> None:
        super().__init__(**given)
        self.run_id = run_id
        self.corrects = corrects

    def serialize(self) -> tuple[str, dict[str, Any]]:
        _, given = super().serialize()
        mine = {"run_id": self.run_id, "corrects": self.corrects}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**given, **mine}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Airflow's event of an answer, or one with the status of the run; then it ends."""
        answer = asyncio.ensure_future(anext(aiter(super().run())))
        try:
            while not (await asyncio.wait([answer], timeout=_EVERY))[0]:
                status = await asyncio.to_thread(self._decided)
                if status is not None:
                    yield TriggerEvent({_DECIDED: status.value})
                    return
            yield answer.result()
        finally:
            answer.cancel()

    def _decided(self) -> RunStatus | None:
        try:
            return decided(RunStore.configured().folder(self.run_id), datetime.now(UTC), corrects=self.corrects)
        except (OSError, ValueError, RewindowError) as problem:  # the answer is still waited for
            _LOG.warning("run %s cannot be looked at: %s", self.run_id, problem)
            return None


def decided(folder: RunFolder, now: datetime, *, corrects: bool) -> RunStatus | None:
    """The status of a run that was published or dropped, and nothing works on it any more; None: it waits.

    `corrects`: its corrections are waited for, but not for ever.
    """
    outcome = Outcome.read(folder)
    if outcome is None or not outcome.status.is_final:
        return None
    if corrects and outcome.status.is_published and DeliveredCorrections.read(folder) is None:
        written = outcome.finished_at
        if written is not None and now - datetime.fromisoformat(written) < _DELIVERY:
            return None
    return outcome.status


def decided_status(event: Mapping[str, Any]) -> RunStatus | None:
    """What an event of `AnsweredOrDecided` says of the run; None: it is a person's answer."""
    found = event.get(_DECIDED)
    return None if found is None else RunStatus(found)
