from __future__ import annotations

import pytest

from spark_jobs.sources import fidelity
from tests.sources.conftest import MakePipeline, position


@pytest.mark.parametrize(
    ("changes", "level", "reason"),
    [
        ({}, "log_order", ""),
        ({"sequence": "n"}, "log_order", ""),
        ({"going_back": "running_maximum"}, "log_order", "counts as the latest arrival before it"),
        ({"arrival_kind": "producer_time"}, "approximate", "the producer's time"),
        ({"arrival": None}, "complete_only", "the history has no arrival (history.position.arrival)"),
        ({"offset": None}, "complete_only", "the history has no offset (history.position.offset)"),
        ({"partition": None, "offset": None}, "complete_only", "the history has no partition"),
    ],
)
def test_fidelity_is_as_good_as_the_position(pipeline: MakePipeline, changes: dict, level: str, reason: str) -> None:
    found = fidelity(pipeline(history={"position": position(**changes)}))
    assert found.level == level
    assert bool(found.reasons) == bool(reason) and reason in "; ".join(found.reasons)
