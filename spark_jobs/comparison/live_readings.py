"""The ways in which the bounds of emitted windows can be meant: a unit, a clock, a bound that is another one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.grid import divided

HALF_HOUR = 1_800_000
"""Time zones differ by multiples of it, nearly all (ms)."""
_LONGEST_OFFSET = 28
"""Time zones are up to 14 hours, 28 half hours, from UTC."""


class Meaning(StrEnum):
    """How the bounds of the emitted windows could be meant."""

    AS_DEFINED = "as defined"
    OTHER_UNIT = "another unit"
    LOCAL_TIME = "local time"
    OTHER_BOUND = "the other bound"
    LAST_INSTANT = "the last instant"


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a bound: `bound * multiplier / divisor + shift` (epoch ms)."""

    meaning: Meaning
    shift: int = 0
    multiplier: int = 1
    divisor: int = 1

    def start_of(self, bound: Column) -> Column:
        scaled = bound if self.multiplier == 1 else F.call_function("try_multiply", bound, F.lit(self.multiplier))
        return divided(scaled, self.divisor) + F.lit(self.shift)

    def time_of(self, bound: int) -> int:
        return bound * self.multiplier // self.divisor + self.shift


def readings_of(pipeline: Pipeline) -> tuple[Reading, ...]:
    """What is tried, the definition's own reading first."""
    found = [Reading(Meaning.AS_DEFINED)]
    windows = windows_of(pipeline)
    length = windows.fixed_length
    if length is not None:
        found += [Reading(Meaning.OTHER_BOUND, -length), Reading(Meaning.OTHER_BOUND, length)]
    found += [Reading(Meaning.LAST_INSTANT, shift) for shift in (1, 1000)]
    found += [
        Reading(Meaning.LOCAL_TIME, sign * steps * HALF_HOUR)
        for steps in range(1, _LONGEST_OFFSET + 1)
        for sign in (1, -1)
    ]
    found += [
        Reading(Meaning.OTHER_UNIT, multiplier=1000),
        Reading(Meaning.OTHER_UNIT, divisor=1000),
        Reading(Meaning.OTHER_UNIT, multiplier=1_000_000),
        Reading(Meaning.OTHER_UNIT, divisor=1_000_000),
    ]
    return tuple(found)
