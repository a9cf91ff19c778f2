"""The life of a delivery: a set of corrections that goes to one destination as a whole.

`TRANSITIONS` is the whole of it. The rows of a delivery are in `<table>__corrections` before the destination sees any
of them: so a process that goes on after a kill delivers the same rows, and each once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_jobs.errors import RunStateError


class DeliveryKind(StrEnum):
    """Why rows go to a destination: new corrections, all of them again (a repaired sink), or the values before them."""

    CORRECTION = "correction"
    REPEAT = "repeat"
    REVERT = "revert"


class DeliveryStatus(StrEnum):
    """Where a delivery stands. `prepared`: written down, and the destination may have it or not."""

    PREPARED = "prepared"
    DELIVERED = "delivered"


class DeliveryEvent(StrEnum):
    """What can happen to a delivery."""

    PREPARE = "prepare"
    FINISH = "finish"


class CorrectionAction(StrEnum):
    """What a correction does to a window's row at the destination."""

    UPSERT = "upsert"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class DeliveryTransition:
    """One row of the state machine. `source`: None stands for a delivery that the table does not know."""

    event: DeliveryEvent
    source: DeliveryStatus | None
    target: DeliveryStatus
    guard: str


TRANSITIONS = (
    DeliveryTransition(
        DeliveryEvent.PREPARE,
        None,
        DeliveryStatus.PREPARED,
        "no other delivery to the destination is prepared; no other process has prepared one meanwhile",
    ),
    DeliveryTransition(
        DeliveryEvent.FINISH,
        DeliveryStatus.PREPARED,
        DeliveryStatus.DELIVERED,
        "the destination has all of its rows",
    ),
)


def next_delivery_status(delivery: str, current: DeliveryStatus | None, event: DeliveryEvent) -> DeliveryStatus:
    """The status after `event`. Raises RunStateError where it may not happen in the status `current`."""
    for transition in TRANSITIONS:
        if transition.event is event and transition.source is current:
            return transition.target
    stands = "unknown" if current is None else current.value
    raise RunStateError(f"the delivery is {stands}: `{event.value}` is not possible", delivery)
