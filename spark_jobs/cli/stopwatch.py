"""The seconds of a command: the stages that its run does not count itself, and the total."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

TOTAL = "total"
_LAST = "report"


class Stopwatch:
    """Begins when it is made."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._seconds: dict[str, float] = {}

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Count the seconds of the block as those of a stage."""
        began = time.monotonic()
        yield
        self._seconds[stage] = round(time.monotonic() - began, 3)

    def around(self, timings: Mapping[str, float]) -> dict[str, float]:
        """The seconds of all stages in their order, those of the run among them, and of all together as `total`."""
        before = {stage: seconds for stage, seconds in self._seconds.items() if stage != _LAST}
        after = {stage: seconds for stage, seconds in self._seconds.items() if stage == _LAST}
        return {**before, **timings, **after, TOTAL: round(time.monotonic() - self._began, 3)}
