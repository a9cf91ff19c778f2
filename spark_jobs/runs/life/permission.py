"""Whether a staged run is published: by its policy, by the gate, and by what would change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from spark_jobs.definition.output import Policy, Publish
from spark_jobs.definition.restatement import Restatement
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.life.documents import Changes, Gate
from spark_jobs.runs.life.restated import beyond
from spark_jobs.runs.work.unmet import closed_in_words

_STRICTNESS = (Policy.ALWAYS, Policy.WITHIN_TOLERANCE, Policy.ON_APPROVAL, Policy.NEVER)


class Action(StrEnum):
    PUBLISH = "publish"
    ASK = "ask"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be done, and why, in a sentence for people; `rule`: the part of it that does not say what changes."""

    action: Action
    why: str
    rule: str = ""

    def to_dict(self) -> dict[str, str]:
        return {"action": self.action.value, "why": self.why, "rule": self.rule}


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


def decide(policy: Policy, tolerance: Restatement, changes: Changes, gate: Gate | None) -> Decision:
    """What becomes of a verified run.

    A critical expectation that failed stops the run whatever the policy is. New windows, those that were open before,
    and bookkeeping restate nothing: only numbers that readers had count against the tolerance. Where readers would see
    no change at all, nobody needs to approve it.
    """
    if gate is not None and gate.blocks:
        return Decision(Action.STOP, f"the gate is closed: {closed_in_words(gate.critical_failures)}")
    restated = changes.of_readers
    effect = (
        f"{restated.where} {'changes' if restated.windows == 1 else 'change'}"
        if restated.windows
        else "no published number changes"
    )
    too_much = list(beyond(tolerance, restated))

    def because(action: Action, rule: str) -> Decision:
        return Decision(action, f"{effect}, {rule}", rule)

    match policy:
        case Policy.ALWAYS:
            return because(Action.PUBLISH, "the policy is `always`")
        case Policy.NEVER:
            return because(Action.STOP, "the policy is `never`")
        case Policy.ON_APPROVAL if not changes.changed:
            return because(Action.PUBLISH, "nothing needs an approval")
        case Policy.ON_APPROVAL:
            return because(Action.ASK, "the policy requires an approval")
        case Policy.WITHIN_TOLERANCE if not too_much:
            return because(Action.PUBLISH, f"within the tolerance ({tolerance.in_words()})")
        case _:
            return because(Action.ASK, f"more than the tolerance allows: {'; '.join(too_much)}")
