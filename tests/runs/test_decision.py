from __future__ import annotations

import pytest

from spark_jobs.definition.output import Publish
from spark_jobs.definition.policy import Policy
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.life.documents import Changes, ExpectationResult, Gate
from spark_jobs.runs.life.permission import Action, decide, effective_policy


def changes(
    updated: int = 0, retracted: int = 0, inserted: int = 0, bookkeeping: int = 0, before: int = 100
) -> Changes:
    counts = {"updated": updated, "retracted": retracted, "inserted": inserted, "bookkeeping": bookkeeping}
    return Changes(counts=counts, windows_recomputed=before)


def gate(*results: tuple[str, bool]) -> Gate:
    found = tuple(ExpectationResult(severity=severity, success=success) for severity, success in results)
    blocks = ("critical", False) in results
    return Gate(verdict="failed" if blocks else "passed", blocks=blocks, results=found)


@pytest.mark.parametrize(
    ("policy", "seen", "action"),
    [
        (Policy.ALWAYS, changes(updated=100), Action.PUBLISH),
        (Policy.NEVER, changes(), Action.STOP),
        (Policy.ON_APPROVAL, changes(inserted=1), Action.ASK),
        (Policy.ON_APPROVAL, changes(), Action.PUBLISH),  # nothing to approve
        (Policy.ON_APPROVAL, changes(bookkeeping=100), Action.PUBLISH),
        (Policy.WITHIN_TOLERANCE, changes(updated=1, bookkeeping=99), Action.PUBLISH),  # readers see one change
        (Policy.WITHIN_TOLERANCE, changes(updated=1), Action.PUBLISH),  # exactly at the tolerance
        (Policy.WITHIN_TOLERANCE, changes(updated=1, retracted=1), Action.ASK),
        (Policy.WITHIN_TOLERANCE, changes(inserted=1000), Action.PUBLISH),  # new windows restate nothing
        (Policy.WITHIN_TOLERANCE, changes(inserted=10, before=0), Action.PUBLISH),
    ],
)
def test_the_policy_decides_by_what_is_restated(policy: Policy, seen: Changes, action: Action) -> None:
    decision = decide(policy, 0.01, seen, gate(("critical", True), ("warning", False)))
    assert decision.action is action
    assert decision.why


@pytest.mark.parametrize("policy", list(Policy))
def test_a_closed_gate_stops_every_policy(policy: Policy) -> None:
    decision = decide(policy, 1.0, changes(), gate(("critical", False), ("critical", False), ("info", True)))
    assert decision.action is Action.STOP
    assert "2 critical expectations failed" in decision.why


def test_a_form_can_only_be_stricter_than_the_definition() -> None:
    defined = Publish(policy=Policy.ON_APPROVAL)
    assert effective_policy(defined, None) is Policy.ON_APPROVAL
    assert effective_policy(defined, Policy.NEVER) is Policy.NEVER
    for weaker in (Policy.ALWAYS, Policy.WITHIN_TOLERANCE):
        with pytest.raises(DefinitionError, match="weaker than the definition's `on_approval`"):
            effective_policy(defined, weaker)
    assert effective_policy(Publish(policy=Policy.ON_APPROVAL, may_override=True), Policy.ALWAYS) is Policy.ALWAYS
