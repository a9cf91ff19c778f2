"""Whether a staged run is published: by its policy, by the gate, and by what would change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_jobs.definition.output import Publish
from spark_jobs.definition.policy import Policy
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.life.documents import Changes, Gate
from spark_jobs.runs.work.unmet import closed_in_words

_STRICTNESS = (Policy.ALWAYS, Policy.WITHIN_TOLERANCE, Policy.ON_APPROVAL, Policy.NEVER)


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


def effective_policy(publish: Publish, requested: Policy | None) -> Policy:
    """The policy of a run: the definition's, or a stricter one that was requested.

    Raises DefinitionError where the requested one is weaker and the definition does not say `may_override`.
    """
    if requested is None or publish.may_override or _STRICTNESS.index(requested) >= _STRICTNESS.index(publish.policy):
        return requested or publish.policy
    raise DefinitionError(
        f"the policy `{requested.value}` is weaker than the definition's `{publish.policy.value}`",
        "publish",
        f"Choose {publish.policy.value} or a stricter one, or write `may_override: true` under `publish`.",
    )


def decide(policy: Policy, tolerance: float, changes: Changes, gate: Gate | None) -> Decision:
    """What becomes of a verified run. `tolerance` is a share (0 to 1) of the published windows that it computed again.

    A critical expectation that failed stops the run whatever the policy is. New windows and bookkeeping restate
    nothing: only updated and retracted windows count against the tolerance. Where readers would see no change at all,
    nobody needs to approve it.
    """
    if gate is not None and gate.blocks:
        return Decision(Action.STOP, f"the gate is closed: {closed_in_words(gate.critical_failures)}")
    restated, again = changes.restated, changes.windows_recomputed or 0
    share = restated / again if again else float(bool(restated))
    effect = "no published window changes"
    if restated:
        effect = f"{restated:,} of {again:,} published windows that the run computed again change ({share:.2%})"
    match policy:
        case Policy.ALWAYS:
            return Decision(Action.PUBLISH, f"the policy is `always`; {effect}")
        case Policy.NEVER:
            return Decision(Action.STOP, f"the policy is `never`; {effect}")
        case Policy.ON_APPROVAL if not changes.changed:
            return Decision(Action.PUBLISH, f"nothing needs an approval: {effect}")
        case Policy.ON_APPROVAL:
            return Decision(Action.ASK, f"the policy requires an approval; {effect}")
        case Policy.WITHIN_TOLERANCE if share <= tolerance:
            return Decision(Action.PUBLISH, f"{effect}, within the tolerance of {tolerance:.2%}")
        case _:
            return Decision(Action.ASK, f"{effect}, more than the tolerance of {tolerance:.2%}")
