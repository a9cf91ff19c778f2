"""The state machine of a run: which event may happen in which status, and what the status is then.

`TRANSITIONS` is the whole of it. Every process (command line, Airflow task, recovery) changes a run's status through
`RunLife.apply`, which compares the run's row in the ledger with what it expects and replaces it in one Iceberg commit.
`docs/operations.md` shows the same table, and a test compares the two.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from spark_jobs.errors import RunStateError
from spark_jobs.lakehouse.ledger import Ledger, LedgerRow
from spark_jobs.runs.life.processes import HEARTBEAT, STAGES_PROCESS, Sign, alive_of, beating, sign_of, this_process
from spark_jobs.runs.life.status import RunStatus


class Event(StrEnum):
    """What can happen to a run."""

    BEGIN = "begin"
    PASS = "pass"
    REQUEST_APPROVAL = "request approval"
    CLOSE_GATE = "close gate"
    END_DRY_RUN = "end dry run"
    END_COMPARISON = "end comparison"
    START_PUBLISHING = "start publishing"
    FINISH_PUBLISHING = "finish publishing"
    FAIL = "fail"
    REJECT = "reject"
    DISCARD = "discard"
    ABANDON = "abandon"
    RECOVER = "recover"


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the state machine. `sources`: None stands for a run that the ledger does not know.

    `drops`: what the run has staged is dropped.
    """

    event: Event
    sources: tuple[RunStatus | None, ...]
    target: RunStatus
    guard: str
    writes: str
    drops: bool = False


_S = RunStatus
_WAITING = (_S.STAGED, _S.AWAITING_APPROVAL, _S.GATE_FAILED)
_ENDED_UNPUBLISHED = (_S.DRY_RUN, _S.COMPARED_ONLY, _S.REJECTED, _S.DISCARDED, _S.FAILED, _S.ABANDONED)

TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        Event.BEGIN,
        (None, _S.RUNNING, *_WAITING, *_ENDED_UNPUBLISHED),
        _S.RUNNING,
        "no other process works on the run",
        "a new attempt; the staging of the attempt before is dropped",
    ),
    Transition(
        Event.PASS,
        (_S.RUNNING, *_WAITING, _S.FAILED),
        _S.STAGED,
        "all chunks are staged, the gate is open, the policy lets it be published",
        "what was verified (`evidence`), counts",
    ),
    Transition(
        Event.REQUEST_APPROVAL,
        (_S.RUNNING, *_WAITING, _S.FAILED),
        _S.AWAITING_APPROVAL,
        "all chunks are staged, the gate is open, the policy requires an approval",
        "what was verified (`evidence`), counts",
    ),
    Transition(
        Event.CLOSE_GATE,
        (_S.RUNNING, *_WAITING, _S.FAILED),
        _S.GATE_FAILED,
        "all chunks are staged, a critical expectation failed",
        "what was verified (`evidence`), counts",
    ),
    Transition(
        Event.END_DRY_RUN,
        (_S.RUNNING, *_WAITING, _S.FAILED),
        _S.DRY_RUN,
        "a dry run",
        "the staging is dropped",
        drops=True,
    ),
    Transition(
        Event.END_COMPARISON,
        (_S.RUNNING, *_WAITING, _S.FAILED),
        _S.COMPARED_ONLY,
        "the policy is `never`, or a published run has read more",
        "the staging is dropped",
        drops=True,
    ),
    Transition(
        Event.START_PUBLISHING,
        (_S.RUNNING, *_WAITING, _S.FAILED, _S.PUBLISHING),
        _S.PUBLISHING,
        "what is staged is what was verified; approved or overridden where that is required; "
        "no other process publishes the run",
        "the claim of the process that publishes, reason, person",
    ),
    Transition(
        Event.FINISH_PUBLISHING,
        (_S.PUBLISHING,),
        _S.PUBLISHED,
        "the commit is in the table's history, or there was nothing to change",
        "counts, changes, the end",
    ),
    Transition(
        Event.FAIL, (_S.RUNNING, *_WAITING, _S.PUBLISHING, _S.FAILED), _S.FAILED, "an error", "the error, the end"
    ),
    Transition(
        Event.REJECT,
        (*_WAITING, _S.FAILED),
        _S.REJECTED,
        "a person said no",
        "the staging is dropped; the end",
        drops=True,
    ),
    Transition(
        Event.DISCARD,
        (_S.RUNNING, *_WAITING, _S.FAILED, _S.ABANDONED),
        _S.DISCARDED,
        "no other process works on the run",
        "the staging is dropped; the end",
        drops=True,
    ),
    Transition(
        Event.ABANDON,
        (_S.RUNNING, *_WAITING, _S.PUBLISHING, _S.FAILED),
        _S.ABANDONED,
        "the process is gone, or the run waited too long; the commit is not in the table's history",
        "the staging is dropped; the end",
        drops=True,
    ),
    Transition(
        Event.RECOVER,
        (_S.RUNNING, *_WAITING, _S.PUBLISHING, _S.FAILED, _S.ABANDONED),
        _S.PUBLISHED,
        "the commit is in the table's history",
        "the end",
    ),
)

_BY_EVENT = {transition.event: transition for transition in TRANSITIONS}
_BY_DROPPED = {transition.target: transition.event for transition in TRANSITIONS if transition.drops}


def event_that_drops(status: RunStatus) -> Event:
    """The event by which a run gets this status and what it has staged is dropped."""
    return _BY_DROPPED[status]


_TAKES_OVER = frozenset(
    {Event.BEGIN, Event.START_PUBLISHING, Event.DISCARD, Event.REJECT, Event.ABANDON, Event.RECOVER}
)
"""Events of a process that need not carry out the run yet; all others need the run's current attempt."""


def next_status(run_id: str, current: RunStatus | None, event: Event) -> RunStatus:
    """The status after `event`. Raises RunStateError where the event may not happen in the status `current`."""
    transition = _BY_EVENT[event]
    if current in transition.sources:
        return transition.target
    if current is None:
        raise RunStateError(f"the ledger has no run {run_id}", run_id, "Start the run again.")
    stands = current.value.replace("_", " ")
    hint = (
        "Start another run to change its windows."
        if current.is_published
        else "Look at it with `rewindow report RUN`, or start the run again."
    )
    raise RunStateError(f"the run is {stands}: `{event.value}` is not possible any more", run_id, hint)


_ACTIVE: set[str] = set()
"""The attempts and claims that this process works with now."""


_MOVED: dict[str, RunStatus] = {}
"""The runs whose status this process has changed, in this order."""


def moved_runs() -> Mapping[str, RunStatus]:
    """The runs whose status this process has changed, the last one first, with what it became."""
    return dict(reversed(_MOVED.items()))


def sign_of_row(row: LedgerRow, now: datetime) -> Sign:
    """What is known of the process that the run's row names."""
    if row["process"] == this_process():
        return Sign.ALIVE if (row["claim"] or row["attempt"]) in _ACTIVE else Sign.GONE
    return sign_of(row["process"], row["heartbeat_at"] or row["started_at"], now)


def show_life(ledger: Ledger, run_ids: Iterable[str], heartbeat: timedelta = HEARTBEAT) -> set[str]:
    """The runs whose process gives a sign of life while it is watched, see `alive_of`."""
    return alive_of({run_id: lambda run_id=run_id: _signs_of(ledger.row(run_id)) for run_id in run_ids}, heartbeat)


def _signs_of(row: LedgerRow | None) -> tuple[object, ...]:
    """What changes in a run's row while a process works on it. Rows that were read have local times without a zone."""
    at: datetime | None = None if row is None else row["heartbeat_at"]
    return () if row is None else (row["status"], row["process"], at and at.astimezone(UTC))


class _SilentError(Exception):
    """Another host's process works on the run by its row, and its last sign of life is not recent by this clock."""


def new_token() -> str:
    """A random name of an attempt or of a claim."""
    return secrets.token_hex(8)


class RunLife:
    """One process's view of one run's status in the ledger.

    `attempt` names the attempt that the process works for; an attempt that was replaced by another one can write
    nothing any more. `process` is what the ledger shows: this process, or `stages` between applications.
    """

    def __init__(
        self,
        ledger: Ledger,
        run_id: str,
        attempt: str | None,
        *,
        now: Callable[[], datetime],
        process: str | None = None,
        heartbeat: timedelta = HEARTBEAT,
    ) -> None:
        self._ledger = ledger
        self.run_id = run_id
        self.attempt = attempt
        self.claim: str | None = None
        self.process = process or this_process()
        self._now = now
        self._heartbeat = heartbeat
        self._lost: RunStateError | None = None
        self._silent: LedgerRow | None = None

    def row(self) -> LedgerRow | None:
        """The run's row as it is now."""
        return self._ledger.row(self.run_id)

    def status(self) -> RunStatus | None:
        row = self.row()
        return None if row is None else RunStatus(row["status"])

    def apply(self, event: Event, guard: Callable[[LedgerRow | None], None] | None = None, **columns: Any) -> RunStatus:
        """Change the status by `event`, and set `columns` of the run's row, in one commit.

        `guard` is called with the row that is about to be replaced, and raises to refuse.
        Raises RunStateError where the state machine, another process or another attempt forbids it.
        """

        def decide(row: LedgerRow | None) -> Mapping[str, Any]:
            current = None if row is None else RunStatus(row["status"])
            target = next_status(self.run_id, current, event)
            self._check_claim(row, event)
            if guard is not None:
                guard(row)
            return {"status": target.value, "process": self.process, "heartbeat_at": self._now(), **columns}

        try:
            row = self._ledger.change(self.run_id, decide)
        except _SilentError:
            assert self._silent is not None
            if show_life(self._ledger, [self.run_id], self._heartbeat):
                raise self._worked_on(self._silent) from None
            row = self._ledger.change(self.run_id, decide)
        if event in (Event.BEGIN, Event.START_PUBLISHING):
            self.attempt, self.claim = row["attempt"], row["claim"]
            _ACTIVE.update(filter(None, (self.attempt, self.claim)))
        status = RunStatus(row["status"])
        _MOVED.pop(self.run_id, None)
        _MOVED[self.run_id] = status
        return status

    def set(self, **columns: Any) -> None:
        """Set columns of the run's row; the status stays."""

        def decide(row: LedgerRow | None) -> Mapping[str, Any]:
            self._check_claim(row, None)
            return {"heartbeat_at": self._now(), **columns}

        self._ledger.change(self.run_id, decide)

    def _check_claim(self, row: LedgerRow | None, event: Event | None) -> None:
        if self._lost is not None:
            raise self._lost
        if row is None or (event is None and self.attempt is None):
            return
        is_claimed = self.claim is not None or row["status"] == RunStatus.PUBLISHING
        lost = row["attempt"] != self.attempt or (is_claimed and row["claim"] != self.claim)
        if event not in _TAKES_OVER and lost:
            raise RunStateError(
                "another attempt of this run has begun since, or another process publishes it; this one writes nothing "
                "more",
                self.run_id,
                "Look at it with `rewindow report RUN`.",
            )
        if event not in (Event.BEGIN, Event.START_PUBLISHING, Event.DISCARD, Event.REJECT):
            return
        is_own = event is Event.START_PUBLISHING and not lost and row["claim"] is None
        at_work = RunStatus(row["status"]).has_work and row["process"] != STAGES_PROCESS
        if at_work and not is_own and self._may_work(row):
            raise self._worked_on(row)

    def _worked_on(self, row: LedgerRow) -> RunStateError:
        return RunStateError(
            f"another process works on this run: {row['process']}",
            self.run_id,
            "Wait until it has ended, or stop it; then try again.",
        )

    def _may_work(self, row: LedgerRow) -> bool:
        """Whether the row's process may work on the run. Raises _SilentError where it has to be watched first."""
        sign = sign_of_row(row, self._now())
        if sign is not Sign.SILENT:
            return sign is Sign.ALIVE
        if self._silent is None:
            self._silent = row
            raise _SilentError(self.run_id)
        return _signs_of(row) != _signs_of(self._silent)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Write a sign of life now and then while the block runs. Work shorter than the interval writes none."""

        def beat() -> bool:
            try:
                self.set()
            except RunStateError as lost:
                self._lost = lost
            return self._lost is None

        try:
            with beating(beat, f"heartbeat of {self.run_id}", self._heartbeat):
                yield
        finally:
            _ACTIVE.difference_update(filter(None, (self.attempt, self.claim)))

    def ensure(self) -> None:
        """Raises RunStateError where this process has lost the run."""
        if self._lost is not None:
            raise self._lost
