"""Replay of windows that do not merge: tumbling, sliding, cumulative and calendar days, set by set.

For a record at position r and a window with last timestamp x and allowed lateness L:

    on time        r <= C(x)             a record is processed BEFORE the watermark that it causes
    late, allowed  C(x) < r <= C(x + L)  fires the window again, with all its contents
    dropped        C(x + L) < r

so one look-up of two positions by window end decides, and one aggregation gives faithful and complete values
together. The records are never sorted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.aggregates import conditional, from_halves, running
from spark_jobs.replay.assign import END, START, assign_windows, in_span, in_window_time, latest_end, latest_start
from spark_jobs.replay.band import UNDECIDED, Band
from spark_jobs.replay.columns import (
    ARRIVAL,
    DROPPED,
    EVENT_TIME,
    FIRED,
    LATE,
    NEVER,
    ON_TIME,
    PANE,
    STATE,
    PositionColumns,
    admitted,
    identity_columns,
    is_within,
    position_names,
    record_position,
)
from spark_jobs.replay.grid import EndGrid, divided, end_grid
from spark_jobs.replay.rule_book import Emission
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec, complete_name
from spark_jobs.replay.timeline import CloseArrays, Timeline
from spark_jobs.spark.joins import matching, others, same

_FITS = "rw_fits"
_MISSES = "rw_fits IS NOT TRUE"
_IN_TIME = "rw_in_time"
INDEX = "rw_index"
_UNDECIDED = "rw_undecided"
_LAST_BATCH = "rw_last_batch"

_SPREAD = 0x9E3779B1
"""Spark's fast aggregation map hashes an integer to itself and gives up after two probes: consecutive numbers, beside
a consecutive key, would fill the same few buckets, and nearly every record would take the slow map. Odd: no two numbers
share their lower bits."""


@dataclass(frozen=True)
class CloseLookup:
    """The close positions of every window end of one chunk: C(x), and C(x + L)."""

    at_end: CloseArrays
    at_cleanup: CloseArrays


def close_lookup(timeline: Timeline, spec: ReplaySpec, span: TimeRange) -> CloseLookup:
    """Look-ups for all windows that a record of the chunk `span` can be in."""
    grid, first, count = _lookup_range(spec, span)
    at_end = spec.rules.closes(timeline.close_arrays(grid, first, count), spec, timeline)
    if spec.allowed_lateness == 0:
        return CloseLookup(at_end, at_end)
    return CloseLookup(at_end, timeline.close_arrays(grid, first, count, shift=spec.allowed_lateness))


def complete_windows(records: DataFrame, spec: ReplaySpec, span: TimeRange) -> DataFrame:
    """As `replay_windows` for complete values alone, which need no timeline. Columns: keys, bounds, aggregates."""
    values = [F.expr(text).alias(complete_name(name)) for name, text in spec.aggregates.items()]
    grouped, _, bounds = _group_by_window(_in_range(records, spec, span), spec, span, [*values, counted_alone()])
    return grouped.select(*spec.keys, *bounds, *(complete_name(name) for name in spec.aggregates), ON_TIME, no_state())


def replay_windows(
    records: DataFrame,
    spec: ReplaySpec,
    timeline: Timeline,
    span: TimeRange,
    band: Band | None = None,
    only: DataFrame | None = None,
) -> DataFrame:
    """One row for each key and window with a start in `span` (or for each pane of it, `Panes.ALL`).

    Columns: the keys; `window_start`, `window_end` (BIGINT epoch ms); per aggregate the faithful value
    (null where nothing fired) and `__complete`; `records_on_time`, `records_late` (late but allowed),
    `records_dropped` (pairs of record and window); `pane` (0 = first firing, null = none); `state`:
    `closed`, `open` (frozen before its close) or `all_late` (every record was dropped); and the position
    at which the pane fired, `fired_arrival/_major/_minor`, `NEVER` for the end of input. With a `band` also
    `records_undecided`: how many of the window's records are undecided (see `Band`).
    """
    chosen = _in_range(records, spec, span)
    if only is not None:
        bounded = _with_bounds(chosen, spec, span)
        chosen = matching(bounded, only, (*spec.keys, START, END)).select(*chosen.columns)
    lookup = close_lookup(timeline, spec, span)
    flushes = spec.flush and timeline.flushes
    classified = _classify(chosen, spec, lookup, band)
    windows = _last_panes(classified, spec, span, lookup, flushes)
    if spec.panes is Panes.LAST:
        return windows
    if spec.rules.emission is Emission.EACH_BATCH:
        return _with_a_pane_for_each_batch(_with_bounds(classified, spec, span), windows, spec)
    return _with_all_panes(_with_bounds(classified, spec, span), windows, spec, lookup, flushes)


def _in_range(records: DataFrame, spec: ReplaySpec, span: TimeRange) -> DataFrame:
    """One row for each (record, window in `span`), with `rw_index`: the number of the window's end in the look-up.

    Tumbling windows: a range of starts is a range of event times, which Parquet prunes, and one division by
    record gives its window.
    """
    records = admitted(records, spec.after_watermark)
    grid, first, _ = _lookup_range(spec, span)
    windows = spec.aligned_windows
    if isinstance(windows, TumblingWindows):
        size, offset = windows.size, windows.offset
        low, high = (time + (offset - time) % size for time in (span.start, span.end))
        skipped = grid.first_index_at_or_after(low + size) - first
        ts = F.col(EVENT_TIME)
        inside = records.where((ts >= F.lit(low)) & (ts < F.lit(high)))
        return inside.withColumn(INDEX, divided(ts - F.lit(low - skipped * size), size).cast("int"))
    assigned = assign_windows(in_span(records, windows, span), windows)
    chosen = assigned.where(is_within(F.col(START), span))
    return chosen.withColumn(INDEX, (grid.index(F.col(END)) - F.lit(first)).cast("int"))


def windows_of_records(records: DataFrame, spec: ReplaySpec) -> DataFrame:
    """The distinct windows that these records belong to: keys, `window_start`, `window_end` (epoch ms)."""
    records = in_window_time(admitted(records, spec.after_watermark), spec.windows)
    placed = assign_windows(records.where(F.col(EVENT_TIME).isNotNull()), spec.aligned_windows)
    return placed.select(*spec.keys, START, END).distinct()


def _lookup_range(spec: ReplaySpec, span: TimeRange) -> tuple[EndGrid, int, int]:
    """The grid, and number and count of the ends of all windows that a record of the chunk can be in."""
    windows = spec.aligned_windows
    grid = end_grid(windows)
    first = grid.first_index_at_or_after(span.start)
    return grid, first, grid.first_index_at_or_after(span.end + 2 * windows.longest) - first + 1


def _index_gives_bounds(spec: ReplaySpec) -> bool:
    return spec.aligned_windows.fixed_length is not None


def _with_bounds(placed: DataFrame, spec: ReplaySpec, span: TimeRange) -> DataFrame:
    """Add `window_start` and `window_end` where the rows have the window's number alone."""
    if not _index_gives_bounds(spec):
        return placed
    return placed.withColumns(_bounds(spec, span, F.col(INDEX).cast("long")))


def _bounds(spec: ReplaySpec, span: TimeRange, index: Column) -> dict[str, Column]:
    """Start and end of the window with this number (BIGINT), for windows of one length."""
    grid, first, _ = _lookup_range(spec, span)
    windows = spec.aligned_windows
    end, step = int(grid.ends(first, 1)[0]), windows.end_step
    return {START: F.lit(end - windows.longest) + index * F.lit(step), END: F.lit(end) + index * F.lit(step)}


def _group_by_window(
    placed: DataFrame, spec: ReplaySpec, span: TimeRange, values: Sequence[Column]
) -> tuple[DataFrame, Column, list[Column]]:
    """One aggregation by key and window; where the window's number gives its bounds, the number alone is the key.

    Returns the aggregation and, as columns of it, the window's number in the look-up, and its start and end.
    """
    if not _index_gives_bounds(spec):
        grouped = placed.groupBy(*spec.keys, START, END, INDEX).agg(*values)
        return grouped, F.col(INDEX), [F.col(START), F.col(END)]
    spread = (F.col(INDEX).cast("long") * F.lit(_SPREAD)).alias("rw_spread")
    grouped = placed.groupBy(*spec.keys, spread).agg(*values)
    index = divided(F.col("rw_spread"), _SPREAD)
    bounds = [bound.alias(name) for name, bound in _bounds(spec, span, index).items()]
    return grouped, index.cast("int"), bounds


def _classify(placed: DataFrame, spec: ReplaySpec, lookup: CloseLookup, band: Band | None) -> DataFrame:
    """Add `rw_fits` (not dropped), with a lateness `rw_in_time` (not late at all), with a band `rw_undecided`."""
    if band is not None:
        undecided = band.undecided(lookup.at_cleanup, F.col(INDEX), placed)
        own = spec.rules.is_undecided(lookup.at_cleanup, F.col(INDEX), placed)
        placed = placed.withColumn(_UNDECIDED, undecided if own is None else undecided | own)
    index, comes_before = F.col(INDEX), spec.rules.comes_before
    fits = comes_before(lookup.at_cleanup, index, placed)
    if spec.allowed_lateness == 0:
        return placed.withColumn(_FITS, fits)
    return placed.withColumn(_FITS, fits).withColumn(_IN_TIME, comes_before(lookup.at_end, index, placed))


def counted_alone() -> Column:
    """The records of a window whose complete value alone is computed: none of them is late."""
    return F.expr("count(*)").alias(ON_TIME)


def no_state() -> Column:
    """The state of such a window: only that it keeps an earlier value is ever said of it."""
    return F.lit(None).cast("string").alias(STATE)


def _last_panes(
    classified: DataFrame, spec: ReplaySpec, span: TimeRange, lookup: CloseLookup, flushes: bool
) -> DataFrame:
    spark = classified.sparkSession
    values = {name: F.expr(conditional(spark, text, _FITS)) for name, text in spec.aggregates.items()}
    halves = _complete_from_halves(classified, spec)
    for name, text in spec.aggregates.items() if spec.mode is Mode.BOTH else ():
        values[complete_name(name)] = F.expr(conditional(spark, text, _MISSES) if name in halves else text)
    in_time = _FITS if spec.allowed_lateness == 0 else _IN_TIME
    values[ON_TIME] = _count(in_time)
    values[DROPPED] = _count(_MISSES)
    if spec.allowed_lateness:
        values[LATE] = _count(f"{_FITS} AND NOT {_IN_TIME}")
    banded = _UNDECIDED in classified.columns
    if banded:
        values[UNDECIDED] = _count(_UNDECIDED)
    if spec.rules.emission is Emission.EACH_BATCH:
        values[_LAST_BATCH] = F.max(F.when(F.col(_FITS), F.col(ARRIVAL)))
    values |= {name: F.max(name) for name in lookup.at_end.reads}
    grouped, index, bounds = _group_by_window(classified, spec, span, [v.alias(name) for name, v in values.items()])
    complete = [
        halves[name].alias(complete_name(name)) if name in halves else F.col(complete_name(name))
        for name in spec.aggregates
        if spec.mode is Mode.BOTH
    ]
    late = F.col(LATE) if spec.allowed_lateness else F.lit(0).cast("long")
    closed = lookup.at_end.at_index(index, grouped)
    each_batch = spec.rules.emission is Emission.EACH_BATCH
    at_once = each_batch or spec.rules.gives_open_windows
    has_closed = F.lit(True) if at_once else (closed.arrival < F.lit(NEVER)) | F.lit(flushes)
    fired = (has_closed & (F.col(ON_TIME) > 0)) | (late > 0)
    if each_batch:
        closed = PositionColumns(F.col(_LAST_BATCH), F.lit(NEVER), F.lit(NEVER))
    by_watermark = F.when(F.col(ON_TIME) > 0, 1).otherwise(0)
    return grouped.select(
        *spec.keys,
        *bounds,
        *(F.when(fired, F.col(name)).alias(name) for name in spec.aggregates),
        *complete,
        ON_TIME,
        late.alias(LATE),
        DROPPED,
        F.when(fired, (by_watermark + late - 1).cast("int")).alias(PANE),
        F.when(fired, "closed").when(F.col(ON_TIME) > 0, "open").otherwise("all_late").alias(STATE),
        *closed.aliased(FIRED),
        *([UNDECIDED] if banded else []),
    )


def _complete_from_halves(classified: DataFrame, spec: ReplaySpec) -> dict[str, Column]:
    """The aggregates whose complete value follows from those of the kept and of the dropped records.

    So each record updates one of two values, not both.
    """
    if spec.mode is not Mode.BOTH:
        return {}
    spark = classified.sparkSession
    formulas = {name: from_halves(spark, text, name, complete_name(name)) for name, text in spec.aggregates.items()}
    kinds = classified.agg(*(F.expr(text).alias(name) for name, text in spec.aggregates.items())).schema
    return {
        name: F.expr(whole).cast(kinds[name].dataType)
        for name, whole in formulas.items()
        if whole is not None and not isinstance(kinds[name].dataType, DoubleType | FloatType)
    }


def _count(condition: str) -> Column:
    """Written like the users' own conditional count(*), so that Spark computes both once."""
    return F.expr(f"count(*) FILTER (WHERE {condition})")


def _with_all_panes(
    classified: DataFrame, windows: DataFrame, spec: ReplaySpec, lookup: CloseLookup, flushes: bool
) -> DataFrame:
    """Every refinement: pane 0 when the watermark closes the window, one more for each late record.

    The contents of a pane are those of the one before and more, so a running aggregate by position holds
    them all; the last on-time record's row is pane 0, each late record's row is its own pane.
    """
    spark = classified.sparkSession
    kept = classified.where(_FITS)
    position = record_position(kept)
    group = ", ".join([*(f"`{key}`" for key in spec.keys), START, END])
    kept = kept.select("*", position.as_struct().alias("rw_position"))
    over = f"PARTITION BY {group} ORDER BY rw_position ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    whole = f"PARTITION BY {group} ORDER BY rw_position ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    in_time = _FITS if spec.allowed_lateness == 0 else _IN_TIME
    ran = kept.select(
        *spec.keys,
        START,
        END,
        INDEX,
        "rw_position",
        F.col(in_time).alias("rw_first"),
        *(F.expr(running(spark, text, over)).alias(name) for name, text in spec.aggregates.items()),
        F.expr(f"sum(CAST({in_time} AS INT)) OVER ({whole})").alias("rw_on_time"),
        F.expr(f"row_number() OVER (PARTITION BY {group} ORDER BY rw_position)").alias("rw_number"),
    )
    closed = lookup.at_end.at_index(F.col(INDEX), ran)
    has_closed = (closed.arrival < F.lit(NEVER)) | F.lit(flushes)
    first = F.col("rw_first") & (F.col("rw_number") == F.col("rw_on_time")) & has_closed
    first_pane = F.when(F.col("rw_on_time") > 0, F.col("rw_on_time") - 1).otherwise(F.lit(0))
    fired = F.when(F.col("rw_first"), closed.as_struct()).otherwise(F.col("rw_position"))
    panes = ran.where(first | ~F.col("rw_first")).select(
        *spec.keys,
        START,
        END,
        *spec.aggregates,
        (F.col("rw_number") - 1 - first_pane).cast("int").alias(PANE),
        fired.alias("rw_fired"),
    )
    return _beside(windows, panes, spec)


def _with_a_pane_for_each_batch(classified: DataFrame, windows: DataFrame, spec: ReplaySpec) -> DataFrame:
    """A pane for each batch that a window took a record in, with all that it held then."""
    spark = classified.sparkSession
    kept = classified.where(_FITS)
    group = ", ".join([*(f"`{key}`" for key in spec.keys), START, END])
    # All records of a batch are peers: each has the aggregate up to the end of its batch.
    over = f"PARTITION BY {group} ORDER BY {ARRIVAL} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    ran = kept.select(
        *spec.keys,
        START,
        END,
        F.col(ARRIVAL).alias("rw_batch_time"),
        *(F.expr(running(spark, text, over)).alias(name) for name, text in spec.aggregates.items()),
        F.expr(f"dense_rank() OVER (PARTITION BY {group} ORDER BY {ARRIVAL})").alias("rw_nth_batch"),
        F.expr(f"row_number() OVER (PARTITION BY {group}, {ARRIVAL} ORDER BY {ARRIVAL})").alias("rw_nth"),
    )
    never = F.lit(NEVER)
    fired = PositionColumns(F.col("rw_batch_time"), never, never).as_struct()
    panes = ran.where("rw_nth = 1").select(
        *spec.keys,
        START,
        END,
        *spec.aggregates,
        (F.col("rw_nth_batch") - 1).cast("int").alias(PANE),
        fired.alias("rw_fired"),
    )
    return _beside(windows, panes, spec)


def _beside(windows: DataFrame, panes: DataFrame, spec: ReplaySpec) -> DataFrame:
    """The windows' other columns beside each of their panes, which have the values, `pane` and `rw_fired`."""
    identity = (*spec.keys, START, END)
    rest = windows.drop(*spec.aggregates, PANE, *position_names(FIRED))
    beside = panes.select(*others(identity), *spec.aggregates, PANE, "rw_fired")
    columns = [c for c in windows.columns if not c.startswith(f"{FIRED}_")]
    fired = PositionColumns.of_struct(F.col("rw_fired")).aliased(FIRED)
    return rest.join(beside, same(identity), "left").select(*columns, *fired)


def late_records(
    records: DataFrame, spec: ReplaySpec, timeline: Timeline, span: TimeRange, chosen: TimeRange
) -> DataFrame:
    """One row for each record that at least one window of `chosen` dropped; or that entered none (rule 20).

    A record belongs to the chunk `span` that holds its latest possible window start. Columns: keys, the
    record's position and event time, `windows_missed` (of the windows that start in `chosen`),
    `side_output` (it entered no window at all: Flink's late side output has it), `window_start`,
    `window_end` of the last window that it missed, `missed_by` (ms of processing time from that window's
    close for good to the record's arrival; null where the window was open: a deduplication before it dropped the
    record).
    """
    records = admitted(records, spec.after_watermark)
    ts = F.col(EVENT_TIME)
    windows = spec.aligned_windows
    home = latest_start(windows)
    own = records.where((ts >= F.lit(span.start)) & is_within(home, span))
    lookup = close_lookup(timeline, spec, span)
    assigned = assign_windows(own, windows)
    cleanup = lookup.at_cleanup
    index = (cleanup.grid.index(F.col(END)) - F.lit(cleanup.first)).cast("int")
    placed = assigned.withColumn("rw_cleanup", cleanup.at_index(index, assigned).arrival)
    missed = placed.where(~spec.rules.comes_before(cleanup, index, placed))
    identity = [*spec.keys, *identity_columns(records)]
    last = F.max(F.struct(F.col(END), F.col(START), F.col("rw_cleanup"))).alias("rw_last")
    in_chosen = is_within(F.col(START), chosen)
    by_record = missed.groupBy(*identity).agg(F.count_if(in_chosen).alias("windows_missed"), last)
    # Windows close in the order of their ends: who missed the last of its windows entered none.
    last_end, closed = latest_end(windows), F.col("rw_last.rw_cleanup")
    return by_record.where("windows_missed > 0").select(
        *identity,
        "windows_missed",
        (F.col(f"rw_last.{END}") == last_end).alias("side_output"),
        F.col(f"rw_last.{START}").alias(START),
        F.col(f"rw_last.{END}").alias(END),
        F.when(closed <= F.col(ARRIVAL), F.col(ARRIVAL) - closed).alias("missed_by"),
    )
