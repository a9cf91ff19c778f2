"""The data that expectations check: the staged windows row by row, and small tables from the plan and the changes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import DAY
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AnyWindows, RegularWindows
from spark_jobs.lakehouse.change import VISIBLE
from spark_jobs.lakehouse.publication import Cause
from spark_jobs.lakehouse.tables import Tables, starts_within
from spark_jobs.quality.columns import COUNTS, INPUT_COLUMNS, RECONCILIATION_COLUMNS, RW_DAY
from spark_jobs.quality.live import table_of
from spark_jobs.replay.columns import DROPPED, HISTORY_GONE, LATE, ON_TIME, PANE, STATE
from spark_jobs.replay.spec import Panes, ReplaySpec
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.staged_run import StagedRun

if TYPE_CHECKING:
    import pandas as pd

DAYS_BEFORE = 14
"""The median is that of at most so many earlier days."""
MIN_DAYS = 3
"""With fewer earlier days there is no median."""
_EPOCH = date(1970, 1, 1)
_SLACK_MS = DAY // 4
"""A day that lacks no more than this at one end counts as whole: the last event is rarely at 23:59."""

_STATES = ("closed", "open", "all_late", "not_emitted", HISTORY_GONE)
_STATES_WITHOUT_FIRING = ("open", "not_emitted")
"""States of complete sessions that are not ones that have fired."""


def input_frame(plan: Plan) -> pd.DataFrame:
    """`INPUT_COLUMNS`, one row for each partition; one row with nulls where the history has no partition."""
    firsts = [p.first_arrival for p in plan.partitions if p.first_arrival is not None]
    lasts = [p.last_arrival for p in plan.partitions if p.last_arrival is not None]
    run = {
        "run_records": plan.records,
        "run_quarantined": plan.quarantined,
        "run_quarantined_share": _share(plan.quarantined, plan.records),
        "run_missing_event_times": plan.missing_event_times,
        "run_missing_share": _share(plan.missing_event_times, plan.records),
        "run_first_event_ms": plan.event_times.start,
        "run_last_event_ms": plan.event_times.end - 1,
        "run_ahead_ms": plan.event_times.end - 1 - max(lasts) if lasts else None,
        "run_behind_ms": min(firsts) - plan.event_times.start if firsts else None,
    }
    counts = plan.reading.counts
    rows: list[dict[str, Any]] = []
    for p in plan.partitions:
        width = p.end_offset - p.first_offset
        gaps = width - p.records
        rows.append(
            {
                "partition": p.partition,
                "records": p.records,
                "history_records": counts.get(p.partition, 0),
                "first_offset": p.first_offset,
                "end_offset": p.end_offset,
                "offset_gaps": gaps,
                "offset_gap_share": _share(gaps, width),
                "first_arrival_ms": p.first_arrival,
                "last_arrival_ms": p.last_arrival,
                **run,
            }
        )
    return table_of(rows or [run], INPUT_COLUMNS)


def windows_frame(evidence: StagedRun) -> DataFrame:
    """The staged windows with `WINDOW_EXTRAS`, except those that the run's mode or kind of window cannot have.

    Of windows that keep their values (`history_gone`) the extras about range, grid and records are null: they are those
    of an earlier run, perhaps of another range and definition.
    """
    staged, spec = evidence.staged, evidence.spec
    start, end = F.unix_millis("window_start"), F.unix_millis("window_end")
    extras = {"rw_length_ms": end - start, "rw_start_ms": start, **_grid_extras(spec.windows, start, end)}
    if {*COUNTS, PANE, STATE} <= set(staged.columns):
        extras["rw_records"] = _records_of_window(spec)
        extras = {name: F.when(F.col(STATE) != HISTORY_GONE, column) for name, column in extras.items()}
        extras["rw_contradiction"] = _contradiction(spec)
    extras[RW_DAY] = F.date_from_unix_date(F.floor(start / DAY).cast("int"))
    return staged.select("*", *(column.alias(name) for name, column in extras.items()))


def _records_of_window(spec: ReplaySpec) -> Column:
    """The window's records, BIGINT; null for a session that need not have one.

    The row of a complete session that the live job has not emitted as such (`open`, `not_emitted`) counts the records
    that were dropped, if any. All others belong to the sessions that were emitted in its place, or will be.
    """
    records = F.col(ON_TIME) + F.col(LATE) + F.col(DROPPED)
    if not spec.has_sessions:
        return records
    return F.when(~F.col(STATE).isin(*_STATES_WITHOUT_FIRING), records)


def _grid_extras(windows: AnyWindows, start: Column, end: Column) -> dict[str, Column]:
    """How far length and start are from the definition's, in ms; empty for sessions and calendar days."""
    if not isinstance(windows, RegularWindows):
        return {}
    length = end - start
    off = length - F.lit(windows.size)
    if windows.fixed_length is None:
        inside = (length > 0) & (length <= F.lit(windows.size))
        off = F.when(inside, F.pmod(length, F.lit(windows.end_step))).otherwise(off)
    off_grid = F.pmod(start - F.lit(windows.offset), F.lit(windows.start_step))
    return {"rw_length_off_ms": off, "rw_off_grid_ms": off_grid}


def _contradiction(spec: ReplaySpec) -> Column:
    """The first rule of docs/tables.md that the row breaks, in words; null where it breaks none."""
    on_time, late, dropped = (F.col(c) for c in COUNTS)
    pane, state = F.col(PANE), F.col(STATE)
    in_window = on_time + late
    closed = state == "closed"
    rules = [
        (on_time.isNull() | late.isNull() | dropped.isNull() | state.isNull(), "a count or the state is null"),
        (~state.isin(*_STATES), "there is no such state"),
        (closed & pane.isNull(), "closed, but without a pane"),
        (~closed & (state != HISTORY_GONE) & pane.isNotNull(), "a pane, but not closed"),
        (closed & (in_window == 0), "closed, but without a record in it"),
        ((state == "all_late") & (in_window != 0), "all late, but records in it"),
        ((state == "all_late") & (dropped == 0), "all late, but none was dropped"),
    ]
    if spec.has_sessions:
        not_fired = state.isin(*_STATES_WITHOUT_FIRING)
        rules.append((not_fired & (in_window != 0), "a session that did not fire, but records in it"))
    else:
        rules.append((state == "not_emitted", "not emitted, but only sessions can be"))
        rules.append(((state == "open") & (on_time == 0), "open, but without a record on time"))
        rules.append(((state == "open") & (late != 0), "open, but late records in it"))
        if not spec.allowed_lateness:
            rules.append((late != 0, "late records, but none are allowed"))
        last = F.when(on_time > 0, late).otherwise(late - 1)
        wrong = (pane != last) if spec.panes is Panes.LAST else ((pane < 0) | (pane > last))
        rules.append((closed & wrong, "the pane is not what the counts give"))
    found = F.lit(None).cast("string")
    for is_broken, rule in reversed(rules):
        found = F.when(is_broken, rule).otherwise(found)
    return found


def reconciliation_frame(evidence: StagedRun) -> pd.DataFrame:
    """`RECONCILIATION_COLUMNS`, one row for each UTC day; one row with nulls where nothing is staged or changes."""
    days = _by_day(evidence)
    total = {name: sum(day[name] for day in days.values()) for name in _SUMS}
    changed = total["updated"] + total["retracted"]
    run = {
        "run_windows": total["windows"],
        "run_before": total["before"],
        "run_changed_share": _share(changed, total["before"]),
        "run_retracted_share": _share(total["retracted"], total["before"]),
        "run_unexplained_share": _share(total["unexplained"], total["before"]),
        "run_late_share": _share(total["late"], total["records"]),
        "run_dropped_share": _share(total["dropped"], total["records"]),
        **_not_staged(evidence, days),
    }
    after = {day: sums["published_records"] - sums["before_records"] + sums["records"] for day, sums in days.items()}
    whole = {day: _is_whole(day, sums, evidence.plan) for day, sums in days.items()}
    rows: list[dict[str, Any]] = []
    for day, sums in sorted(days.items()):
        if not any(sums[name] for name in ("windows", "before", "inserted", "retracted")):
            continue  # an earlier day, needed for the median only
        counts = ("windows", "records", "inserted", "updated", "retracted", "unexplained", "before")
        ratio = _ratio(day, after, whole) if whole[day] else None
        rows.append(
            {
                "day": day,
                **{name: sums[name] for name in counts},
                "changed_share": _share(sums["updated"] + sums["retracted"], sums["before"]),
                "records_after": after[day],
                "is_whole_day": whole[day],
                "volume_ratio": ratio,
                **run,
            }
        )
    return table_of(rows or [run], RECONCILIATION_COLUMNS)


def _not_staged(evidence: StagedRun, days: Mapping[str, Mapping[str, int]]) -> dict[str, int | None]:
    """The figures about what the run did not look at.

    A night adds records to windows: of none that it computes again can there be fewer. Sessions merge, so that the
    records of a day move to the day before.
    """
    facts = evidence.not_staged
    before, below, lost = facts.records_before, facts.records_below, None
    has_counts = set(COUNTS) <= set(evidence.before.columns) & set(evidence.staged.columns)
    if facts.goes_on and not evidence.spec.has_sessions and has_counts:
        lost = sum(max(sums["before_records"] - sums["records"], 0) for sums in days.values())
    more = None if before is None or below is None else below - before
    return {
        "run_records_gone": None if more is None else max(-more, 0),
        "run_records_lost": lost,
        "run_windows_left": facts.windows_left,
        "run_foreign_commits": facts.foreign_commits,
        "run_files_changed": facts.files_changed,
        "run_unaccounted_records": facts.unaccounted_records,
        "run_unaccounted_pairs": facts.unaccounted_pairs,
    }


_SUMS = (
    "windows",
    "records",
    "late",
    "dropped",
    "inserted",
    "updated",
    "retracted",
    "unexplained",
    "before",
    "before_records",
    "published_records",
)


def _by_day(evidence: StagedRun) -> dict[str, dict[str, int]]:
    """Sums by UTC day of the windows' start, in one aggregation of what is staged, published and changed."""
    one = F.lit(1)
    staged = {"windows": one, "records": _all_records(), "late": F.col(LATE), "dropped": F.col(DROPPED)}
    if evidence.before.isEmpty():
        # Nothing is published: all windows are new, and no join is needed to find that out.
        parts = [_sums(evidence.staged, evidence, staged, {"inserted": one})]
    else:
        change, cause = F.col("rw_change"), F.coalesce(F.col("cause"), F.lit(Cause.SOURCE_REPAIR.value))
        changes = {kind.value: change == kind.value for kind in VISIBLE}
        changes["unexplained"] = changes["updated"] & (cause == Cause.SOURCE_REPAIR.value)
        parts = [
            _sums(evidence.staged, evidence, staged),
            _sums(evidence.before, evidence, {"before": one, "before_records": _all_records()}),
            _sums(evidence.changes, evidence, {}, {name: is_one.cast("int") for name, is_one in changes.items()}),
        ]
    if (published := _published_near(evidence)) is not None:
        parts.append(_sums(published, evidence, {"published_records": _all_records()}))
    united = reduce(DataFrame.unionAll, parts)
    rows = united.groupBy("day").agg(*(F.sum(name).alias(name) for name in _SUMS)).collect()
    return {
        (_EPOCH + timedelta(days=row["day"])).isoformat(): {name: int(row[name] or 0) for name in _SUMS}
        for row in rows
        if row["day"] is not None
    }


def _all_records() -> Column:
    return reduce(Column.__add__, (F.coalesce(F.col(name), F.lit(0)) for name in COUNTS))


def _sums(
    frame: DataFrame,
    evidence: StagedRun,
    by_window: Mapping[str, Column],
    by_row: Mapping[str, Column] = MappingProxyType({}),
) -> DataFrame:
    """One row for each day: `day` (INT, days since 1970) and `_SUMS` (BIGINT).

    `by_window` is added up once for each window, of which `Panes.ALL` gives several rows; `by_row` for each row.
    """
    if not set(COUNTS) <= set(frame.columns):
        by_window = {name: column for name, column in by_window.items() if name in ("windows", "before")}
    if PANE in frame.columns and evidence.spec.panes is Panes.ALL:
        first = F.col(PANE).isNull() | (F.col(PANE) == 0)
        by_window = {name: F.when(first, column) for name, column in by_window.items()}
    columns = {**by_window, **by_row}
    day = F.floor(F.unix_millis("window_start") / DAY).cast("int").alias("day")
    return frame.groupBy(day).agg(*(F.sum(columns.get(n, F.lit(0))).cast("long").alias(n) for n in _SUMS))


def _published_near(evidence: StagedRun) -> DataFrame | None:
    """The published windows of the range's days and of `DAYS_BEFORE` days before; None before the first publication."""
    table, plan = Tables.of(evidence.pipeline).windows, evidence.plan
    if not evidence.spark.catalog.tableExists(table):
        return None
    first = max(plan.span.start, plan.event_times.start) // DAY - DAYS_BEFORE
    last = min(plan.span.end, plan.event_times.end) // DAY + 1
    return evidence.spark.table(table).where(starts_within(TimeRange(first * DAY, last * DAY)))


def _is_whole(day: str, sums: Mapping[str, int], plan: Plan) -> bool:
    """Whether the records of the whole day are known, from this run and what is published."""
    start = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()) * 1000
    end = start + DAY

    def reaches_over(low: int, high: int) -> bool:
        return start >= low - _SLACK_MS and end <= high + _SLACK_MS

    other_runs_fill_it = sums["published_records"] > sums["before_records"]
    in_range = reaches_over(plan.span.start, plan.span.end) or other_runs_fill_it
    return in_range and reaches_over(plan.event_times.start, plan.event_times.end)


def _ratio(day: str, records: Mapping[str, int], whole: Mapping[str, bool]) -> float | None:
    """A day's records divided by the median of the whole days before it; None with fewer than `MIN_DAYS` of them."""
    here = date.fromisoformat(day)
    earlier = [(here - timedelta(days=back)).isoformat() for back in range(1, DAYS_BEFORE + 1)]
    values = [records[d] for d in earlier if whole.get(d)]
    if len(values) < MIN_DAYS or not (median := statistics.median(values)):
        return None
    return records[day] / median


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
