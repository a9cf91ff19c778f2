"""The advisor: how many records each setting would have had on time, and at what cost. A pure function."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEVELS = (0.99, 0.999, 0.9999)


def advise(facts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The advisor of the report from its facts; None where there are no facts.

    A tolerance is the sum of bound and allowed lateness (ms). Adds `now` (the definition's own setting; None: unlimited
    lateness) and `recommended`: for each level in `LEVELS` the smallest tolerance with at least that share of the
    records on time (None: no tolerance that was tried). `refires` is the number of records that would make their window
    fire again if the bound stayed and the rest were allowed lateness; None where the tolerance is below the bound.
    """
    if not facts or not facts["records"]:
        return None
    rows = facts["tolerances"]
    by_tolerance = {row["tolerance"]: row for row in rows}
    own = by_tolerance[facts["configured"]]
    lateness = facts["lateness"]
    total = facts["records"]

    def with_costs(row: Mapping[str, Any]) -> dict[str, Any]:
        above = row["tolerance"] - facts["configured"]
        return dict(row) | {
            "on_time_share": 1 - row["closed"] / total,
            "allowed_lateness": above if above >= 0 else None,
            "refires": own["closed"] - row["closed"] if above >= 0 else None,
        }

    def smallest(level: float) -> dict[str, Any]:
        enough = (row for row in rows if row["closed"] <= (1 - level) * total + 1e-9)
        found = next(enough, None)
        return {"on_time": level, "setting": None if found is None else with_costs(found)}

    now = None
    if lateness is not None:
        now = with_costs(by_tolerance[facts["configured"] + lateness])
    return dict(facts) | {
        "tolerances": [with_costs(row) for row in rows],
        "bound_only": with_costs(own),
        "now": now,
        "recommended": [smallest(level) for level in LEVELS],
    }
