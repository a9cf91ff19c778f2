"""Fields of a definition that neither log nor live job tells, with another value than the definition gives them.

A comparison tries them where the live job's rows contradict the definition (`spark_jobs.comparison.other_values`).
"""

from __future__ import annotations

from dataclasses import dataclass

from spark_jobs.replay.spec import ReplaySpec


@dataclass(frozen=True, slots=True)
class OtherValue:
    """A replay with another value of a field. `field`: its path in the definition; `value`: as it is written there."""

    field: str
    value: str
    spec: ReplaySpec
