"""The cause of each change: why a window that is published now differs from the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.ledger import Ledger, PublishedRanges
from spark_jobs.lakehouse.publication import Cause
from spark_jobs.lakehouse.tables import AS_OF, starts_within
from spark_jobs.runs.planning.plan_document import Plan


def published_before(ledger: Ledger, plan: Plan, run_id: str, erased_at: Sequence[datetime] = ()) -> PublishedRanges:
    """The ranges that were published before the run, each with the cause of what `plan` changes there.

    `erased_at`: when people were forgotten.
    """
    return ledger.published_ranges(plan.span, cause_of_run(plan, erased_at), run_id)


def cause_of_run(plan: Plan, erased_at: Sequence[datetime] = ()) -> Column:
    """The cause of what `plan` changes of the windows of a published run, from the run's columns in the ledger.

    Another definition: `logic_change`. The same one and more records: `late_arrivals`. The same one and the same
    records: `source_repair`; `erasure` where somebody was forgotten since that run ended. The same one and other
    records: `backfill`.
    """
    partitions, ends = (F.array(*map(F.lit, values)) for values in (plan.as_of.keys(), plan.as_of.values()))
    now = F.map_from_arrays(partitions.cast("array<int>"), ends.cast("array<bigint>"))
    nothing = F.map_from_arrays(F.array().cast("array<int>"), F.array().cast("array<bigint>"))
    seen = F.coalesce(F.col("as_of"), nothing).cast(AS_OF)
    entries = F.map_entries(seen)
    is_same = (F.size(seen) == len(plan.as_of)) & F.forall(
        entries, lambda end: F.try_element_at(now, end["key"]).eqNullSafe(end["value"])
    )
    has_more = F.forall(
        entries, lambda end: end["value"] <= F.coalesce(F.try_element_at(now, end["key"]), F.lit(-1).cast("long"))
    )
    if not plan.as_of:  # a history without the order of the log: only the number of its records can be compared
        before = F.col("records_read")
        is_same, has_more = before == F.lit(plan.records), before < F.lit(plan.records)
    is_erased = F.col("finished_at") < F.lit(max(erased_at)) if erased_at else F.lit(False)
    return (
        F.when(~F.col("definition_hash").eqNullSafe(plan.definition_hash), Cause.LOGIC_CHANGE.value)
        .when(is_same & is_erased, Cause.ERASURE.value)
        .when(is_same, Cause.SOURCE_REPAIR.value)
        .when(has_more, Cause.LATE_ARRIVALS.value)
        .otherwise(Cause.BACKFILL.value)
    )


def cause_of_change(
    published: Sequence[tuple[TimeRange, str]], plan: Plan, by_run: Callable[[], Mapping[str, Sequence[str]]]
) -> Column:
    """The cause of a window's change, from the columns `rw_start` (its start) and `old_run_id` (null: it is new).

    It comes from the latest published run over the window's start, which has confirmed what was there; of windows that
    no run's range holds, from the run that published them (`old_run_id`); else it is `backfill`. `published`: see
    `published_before`. `by_run()`: the runs of each cause that have published windows of the plan's range.

    The expression has one branch for each stretch of the plan's range with one cause, not one for each run.
    """
    column, covered = None, True
    for span, cause in _causes_by_range(published, plan.span):
        if cause is None:
            covered = False
            continue
        inside = starts_within(span, "rw_start")
        value = F.lit(cause)
        column = F.when(inside, value) if column is None else column.when(inside, value)
    by_range = F.lit(None).cast("string") if column is None else column
    if covered:
        return F.coalesce(by_range, F.lit(Cause.BACKFILL.value))
    return F.coalesce(by_range, _cause_by_run(by_run()), F.lit(Cause.BACKFILL.value))


def _causes_by_range(
    published: Sequence[tuple[TimeRange, str]], whole: TimeRange
) -> list[tuple[TimeRange, str | None]]:
    """The range `whole` in stretches with one cause each; None where no run has published."""
    found: list[tuple[TimeRange, str | None]] = []
    open_ranges = [whole]
    for span, cause in published:  # the latest first: it decides
        if not open_ranges:
            break
        rest = []
        for gap in open_ranges:
            low, high = max(gap.start, span.start), min(gap.end, span.end)
            if low >= high:
                rest.append(gap)
                continue
            found.append((TimeRange(low, high), cause))
            rest += [TimeRange(a, b) for a, b in ((gap.start, low), (high, gap.end)) if a < b]
        open_ranges = rest
    found += [(gap, None) for gap in open_ranges]
    found.sort(key=lambda one: one[0].start)

    joined: list[tuple[TimeRange, str | None]] = []
    for span, cause in found:
        if joined and joined[-1][1] == cause and joined[-1][0].end == span.start:
            joined[-1] = (TimeRange(joined[-1][0].start, span.end), cause)
        else:
            joined.append((span, cause))
    return joined


def _cause_by_run(runs: Mapping[str, Sequence[str]]) -> Column:
    """The cause by `old_run_id`. The run ids of a cause are one text, so that the expression stays small."""
    column = F.lit(None).cast("string")
    for cause, run_ids in runs.items():
        is_one = F.array_contains(F.split(F.lit("\n".join(run_ids)), "\n"), F.col("old_run_id"))
        column = F.coalesce(F.when(is_one, F.lit(cause)), column)
    return column
