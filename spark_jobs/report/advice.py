"""The advisor: how many records each setting would have had on time, and at what cost. A pure function."""

from __future__ import annotations

from spark_jobs.report.counted import Advisor, Recommended, Setting

LEVELS = (0.99, 0.999, 0.9999)


def advise(facts: Advisor | None) -> Advisor | None:
    """The advisor of the report from its facts; None where there are no facts.

    A tolerance is the sum of bound and allowed lateness (ms). Adds `now` (the definition's own setting; None: unlimited
    lateness) and `recommended`: for each level in `LEVELS` the smallest tolerance with at least that share of the
    records on time (None: no tolerance that was tried). `refires` is the number of records that would make their window
    fire again if the bound stayed and the rest were allowed lateness; None where the tolerance is below the bound.
    """
    if facts is None or not facts.records:
        return None
    total, configured = facts.records, facts.configured
    own = next(row for row in facts.tolerances if row.tolerance == configured)

    def with_costs(row: Setting) -> Setting:
        above = row.tolerance - configured
        costs = {"allowed_lateness": above, "refires": own.closed - row.closed} if above >= 0 else {}
        return row.model_copy(update={"on_time_share": 1 - row.closed / total, **costs})

    rows = tuple(map(with_costs, facts.tolerances))
    now = None if facts.lateness is None else configured + facts.lateness

    def smallest(level: float) -> Recommended:
        enough = (row for row in rows if row.closed <= (1 - level) * total + 1e-9)
        return Recommended(on_time=level, setting=next(enough, None))

    added = {
        "tolerances": rows,
        "bound_only": with_costs(own),
        "now": None if now is None else next(row for row in rows if row.tolerance == now),
        "recommended": tuple(map(smallest, LEVELS)),
    }
    return facts.model_copy(update=added)
