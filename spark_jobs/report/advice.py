"""The advisor: which setting would have had how many records on time, and what it would have cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEVELS = (0.99, 0.999, 0.9999)


def advise(facts: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The advisor's facts, and of them: `now` (the definition's own row) and `recommended`, the smallest tolerance that
    has a share of at least `on_time` of the records in their windows (None: none that was tried has).

    `refires`: records that would make their window fire again if the tolerance came from allowed lateness, the bound
    being what it is; None where the tolerance is below the bound.
    """
    if not facts or not facts["records"]:
        return None
    rows = facts["tolerances"]
    by_tolerance = {row["tolerance"]: row for row in rows}
    own = by_tolerance[facts["configured"]]
    lateness = facts["lateness"]
    total = facts["records"]

    def told(row: Mapping[str, Any]) -> dict[str, Any]:
        above = row["tolerance"] - facts["configured"]
        return dict(row) | {
            "on_time_share": 1 - row["closed"] / total,
            "allowed_lateness": above if above >= 0 else None,
            "refires": own["closed"] - row["closed"] if above >= 0 else None,
        }

    def least(level: float) -> dict[str, Any]:
        enough = (row for row in rows if row["closed"] <= (1 - level) * total + 1e-9)
        found = next(enough, None)
        return {"on_time": level, "setting": None if found is None else told(found)}

    now = None
    if lateness is not None:
        now = told(by_tolerance[facts["configured"] + lateness])
    return dict(facts) | {
        "tolerances": [told(row) for row in rows],
        "bound_only": told(own),
        "now": now,
        "recommended": [least(level) for level in LEVELS],
    }
