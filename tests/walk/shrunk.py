"""The shortest part of a walk that still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.walk import plan as s
from tests.walk.drawn import is_sound
from tests.walk.walker import Fault


def shortest(fault: Fault, first_fault: Callable[[s.Walk], Fault | None], tries: int) -> Fault:
    """Leave out steps, and make them smaller, as long as the walk still has a fault; in no more than so many tries."""
    tried = {fault.walk}
    while True:
        for walk in _smaller(_up_to(fault)):
            if walk in tried or not is_sound(walk):
                continue
            if not tries:
                return fault
            tries -= 1
            tried.add(walk)
            if (found := first_fault(walk)) is not None:
                fault = found
                break
        else:
            return fault


def _up_to(fault: Fault) -> s.Walk:
    return replace(fault.walk, steps=fault.walk.steps[: fault.at + 1])


def _smaller(walk: s.Walk) -> Iterator[s.Walk]:
    """Walks that do less: the boldest first."""
    steps, length = walk.steps, len(walk.steps) // 2
    while length:
        for start in range(0, len(steps) - 1, length):  # the last step is where it fails
            yield replace(walk, steps=(*steps[:start], *steps[min(start + length, len(steps) - 1) :]))
        length //= 2
    for at, step in enumerate(steps):
        for other in _simpler(step):
            yield replace(walk, steps=(*steps[:at], other, *steps[at + 1 :]))
    if walk.running_maximum:
        yield replace(walk, running_maximum=False)
    if walk.periodic:
        yield replace(walk, periodic=False)


def _simpler(step: s.Step) -> Iterator[s.Step]:
    match step:
        case s.Arrive(count):
            yield s.Arrive(count)
            yield replace(step, count=max(1, count // 2))
        case s.Correct(first, last):
            yield replace(step, last=(first + last) // 2)
        case s.Night(until) if until is not None:
            yield s.Night()
        case s.Full(as_of) if as_of is not None:
            yield replace(step, as_of=None)
        case s.Full():
            yield s.Night()
        case _:
            return
