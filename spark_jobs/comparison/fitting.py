"""Fits a cut for every window end in doubt, each in its own task; see `spark_jobs.comparison.cut_search`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, IntegralType

from spark_jobs.comparison.cut_search import Doubt, fit
from spark_jobs.comparison.emitted import emitted_name
from spark_jobs.comparison.join_keys import join_columns
from spark_jobs.comparison.recount import BY_PARTITION, RecountContext, close_position, records_in
from spark_jobs.replay.aggregates import is_additive
from spark_jobs.replay.assign import END
from spark_jobs.replay.columns import OFFSET, PARTITION, PositionColumns, record_position

CUTS, KIND, FIT_KEYS, LEFT_OUT, SEARCHED = "fit_cuts", "fit", "fit_keys", "fit_left_out", "fit_searched"
_FITTED = f"{END} BIGINT, {KIND} STRING, {CUTS} MAP<INT, BIGINT>, {FIT_KEYS} INT, {LEFT_OUT} INT, {SEARCHED} BOOLEAN"
_ARROW = pa.schema(
    [
        (END, pa.int64()),
        (KIND, pa.string()),
        (CUTS, pa.map_(pa.int32(), pa.int64())),
        (FIT_KEYS, pa.int32()),
        (LEFT_OUT, pa.int32()),
        (SEARCHED, pa.bool_()),
    ]
)
_TARGET, _CERTAIN, _UNDECIDED = 0, 1, 2


def fitting_columns(context: RecountContext, values: Sequence[str], types: dict[str, DataType]) -> tuple[str, ...]:
    """The aggregates from which a cut can be found: counts and sums of whole numbers or decimals."""
    spark = context.replay.history.records.sparkSession
    aggregates = context.replay.spec.aggregates
    return tuple(
        v for v in values if isinstance(types[v], IntegralType | DecimalType) and is_additive(spark, aggregates[v])
    )


def fitted_cuts(context: RecountContext, doubt: DataFrame, ends: DataFrame, columns: Sequence[str]) -> DataFrame:
    """One row for each window end in `doubt` (all windows of these ends with undecided records).

    Columns: `window_end`, `fit` (a `CutKind`), `fit_cuts` (last offset in time by partition),
    `fit_keys`, `fit_left_out`, `fit_searched`.
    """
    aggregates = context.replay.spec.aggregates
    types = {f.name: f.dataType for f in doubt.schema}
    window = F.xxhash64(*join_columns(context.keys)).alias("window")
    none = F.lit(None).cast("bigint")
    targets = doubt.join(ends, END).select(
        END,
        window,
        F.lit(_TARGET).alias("kind"),
        F.lit(-1).alias("partition"),
        none.alias("offset"),
        none.alias("arrival"),
        none.alias("major"),
        none.alias("minor"),
        F.lit(False).alias("predicted"),
        BY_PARTITION,
        *(
            _whole(F.col(f"`{emitted_name(v)}`"), types[emitted_name(v)], types[v]).alias(f"a{i}")
            for i, v in enumerate(columns)
        ),
    )
    records = records_in(context, doubt, ends)
    certain, undecided = F.col("rw_certain_in"), ~F.col("rw_certain_in") & ~F.col("rw_certain_out")
    position = record_position(records)

    def where_undecided(column: Column) -> Column:
        return F.when(undecided, column)

    placed = records.where(certain | undecided).withColumns(
        {
            "rw_f_kind": F.when(certain, _CERTAIN).otherwise(_UNDECIDED),
            "rw_f_partition": F.when(undecided, F.col(PARTITION)).otherwise(F.lit(-1)),
            "rw_f_offset": where_undecided(F.col(OFFSET)),
            "rw_f_arrival": where_undecided(position.arrival),
            "rw_f_major": where_undecided(position.major),
            "rw_f_minor": where_undecided(position.minor),
        }
    )
    names = ("kind", "partition", "offset", "arrival", "major", "minor")
    sums = placed.groupBy(*join_columns(context.keys), *(f"rw_f_{n}" for n in names)).agg(
        *(F.expr(aggregates[v]).alias(f"rw_a{i}") for i, v in enumerate(columns))
    )
    sums = sums.join(ends, END)
    predicted = (F.col("rw_f_kind") == _UNDECIDED) & F.coalesce(
        PositionColumns.named("rw_f").not_after(close_position()), F.lit(False)
    )
    parts = sums.select(
        END,
        window,
        *(F.col(f"rw_f_{n}").alias(n) for n in names),
        predicted.alias("predicted"),
        BY_PARTITION,
        *(_whole(F.col(f"rw_a{i}"), types[v], types[v]).alias(f"a{i}") for i, v in enumerate(columns)),
    )
    together = targets.unionByName(parts)
    return together.groupBy(END).applyInArrow(partial(_fit_end, columns=len(columns)), _FITTED)


def _whole(value: Column, kind: DataType, like: DataType) -> Column:
    """A value as a whole number of units in the last decimal place of `like`; null counts as 0."""
    scale = like.scale if isinstance(like, DecimalType) else 0
    if scale or isinstance(kind, DecimalType):
        value = value.cast(f"decimal(38,{scale})") * F.lit(10**scale)
    return F.coalesce(value.try_cast("bigint"), F.lit(0).cast("bigint"))


def _fit_end(table: pa.Table, *, columns: int) -> pa.Table:
    """Fit the cut of one window end. `table` holds its targets, certain sums and undecided records."""
    get = {name: table.column(name).to_numpy(zero_copy_only=False) for name in ("kind", "window", "partition")}
    adds = np.stack([table.column(f"a{i}").to_numpy() for i in range(columns)], axis=1)
    names, window = np.unique(get["window"], return_inverse=True)
    wanted = np.zeros((len(names), columns), np.int64)
    kind = get["kind"]
    np.add.at(wanted, window[kind == _TARGET], adds[kind == _TARGET])
    np.subtract.at(wanted, window[kind == _CERTAIN], adds[kind == _CERTAIN])
    own = np.flatnonzero(kind == _UNDECIDED)
    place = {n: table.column(n).fill_null(0).to_numpy()[own] for n in ("offset", "arrival", "major", "minor")}
    order = np.lexsort((place["minor"], place["major"], place["arrival"]))
    chosen = own[order]
    predicted = table.column("predicted").to_numpy(zero_copy_only=False)
    # A key without undecided records does not constrain the cut: its row is classified by the log.
    constrains, dense = np.unique(window[chosen], return_inverse=True)
    doubt = Doubt(
        wanted[constrains],
        dense,
        get["partition"][chosen],
        place["offset"][order],
        adds[chosen],
        int(predicted[own].sum()),
    )
    found = fit(doubt, by_partition=bool(table.column(BY_PARTITION)[0].as_py()))
    row = {
        END: [table.column(END)[0].as_py()],
        KIND: [found.kind.value],
        CUTS: [list(found.cuts.items())],
        FIT_KEYS: [found.keys],
        LEFT_OUT: [found.left_out],
        SEARCHED: [found.searched],
    }
    return pa.table(row, schema=_ARROW)
