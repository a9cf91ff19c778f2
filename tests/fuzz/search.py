"""Looks for an input of a kind that is a fault, with Hypothesis, which makes what it finds as small as it can."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz.limits import Fault, Limit, try_input

ROUND = 500
"""Inputs of one seed. The next round has the next seed, so that a fault can be found again without those before it."""
_SHRINKING = 45.0
"""Seconds for making an input smaller: each try of one that hangs takes the whole limit."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that is a fault: `seed` finds it again in the first round."""

    kind: str
    seed: int
    shown: str
    problem: str

    def __str__(self) -> str:
        again = f"make fuzz KIND={self.kind} SEED={self.seed}"
        return f"{self.kind}: {self.problem}\n  input: {self.shown}\n  again: {again}"


@dataclass(frozen=True, slots=True)
class Tally:
    """What was tried of a kind; `finding`: the fault that ended it."""

    inputs: int
    finding: Finding | None = None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of input: how one is made, and what reads it.

    `shown` says for people what an input is. `prepare` loads what the first input would load otherwise.
    """

    name: str
    inputs: SearchStrategy[Any]
    read: Callable[[Any], object]
    limit: Limit = field(default_factory=Limit)
    shown: Callable[[Any], str] = repr
    prepare: Callable[[], object] = dict

    def search(self, first_seed: int, least: int, until: float) -> Tally:
        """Try inputs until `least` are tried and the time (of `time.monotonic`) is over, or one is a fault."""
        self.prepare()
        tried = 0
        for number in range(first_seed, first_seed + 1_000_000):
            if tried >= least and time.monotonic() >= until:
                break
            size = ROUND if time.monotonic() < until else min(ROUND, least - tried)
            attempts = _Attempts(self)
            finding = attempts.searched(number, size)
            tried += attempts.count
            if finding is not None:
                return Tally(tried, finding)
        return Tally(tried)


class _Attempts:
    """One round. Once a fault is found, only the inputs count that are tried within `_SHRINKING` seconds."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._found: tuple[str, Fault] | None = None
        self._until = 0.0
        self.count = 0

    def searched(self, number: int, size: int) -> Finding | None:
        found = given(self._kind.inputs)(self._try)
        quiet = settings(
            max_examples=size, database=None, deadline=None, phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck), verbosity=Verbosity.quiet, report_multiple_bugs=False,
            print_blob=False,
        )  # fmt: skip
        try:
            seed(number)(quiet(found))()
        except Exception:
            if self._found is None:
                raise
            shown, fault = self._found
            return Finding(self._kind.name, number, shown, str(fault))
        return None

    def _try(self, value: Any) -> None:
        self.count += 1
        shown = self._kind.shown(value)
        if self._found is not None and time.monotonic() > self._until and shown != self._found[0]:
            return
        try:
            try_input(lambda: self._kind.read(value), self._kind.limit)
        except Fault as fault:
            if self._found is None:
                self._until = time.monotonic() + _SHRINKING
            self._found = shown, fault
            raise
