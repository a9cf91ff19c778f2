"""Whether a staged run is published: by its policy, by the gate, and by what would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spark_jobs.definition.policy import Policy
from spark_jobs.formatting import plural


class Action(StrEnum):
    PUBLISH = "publish"
    ASK = "ask"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and why, in a sentence for people."""

    action: Action
    why: str

    def to_dict(self) -> dict[str, str]:
        return {"action": self.action.value, "why": self.why}


def decide(policy: Policy, tolerance: float, changes: Mapping[str, Any], gate: Mapping[str, Any] | None) -> Decision:
    """`changes` and `gate` are the run's documents; `tolerance` is a share of the published windows, 0 to 1.

    A critical expectation that failed stops the run whatever the policy is. New windows restate nothing: only updated
    and retracted ones count against the tolerance.
    """
    if gate is not None and gate["blocks"]:
        failed = [r for r in gate["results"] if not r["success"] and r["severity"] == "critical"]
        return Decision(Action.STOP, f"the gate is closed: {plural(len(failed), 'critical expectation')} failed")
    counts, before = changes["counts"], changes["windows_before"]
    restated = counts.get("updated", 0) + counts.get("retracted", 0)
    share = restated / before if before else 0.0
    told = f"{restated:,} of {before:,} published windows change ({share:.2%})"
    match policy:
        case Policy.ALWAYS:
            return Decision(Action.PUBLISH, f"the policy is `always`; {told}")
        case Policy.NEVER:
            return Decision(Action.STOP, f"the policy is `never`; {told}")
        case Policy.ON_APPROVAL:
            return Decision(Action.ASK, f"the policy asks for approval; {told}")
        case Policy.WITHIN_TOLERANCE if share <= tolerance:
            return Decision(Action.PUBLISH, f"{told}, within the tolerance of {tolerance:.2%}")
        case _:
            return Decision(Action.ASK, f"{told}, more than the tolerance of {tolerance:.2%}")
