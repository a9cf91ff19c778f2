"""The night's decision: one row for each thing that can stand in its way."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from spark_jobs.identities import Evidence, Sign
from spark_jobs.runs.night.decision import Facts, GoOn, NightDecision, Nothing, ReadAll, decide


@dataclass
class Known(Facts):
    """Facts of a night in whose way nothing stands."""

    rival: str | None = None
    no_start: str = ""
    whole_only: str = ""
    evidence: Evidence = field(default_factory=lambda: Evidence(Sign.SAME))
    behind: str = ""
    has_new_partition: bool = False
    has_new: bool = True
    has_live_news: bool = False
    ahead: str = ""


ROWS: list[tuple[Known, NightDecision]] = [
    (Known(), GoOn(lacks=False)),
    (Known(evidence=Evidence(Sign.GONE, "files are gone")), GoOn(lacks=True)),
    (Known(has_new=False), Nothing()),
    (Known(has_new=False, evidence=Evidence(Sign.GONE, "gone")), Nothing()),
    (Known(has_new=False, has_live_news=True), GoOn(lacks=False)),
    (Known(evidence=Evidence(Sign.UNPROVEN, "rows were changed")), ReadAll("rows were changed")),
    (Known(has_new=False, evidence=Evidence(Sign.UNPROVEN, "rows were changed")), ReadAll("rows were changed")),
    (Known(behind="an arrival is ahead of one behind it"), ReadAll("an arrival is ahead of one behind it")),
    (Known(has_new_partition=True), ReadAll("there is a new partition")),
    (Known(ahead="the state is ahead"), ReadAll("the state is ahead")),
    (Known(ahead="the state is ahead", has_new=False), Nothing()),
    (Known(whole_only="sessions are compared as a whole"), ReadAll("sessions are compared as a whole")),
    (Known(no_start="nothing has been published yet"), ReadAll("nothing has been published yet")),
    (Known(no_start="no run", whole_only="sessions"), ReadAll("no run")),
    (Known(rival="r1", no_start="no run"), ReadAll("run r1 has read more than this one", "r1")),
]


@pytest.mark.parametrize(("facts", "decision"), ROWS)
def test_a_night_does_what_the_first_row_that_fits_says(facts: Known, decision: NightDecision) -> None:
    assert decide(facts) == decision


class NotAsked(Facts):
    """Facts of which looking up any but the first fails."""

    rival = None
    no_start = "nothing has been published yet"

    def __getattribute__(self, name: str) -> object:
        assert name in ("rival", "no_start", "__class__"), name
        return object.__getattribute__(self, name)

    whole_only = evidence = behind = has_new_partition = has_new = has_live_news = ahead = None


def test_what_does_not_decide_is_not_looked_up() -> None:
    assert decide(NotAsked()) == ReadAll("nothing has been published yet")
