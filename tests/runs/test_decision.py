from __future__ import annotations

import pytest

from spark_jobs.definition.policy import Policy
from spark_jobs.runs.decision import Action, decide


def changes(updated: int = 0, retracted: int = 0, inserted: int = 0, before: int = 100) -> dict:
    counts = {"updated": updated, "retracted": retracted, "inserted": inserted}
    return {"counts": counts, "windows_before": before}


def gate(*results: tuple[str, bool]) -> dict:
    found = [{"severity": severity, "success": success} for severity, success in results]
    return {"blocks": ("critical", False) in results, "results": found}


@pytest.mark.parametrize(
    ("policy", "seen", "action"),
    [
        (Policy.ALWAYS, changes(updated=100), Action.PUBLISH),
        (Policy.NEVER, changes(), Action.STOP),
        (Policy.ON_APPROVAL, changes(), Action.ASK),
        (Policy.WITHIN_TOLERANCE, changes(updated=1), Action.PUBLISH),  # exactly at the tolerance
        (Policy.WITHIN_TOLERANCE, changes(updated=1, retracted=1), Action.ASK),
        (Policy.WITHIN_TOLERANCE, changes(inserted=1000), Action.PUBLISH),  # new windows restate nothing
        (Policy.WITHIN_TOLERANCE, changes(inserted=10, before=0), Action.PUBLISH),
    ],
)
def test_the_policy_decides_by_what_is_restated(policy: Policy, seen: dict, action: Action) -> None:
    decision = decide(policy, 0.01, seen, gate(("critical", True), ("warning", False)))
    assert decision.action is action
    assert decision.why


@pytest.mark.parametrize("policy", list(Policy))
def test_a_closed_gate_stops_every_policy(policy: Policy) -> None:
    decision = decide(policy, 1.0, changes(), gate(("critical", False), ("critical", False), ("info", True)))
    assert decision.action is Action.STOP
    assert "2 critical expectations failed" in decision.why
