"""The nearest explanation of a mismatch that the data supports, else `unexplained`.

Each explanation is a statement that the values prove:

- `equals_complete`: the emitted value is the value over all records: the live job was more lenient;
- `equals_earlier_pane`: the value of an earlier firing: a refinement was lost;
- `without_partition_<p>`: the value without the records of one partition;
- `shifted_by_<duration>`: the value of another window, that much earlier or later: a wrong time zone or clock. One
  equal number proves nothing, so two aggregates must be equal, or three windows of the same key.

`touched_sessions` are those of which a row may be out that nobody knows of (`LiveEngine.in_doubt`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import ROWS, Emitted, emitted_name
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.comparison.recount import (
    RecountContext,
    checkpointed,
    close_position,
    ends_of,
    records_in,
    recount,
    recounted_name,
)
from spark_jobs.comparison.verdicts import (
    LABEL,
    SHIFTED_BY,
    VERDICT,
    WITHOUT_PARTITION,
    ComparisonScope,
    Label,
    Verdict,
    all_same,
)
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import HOUR, format_duration
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import RegularWindows
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import EVENT_TIME, PARTITION, record_position
from spark_jobs.replay.spec import Mode, Panes, complete_name
from spark_jobs.replay.windows import replay_windows
from spark_jobs.spark.conditions import any_of

MAX_EXAMINED = 20_000
"""The most windows that differ that are examined; the others are labelled `not_examined`."""

_SHIFTED_ROWS = 3
_EXPLAINED = "rw_explained"


def explained(
    rows: DataFrame,
    everything: DataFrame,
    scope: ComparisonScope,
    context: RecountContext,
    spans: tuple[TimeRange, ...],
) -> DataFrame:
    """`rows` with a label on every `mismatch` and `extra` row that had none; `everything` has all windows."""
    open_labels = F.col(LABEL).isNull() | F.col(LABEL).isin(Label.NO_ADMISSIBLE_CUT.value, Label.NO_RECORDS.value)
    differs = F.col(VERDICT).isin(Verdict.MISMATCH.value, Verdict.EXTRA.value) & open_labels & (F.col(ROWS) > 0)
    window = join_columns(scope.keys)
    chosen = checkpointed(rows.where(differs).orderBy(START, *window).limit(MAX_EXAMINED))
    if chosen.isEmpty():
        return rows
    found: list[DataFrame | None] = [_complete(chosen, scope), _shifted(everything, chosen, scope, context)]
    if not context.replay.merges:
        found += [_earlier_pane(chosen, scope, context, spans), _without_partition(chosen, scope, context)]
    explanations = reduce(
        DataFrame.unionByName, (f.select(*window, "rw_rank", _EXPLAINED) for f in found if f is not None)
    )
    nearest = explanations.groupBy(*window).agg(F.min(F.struct("rw_rank", _EXPLAINED))[_EXPLAINED].alias(_EXPLAINED))
    examined = chosen.select(*window).join(nearest, window, "left")
    examined = examined.withColumn(_EXPLAINED, F.coalesce(_EXPLAINED, F.lit(Label.UNEXPLAINED.value)))
    joined = rows.join(checkpointed(examined), window, "left")
    label = F.when(differs, F.coalesce(_EXPLAINED, F.lit(Label.NOT_EXAMINED.value))).otherwise(F.col(LABEL))
    kept = F.when(differs & (F.col(_EXPLAINED) == Label.UNEXPLAINED), F.col(LABEL))
    return joined.withColumn(LABEL, F.coalesce(kept, label)).drop(_EXPLAINED)


def _named(frame: DataFrame, rank: int, name: Column) -> DataFrame:
    return frame.withColumns({"rw_rank": F.lit(rank), _EXPLAINED: name})


def _complete(chosen: DataFrame, scope: ComparisonScope) -> DataFrame:
    there = any_of(F.col(f"`{complete_name(v)}`").isNotNull() for v in scope.values)
    equal = chosen.where(there & all_same(chosen, scope, emitted_name, complete_name))
    return _named(equal, 0, F.lit(Label.EQUALS_COMPLETE.value))


def _earlier_pane(
    chosen: DataFrame, scope: ComparisonScope, context: RecountContext, spans: tuple[TimeRange, ...]
) -> DataFrame | None:
    replay = context.replay
    if replay.spec.allowed_lateness == 0:
        return None
    spec = replace(replay.spec, panes=Panes.ALL, mode=Mode.FAITHFUL)
    spec = replace(spec, aggregates={v: replay.spec.aggregates[v] for v in scope.computed})
    wanted = chosen.select(*join_columns(scope.keys))
    try:
        records = _records_of_keys(context, wanted)
        panes = reduce(DataFrame.unionByName, (replay_windows(records, spec, replay.timeline, span) for span in spans))
    except DefinitionError:
        return None  # DISTINCT and FILTER cannot be computed for every pane
    given = with_join_keys(panes.where("pane IS NOT NULL"), scope.keys).select(
        *join_columns(scope.keys), *(F.col(v).alias(recounted_name(v)) for v in scope.computed)
    )
    joined = chosen.join(given, join_columns(scope.keys))
    equal = joined.where(all_same(joined, scope, emitted_name, recounted_name))
    return _named(equal, 1, F.lit(Label.EQUALS_EARLIER_PANE.value))


def _records_of_keys(context: RecountContext, wanted: DataFrame) -> DataFrame:
    """The records that may belong to the windows `wanted`: those of their keys, between first start and last end."""
    keys = context.keys
    low, high = wanted.agg(F.min(START), F.max(END)).collect()[0]
    records = context.replay.entering.where((F.col(EVENT_TIME) >= F.lit(low)) & (F.col(EVENT_TIME) < F.lit(high)))
    columns = [c for c in join_columns(keys) if c not in (START, END)]
    return with_join_keys(records, keys).join(wanted.select(*columns).distinct(), columns, "left_semi")


def _without_partition(chosen: DataFrame, scope: ComparisonScope, context: RecountContext) -> DataFrame:
    """Each window once for each of its partitions, with the values without the records of that partition."""
    ends = ends_of(context, chosen)
    records = records_in(context, chosen, ends, are_few=True)
    close = ends.select(END, *(f"rw_close_{p}" for p in ("arrival", "major", "minor")))
    records = records.join(close, END)
    kept = checkpointed(records.where(record_position(records).not_after(close_position())))  # one scan for both uses
    window = join_columns(scope.keys)
    partitions = kept.groupBy(*window).agg(F.collect_set(PARTITION).alias("rw_partitions"))
    partitions = partitions.select(*window, F.explode("rw_partitions").alias("rw_without"))
    crossed = kept.join(partitions, window).withColumns({"rw_certain_in": F.lit(True), "rw_certain_out": F.lit(False)})
    taken = F.col(PARTITION) != F.col("rw_without")
    counted = recount(context, crossed, taken, scope.computed, "rw_without")
    joined = chosen.join(counted, window)
    equal = joined.where(all_same(joined, scope, emitted_name, recounted_name))
    return _named(equal, 2, F.concat(F.lit(WITHOUT_PARTITION), F.col("rw_without").cast("string")))


def _shifted(everything: DataFrame, chosen: DataFrame, scope: ComparisonScope, context: RecountContext) -> DataFrame:
    """Rows with the faithful value of the window that lies an hour, or one window, earlier or later."""
    shifts = sorted({HOUR, _step(context)} - {0})
    both = [s for shift in shifts for s in (shift, -shift)]
    keys = [c for c in join_columns(scope.keys) if c not in (START, END)]
    moved = chosen.withColumn("rw_shift", F.explode(F.array(*(F.lit(s).cast("bigint") for s in both))))
    others = everything.where(F.col("state") == "closed").select(
        *keys, F.col(START).alias("rw_other"), *(F.col(v).alias(recounted_name(v)) for v in scope.computed)
    )
    moved = moved.withColumn("rw_other", F.col(START) - F.col("rw_shift"))
    joined = others.join(F.broadcast(moved), [*keys, "rw_other"])  # there are few of them
    equal = joined.where(all_same(joined, scope, emitted_name, recounted_name))
    if len(scope.values) < 2:
        of_key = Window.partitionBy(*keys, "rw_shift")
        equal = equal.withColumn("rw_rows", F.count(F.lit(1)).over(of_key)).where(F.col("rw_rows") >= _SHIFTED_ROWS)
    names = F.create_map(*(x for s in both for x in (F.lit(s), F.lit(_shift_name(s)))))
    return _named(equal, 3, names[F.col("rw_shift").cast("int")])


def _shift_name(shift: int) -> str:
    """`shifted_by_1h`: the row has the value of the window an hour earlier."""
    return f"{SHIFTED_BY}{'-' if shift < 0 else ''}{format_duration(abs(shift)).replace(' ', '')}"


def _step(context: RecountContext) -> int:
    windows = context.replay.spec.windows
    return windows.start_step if isinstance(windows, RegularWindows) else 0


def touched_sessions(uncommitted: DataFrame, windows: DataFrame, emitted: Emitted, keys: tuple[str, ...]) -> DataFrame:
    """The sessions of either side that overlap or touch a record of `uncommitted`: keys, bounds (epoch ms), distinct.

    Such a session is another one, if the batch's rows are out.
    """
    columns = [*(f"`{key}`" for key in keys), START, END]
    sessions = windows.select(*columns).unionByName(emitted.rows.select(*columns)).distinct()
    by_key = [name for name in join_columns(keys) if name not in (START, END)]
    alone = with_join_keys(uncommitted, keys).select(
        *by_key, F.col(START).alias("rw_first"), F.col(END).alias("rw_last")
    )
    touches = (F.col(START) <= F.col("rw_last")) & (F.col(END) >= F.col("rw_first"))
    joined = with_join_keys(sessions, keys).join(alone, by_key).where(touches)
    return joined.select(*columns).distinct()
