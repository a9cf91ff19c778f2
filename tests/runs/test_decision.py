from __future__ import annotations

import pytest

from spark_jobs.definition.output import Policy, Publish
from spark_jobs.errors import DefinitionError
from spark_jobs.runs.life.documents import Changes, ExpectationResult, Gate
from spark_jobs.runs.life.permission import Action, decide, effective_policy
from spark_jobs.runs.life.restated import Move, Restated


def changes(
    updated: int = 0, retracted: int = 0, inserted: int = 0, bookkeeping: int = 0, before: int = 100
) -> Changes:
    counts = {"updated": updated, "retracted": retracted, "inserted": inserted, "bookkeeping": bookkeeping}
    restated = Restated(windows=updated + retracted, had=before, days=1, first_day="2013-05-05")
    return Changes(counts=counts, windows_recomputed=updated + retracted, restated=restated)


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
    decision = decide(policy, Publish(tolerance="1 %").tolerance, seen, gate(("critical", True), ("warning", False)))
    assert decision.action is action
    assert decision.why


@pytest.mark.parametrize("policy", list(Policy))
def test_a_closed_gate_stops_every_policy(policy: Policy) -> None:
    decision = decide(
        policy,
        Publish(tolerance="100 %").tolerance,
        changes(),
        gate(("critical", False), ("critical", False), ("info", True)),
    )
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


DAY = 86_400_000
NIGHT = Restated(
    windows=5,
    days=1,
    first_day="2026-05-05",
    last_day="2026-05-05",
    had=1950,
    back=2 * DAY,
    keys=1,
    some_keys=({"city": "Graz"},),
    moves=(
        Move(column="revenue", aggregate="revenue", of=500_000.0, net=0.0, apart=0.0),
        Move(column="revenue__complete", aggregate="revenue", windows=5, net=50.0, apart=60.0, of=500_000.0),
        Move(column="longest__complete", aggregate="longest", windows=1, apart=2.0, of=9000.0),
    ),
)


@pytest.mark.parametrize(
    ("tolerance", "asked"),
    [
        ("1 %", ""),
        ("0.2 %", "0.26 % of the windows, and 0.2 % may change"),
        ({"windows": 5}, ""),
        ({"windows": 4}, "5 windows, and 4 may change"),
        ({"reach": "2 d"}, ""),
        ({"reach": "1 d"}, "2 days back, and 1 day may change"),
        ({"change": {"revenue": "0.012 %"}}, ""),
        ({"change": {"revenue": "0.01 %"}}, "`revenue` moves by 0.012 %, and 0.01 % is allowed"),
        ({"change": {"revenue": 60}}, ""),
        ({"change": {"revenue": 59.9}}, "`revenue` moves by 60, and 59.9 is allowed"),
        ({"change": {"longest": 1}}, "`longest` moves by 2, and 1 is allowed"),
        (
            {"share": "1 %", "windows": 4, "reach": "1 d"},
            "5 windows, and 4 may change; 2 days back, and 1 day may change",
        ),
    ],
)
def test_a_night_is_measured_by_what_readers_had(tolerance: object, asked: str) -> None:
    publish = Publish.model_validate({"policy": "within_tolerance", "tolerance": tolerance})
    seen = Changes(counts={"updated": 5, "was_open": 40, "inserted": 12}, windows_recomputed=45, restated=NIGHT)
    decision = decide(Policy.WITHIN_TOLERANCE, publish.tolerance, seen, None)
    assert decision.action is (Action.ASK if asked else Action.PUBLISH)
    assert "5 of the 1,950 windows that readers had on 5 May 2026 (0.26 %; Graz) change" in decision.why
    assert asked in decision.why


def test_the_sentence_says_direction_and_amount_by_aggregate() -> None:
    assert NIGHT.in_words() == (
        "Faithful values: none changes; complete values: `revenue` +50 (+0.01 %), `longest` in 1 window, in 5 of the "
        "1,950 windows that readers had on 5 May 2026 (0.26 %; Graz)."
    )
