"""Replay each definition over the same records, and measure what people choose a bound or a lateness by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.cutover.beside import APART, DIFFERS, EXPECTED, FOUND, beside
from spark_jobs.definition import Pipeline
from spark_jobs.definition.mode import Mode
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import ARRIVAL, DROPPED, FIRED, LATE, NEVER, ON_TIME, STATE, position_names
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import windows_of
from spark_jobs.replay.rounding import rounding_bounds
from spark_jobs.replay.spec import Panes, ReplaySpec
from spark_jobs.runs.planning.chunking import chunks_of
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.planned_spec import spec_of_plan
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources import good, narrowed
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.gateway import query_execution
from spark_jobs.whatif.definitions import Variant, reads_alike
from spark_jobs.whatif.found import Against, Delay, Differs, Measured, WhatIf

SAMPLES = 5
_FIRST, _LAST = "rw_first_in", "rw_last_in"
_CELLS = 1000
"""State is counted in so many cells of the processing time; what a cell holds is never counted too low."""
_CLOSED = position_names(FIRED)[0]


def measure(spark: SparkSession, variants: Sequence[Variant], progress: Progress) -> WhatIf:
    """The measures of definitions of one pipeline. The first is the pipeline's own; its records are read once.

    A definition that reads the history otherwise (other fields, filters, event times) reads it anew.

    Raises DefinitionError for a pipeline of complete values alone: they know no lateness.
    """
    own = variants[0].pipeline
    for one in variants:
        if one.pipeline.mode is Mode.COMPLETE:
            raise DefinitionError("computes complete values alone, which know no lateness", one.name)
    with ExitStack() as stack:
        with progress.stage("read", own.name):
            plan, records = stack.enter_context(planned_records(spark, own))
            kept = stack.enter_context(_kept(records, own))
        found = []
        for variant in variants:
            with progress.stage("replay", variant.name):
                if reads_alike(variant.pipeline, own):
                    found.append(_measured(spark, own, variant, plan, kept))
                    continue
                with planned_records(spark, variant.pipeline) as (other, read):
                    found.append(_measured(spark, own, variant, other, read))
    return WhatIf(pipeline=own.name, as_of=plan.as_of, definitions=tuple(found))


@contextmanager
def _kept(records: DataFrame, pipeline: Pipeline) -> Iterator[DataFrame]:
    """The records, cached where they are not yet, but for those that are as fast to read again."""
    is_cached = "InMemoryRelation" in query_execution(records).withCachedData().toString()
    if is_cached or _is_read_fast(pipeline):
        yield records if is_cached else narrowed(records, pipeline)
        return
    with CachedFrames() as cache:
        yield cache.keep(narrowed(records, pipeline))


def _is_read_fast(pipeline: Pipeline) -> bool:
    """Whether records are columns of columnar files, with nothing to decode or to look up."""
    is_plain = pipeline.value.format == "columns" and pipeline.lookup is None and not pipeline.functions
    return is_plain and pipeline.history.has_columns


def _measured(spark: SparkSession, own: Pipeline, variant: Variant, plan: Plan, records: DataFrame) -> Measured:
    pipeline = variant.pipeline
    history = History(good(records), plan.event_times, plan.processing_time_end)
    spec = spec_of_plan(spark, pipeline, plan, Mode.FAITHFUL, Panes.LAST)
    more = {_FIRST: f"min({ARRIVAL})", _LAST: f"max({ARRIVAL})", **rounding_bounds(history.records, spec.aggregates)}
    with CachedFrames() as cache, Replay(history, spec, exact_positions=spec.has_sessions) as replay:
        windows = cache.keep(_windows(replay.with_aggregates(more), pipeline, plan))
        counted = windows.agg(
            F.count_if(F.col(ON_TIME) + F.col(LATE) > 0).alias("windows"),
            F.count_if(F.col(STATE) == "closed").alias("closed"),
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in (DROPPED, LATE)),
        ).collect()[0]
        first = _delay(windows, F.col(_CLOSED))
        later = F.greatest(F.col(_CLOSED), F.when(F.col(LATE) > 0, F.col(_LAST)))
        return Measured(
            name=variant.name,
            definition_hash=pipeline.definition_hash,
            windows=counted["windows"],
            records=plan.records,
            dropped=_dropped(replay, plan, counted[DROPPED]),
            late=counted[LATE],
            first=first,
            last=_delay(windows, later) if counted[LATE] else first,
            state=_state(windows, spec),
            against=_against(spark, own, windows, counted["closed"], spec),
        )


def _spans(pipeline: Pipeline, plan: Plan) -> Sequence[TimeRange]:
    windows = windows_of(pipeline)
    return chunks_of(windows, windows.covering(plan.event_times))


def _windows(replay: Replay, pipeline: Pipeline, plan: Plan) -> DataFrame:
    frames = [replay.windows(span) for span in _spans(pipeline, plan)]
    return reduce(DataFrame.unionByName, frames)


def _dropped(replay: Replay, plan: Plan, pairs: int) -> int:
    """Records that a window dropped, or that are in none; where a record has one window, the pairs say it."""
    spec = replay.spec
    if not spec.has_sessions and spec.aligned_windows.assigns_one:
        return int(pairs)
    late = replay.late(spec.windows.covering(plan.event_times))
    return 0 if late is None else late.count()


def _delay(windows: DataFrame, at: Column) -> Delay | None:
    """How long after the window's end `at` is, of the windows that the watermark closed; None: it closed none.

    The shares are of delays with their first six digits, so that not too many come to the driver.
    """
    after = F.col("after")
    unit = F.pow(F.lit(10), F.greatest(F.floor(F.log10(F.greatest(F.abs(after), F.lit(1)))) - 5, F.lit(0)))
    closed = windows.where((F.col(_CLOSED) < F.lit(NEVER)) & (F.col(STATE) == "closed"))
    delays = closed.select((at - F.col(END)).alias("after"))
    rounded = (F.floor(after / unit) * unit).cast("bigint").alias("rounded")
    found = delays.groupBy(rounded).agg(F.count("*").alias("count"), F.max("after").alias("longest")).toArrow()
    if not found.num_rows:
        return None
    values, counts, longest = (found.column(name).to_numpy() for name in ("rounded", "count", "longest"))
    order = np.argsort(values)
    until = counts[order].cumsum()
    median, most = (int(values[order][np.searchsorted(until, share * until[-1])]) for share in (0.5, 0.95))
    return Delay(median=median, most_95=most, longest=int(longest.max()))


def _state(windows: DataFrame, spec: ReplaySpec) -> int:
    """The most windows that are held at once.

    A window is held from its first record until the watermark has passed its last millisecond and the lateness: until
    the first window closes that ends so much later. One that nothing closes is held to the end.
    """
    held = windows.where(F.col(_FIRST).isNotNull())
    low, high = held.agg(F.min(_FIRST), F.max(F.when(F.col(_CLOSED) < F.lit(NEVER), F.col(_CLOSED)))).collect()[0]
    if low is None:
        return 0
    width = max(1, ((high or low) - low) // _CELLS)
    cell = F.floor((F.col(_FIRST) - F.lit(low)) / F.lit(width)).alias("cell")
    rows = held.groupBy(END, cell).agg(F.count("*").alias("count"), F.min(_CLOSED).alias("closed")).toArrow()
    ends, cells, counts, closed = (rows.column(name).to_numpy() for name in (END, "cell", "count", "closed"))
    order = np.argsort(ends, kind="stable")
    closes = np.minimum.accumulate(closed[order][::-1])[::-1]
    lateness = min(spec.allowed_lateness, MAX_TIMESTAMP - int(ends.max()))
    later = np.searchsorted(ends[order], ends + lateness)
    until = np.where(later < len(closes), closes[np.minimum(later, len(closes) - 1)], NEVER)
    gone = np.where(until < NEVER, np.minimum((until - low) // width + 1, _CELLS * 2), _CELLS * 2 + 1).astype(np.int64)
    change = np.zeros(_CELLS * 2 + 2, dtype=np.int64)
    np.add.at(change, np.clip(cells.astype(np.int64), 0, _CELLS * 2), counts)
    np.subtract.at(change, gone, counts)
    return int(change.cumsum().max())


def _against(spark: SparkSession, own: Pipeline, windows: DataFrame, closed: int, spec: ReplaySpec) -> Against | None:
    """The windows with a value, so many as are `closed`, beside the published ones."""
    table = Tables.of(own).windows
    if not spark.catalog.tableExists(table):
        return None
    published = spark.table(table).where(F.col(STATE) == "closed")
    names, keys = [name for name in spec.aggregates if name in published.columns], list(spec.keys)
    bounds = [F.unix_millis("window_start").alias(START), F.unix_millis("window_end").alias(END)]
    before = published.select(*(f"`{key}`" for key in keys), *bounds, *(f"`{name}`" for name in names))
    here = windows.where(F.col(STATE) == "closed")
    joined = beside(here, before, keys, names, rows=closed)
    is_here, is_there = F.col(EXPECTED).isNotNull(), F.col(FOUND).isNotNull()
    differs = F.col(DIFFERS)
    numeric = [name for name in names if isinstance(here.schema[name].dataType, t.NumericType)]
    far = [
        F.when(F.array_contains(APART, name), F.abs(_value(EXPECTED, name) - _value(FOUND, name)).cast("double"))
        for name in numeric
    ]
    both = is_here & is_there
    with CachedFrames() as cache:
        changed = cache.keep(joined.where(~both | differs))
        row = changed.agg(
            F.count_if(both).alias("different"),
            F.count_if(~is_here).alias("only_published"),
            F.count_if(~is_there).alias("only_here"),
            *(F.max(one).alias(f"largest_{i}") for i, one in enumerate(far)),
            *(F.sum(one).alias(f"total_{i}") for i, one in enumerate(far)),
        ).collect()[0]
        return Against(
            same=closed - row["different"] - row["only_here"],
            **{name: row[name] for name in ("different", "only_published", "only_here")},
            largest={name: row[f"largest_{i}"] or 0.0 for i, name in enumerate(numeric)},
            total={name: row[f"total_{i}"] or 0.0 for i, name in enumerate(numeric)},
            samples=tuple(_samples(changed, keys, names)) if names else (),
        )


def _value(side: str, name: str) -> Column:
    return F.col(f"{side}.`{name}`")


def _samples(changed: DataFrame, keys: Sequence[str], names: Sequence[str]) -> Iterator[Differs]:
    """Some windows that differ, the first in time; of each the first column that does."""
    column = F.coalesce(F.try_element_at(APART, F.lit(1)), F.lit(names[0]))
    value = {
        side: F.create_map(*(x for n in names for x in (F.lit(n), _value(side, n).cast("string"))))
        for side in (EXPECTED, FOUND)
    }
    instants = {name: F.timestamp_millis(at) for name, at in {"window_start": START, "window_end": END}.items()}
    rows = changed.select(
        *(instant.cast("string").alias(name) for name, instant in instants.items()),
        F.array(*(F.col(f"`{key}`").cast("string") for key in keys)).alias("keys"),
        column.alias("column"),
        F.element_at(value[FOUND], column).alias("before"),
        F.element_at(value[EXPECTED], column).alias("after"),
    )
    order = ["window_start", "window_end", "keys"]
    for row in rows.orderBy(*order).limit(SAMPLES).collect():
        found = row.asDict()
        yield Differs(**{**found, "keys": dict(zip(keys, found["keys"], strict=True))})
