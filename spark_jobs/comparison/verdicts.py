"""One verdict for each key and window, from one full outer join of emitted and replayed windows.

| emitted against faithful | faithful against complete | verdict |
| --- | --- | --- |
| equal | equal | `match` |
| equal | differs | `late_arrivals` |
| differs | any | `mismatch`, or `timing` where one admissible cut explains it (`spark_jobs.comparison.cut_search`) |
| no row | row | `missing` |
| row | no row | `extra` |
| no row | no row, complete has one | `all_late` |
| any | still open at the end offsets | `not_closed`: not counted |
| no row | still open, and a micro-batch may have let it out that was planned and not committed | `undecided` |

This is the first pass, from the log alone. `spark_jobs.comparison.comparer` classifies the windows again that the log
leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NumericType,
    StructField,
    StructType,
)

from spark_jobs.comparison.emitted import AGAIN, AMBIGUOUS, AT, FIRST_AT, OFFSETS, PANE, ROWS, Emitted, emitted_name
from spark_jobs.comparison.join_keys import hashed_columns, with_window_hash
from spark_jobs.definition.live import Tolerance
from spark_jobs.lakehouse.verdicts import Verdict
from spark_jobs.replay import windows as replayed
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.rounding import rounding_name
from spark_jobs.replay.spec import complete_name
from spark_jobs.spark.conditions import all_of
from spark_jobs.spark.gateway import tried

VERDICT, LABEL, BASIS, DIFFERS = "verdict", "label", "basis", "differs"
CLOSED_AT = "closed_at"
_EXACT = (IntegralType, DecimalType)

ColumnName = Callable[[str], str]
"""From the name of an aggregate to the name of a column."""


class EvidenceKind(StrEnum):
    """What a verdict is based on.

    `log`: the log alone, and no record is undecided. `log_undecided`: the log alone, but some records are undecided, so
    a difference in them would not have been seen. `fit`: one cut of the log that explains all keys of a window end.
    `recorded`: evidence that the live job recorded.
    """

    LOG = "log"
    LOG_UNDECIDED = "log_undecided"
    FIT = "fit"
    RECORDED = "recorded"


class Label(StrEnum):
    """A detail of a verdict: why it is so, or the nearest explanation of a mismatch (docs/three-truths.md)."""

    SEVERAL_ROWS = "several_rows"
    IN_OTHER_PIECES = "in_other_pieces"
    NO_RECORDS = "no_records"
    BATCH_NOT_COMMITTED = "batch_not_committed"
    EVIDENCE_CONTRADICTS_LOG = "evidence_contradicts_log"
    NOTHING_TO_FIT = "nothing_to_fit"
    TOO_MANY_CUTS = "too_many_cuts"
    NO_ADMISSIBLE_CUT = "no_admissible_cut"
    HELD_BACK = "held_back"
    EMITTED_AGAIN_AFTER_RESTART = "emitted_again_after_restart"
    SESSION_NEAR_A_CLOSE = "session_near_a_close"
    EQUALS_COMPLETE = "equals_complete"
    EQUALS_EARLIER_PANE = "equals_earlier_pane"
    UNEXPLAINED = "unexplained"
    NOT_EXAMINED = "not_examined"
    CORRECTED = "corrected"


WITHOUT_PARTITION, SHIFTED_BY, MATCHES_WITH = "without_partition_", "shifted_by_", "matches_with_"
"""The beginnings of more labels: a partition follows, a duration, or a field with another value."""


@dataclass(frozen=True)
class ComparisonScope:
    """What is compared: the keys, the aggregates that the job emitted, and their tolerances.

    `rounded`: those of the aggregates that are known only up to a bound (`spark_jobs.replay.rounding`), which the
    replay computes beside them.

    Windows that end at `open_from` or later (epoch ms) have not closed. Those that end at `not_final_from` or later can
    still be refined by late records within the allowed lateness. Those that are open and end at `may_be_out_until` or
    earlier may have come out; None: nothing may have.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    open_from: int
    not_final_from: int
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    may_be_out_until: int | None = None
    rounded: tuple[str, ...] = ()

    @property
    def computed(self) -> tuple[str, ...]:
        """The columns of the replay that a comparison needs: the aggregates, and the bounds of the rounded ones."""
        return (*self.values, *(rounding_name(v) for v in self.rounded))


def same(
    left: Column,
    right: Column,
    left_type: DataType,
    right_type: DataType,
    tolerance: Tolerance | None,
    rounding: Column | None = None,
) -> Column:
    """Whether two values count as equal.

    Null equals null and NaN equals NaN. Numbers are equal if they differ by at most the tolerance (inclusive), or by at
    most `rounding`, where that is finite. Whole numbers and decimals are compared exactly. A number never equals null,
    NaN or infinity, whatever the tolerance. A value that the right type cannot hold equals nothing. A FLOAT beside a
    DOUBLE is one that was rounded.
    """
    numbers = isinstance(left_type, NumericType) and isinstance(right_type, NumericType)
    equal = left.eqNullSafe(right)
    if not numbers and left_type != right_type:
        equal = left.try_cast(_with_nulls(right_type)).eqNullSafe(right) & ~is_none_of(left, right_type)
    if not numbers:
        return equal
    if isinstance(left_type, FloatType) and isinstance(right_type, DoubleType):
        equal = left.eqNullSafe(right.cast("float"))
    if rounding is not None:
        equal = equal | F.coalesce(
            _within(left.cast("double"), right.cast("double"), rounding, left_type), F.lit(False)
        )
    if tolerance is None or not (tolerance.absolute or tolerance.relative):
        return equal
    near = _near(left.cast("double"), right.cast("double"), tolerance)
    if isinstance(left_type, _EXACT) and isinstance(right_type, _EXACT):
        exact = _near_exactly(_as_decimal(left, left_type), _as_decimal(right, right_type), tolerance)
        near = F.coalesce(exact, near)  # null where the difference needs more than 38 digits
    return equal | F.coalesce(near, F.lit(False))


def is_none_of(value: Column, kind: DataType) -> Column:
    """Whether there is a value, and it, or a part of it, cannot be cast to this type."""
    return value.isNotNull() & tried(value.cast(_with_nulls(kind))).isNull()


def _with_nulls(kind: DataType) -> DataType:
    """The type, with parts that may be null: Spark refuses to cast to others."""
    match kind:
        case ArrayType(elementType=element):
            return ArrayType(_with_nulls(element))
        case MapType(keyType=key, valueType=value):
            return MapType(_with_nulls(key), _with_nulls(value))
        case StructType():
            return StructType([StructField(field.name, _with_nulls(field.dataType)) for field in kind.fields])
        case _:
            return kind


def _near(a: Column, b: Column, tolerance: Tolerance) -> Column:
    largest = F.greatest(F.abs(a), F.abs(b))
    allowed = F.greatest(F.lit(tolerance.absolute), largest * F.lit(tolerance.relative))
    # As doubles, 1.01 and 1.00 do not differ by exactly 0.01: each may be off by half a unit in the last place.
    rounding = largest * F.lit(2**-52)
    # In Spark NaN is larger than infinity, and equal to itself.
    return (largest < F.lit(float("inf"))) & (F.abs(a - b) <= allowed + rounding)


def _within(a: Column, b: Column, rounding: Column, left_type: DataType) -> Column:
    if isinstance(left_type, FloatType):
        rounding = rounding + F.abs(b) * F.lit(2.0**-24)
    return (rounding < F.lit(float("inf"))) & (F.abs(a - b) <= rounding)


def _near_exactly(a: Column, b: Column, tolerance: Tolerance) -> Column:
    apart, largest = F.abs(F.try_subtract(a, b)), F.greatest(F.abs(a), F.abs(b))
    absolute, relative = (F.lit(Decimal(repr(bound))) for bound in (tolerance.absolute, tolerance.relative))
    return (apart <= absolute) | (apart <= F.try_multiply(largest, relative))


def _as_decimal(value: Column, kind: DataType) -> Column:
    return value.cast("decimal(20,0)") if isinstance(kind, IntegralType) else value


def _equal(frame: DataFrame, scope: ComparisonScope, left: ColumnName, right: ColumnName) -> dict[str, Column]:
    """For each compared aggregate whether its columns `left(name)` and `right(name)` are equal."""
    types = {f.name: f.dataType for f in frame.schema}

    def equal(v: str) -> Column:
        a, b = left(v), right(v)
        bounds = [F.col(f"`{name}`") for side in (left, right) if (name := side(rounding_name(v))) in types]
        rounding = F.greatest(*bounds, F.lit(0.0)) if bounds else None
        return same(F.col(f"`{a}`"), F.col(f"`{b}`"), types[a], types[b], scope.tolerance.get(v), rounding)

    return {v: equal(v) for v in scope.values}


def differing(frame: DataFrame, scope: ComparisonScope, left: ColumnName, right: ColumnName) -> Column:
    """The names (ARRAY<STRING>) of the aggregates whose columns `left(name)` and `right(name)` differ."""
    equal = _equal(frame, scope, left, right)
    return F.array_compact(F.array(*(F.when(~is_equal, F.lit(v)) for v, is_equal in equal.items())))


def all_same(frame: DataFrame, scope: ComparisonScope, left: ColumnName, right: ColumnName) -> Column:
    """Whether the columns `left(name)` and `right(name)` are equal for every compared aggregate."""
    return all_of(_equal(frame, scope, left, right).values())


def classify(
    windows: DataFrame, emitted: Emitted, scope: ComparisonScope, uncommitted: DataFrame | None = None
) -> DataFrame:
    """One row for each key and window of either side; `windows` are those of `replay_windows` in mode BOTH.

    Columns: the keys, `window_start`, `window_end` (BIGINT), for each compared aggregate `<a>__emitted`, `<a>`
    (faithful), `<a>__complete`; `verdict`, `label`, `basis`, `differs` (emitted against faithful);
    `emitted_rows`, `emitted_pane`, `emitted_at`, `first_emitted_at`, `last_offsets`; `state`,
    `records_on_time/_late/_dropped/_undecided`, `pane`, `closed_at`; and the
    `hashed_columns` of `spark_jobs.comparison.join_keys`. `uncommitted`: see `Comparer`.
    """
    joined = _joined(windows, emitted, scope)
    is_touched = F.lit(False)
    if uncommitted is not None:
        columns = hashed_columns(scope.keys)
        touched = with_window_hash(uncommitted, scope.keys).select(*columns, F.lit(True).alias("rw_touched"))
        joined, is_touched = joined.join(touched, columns, "left"), F.col("rw_touched").isNotNull()
    has_emitted, has_faithful = F.col(ROWS) > 0, F.col(replayed.STATE) == "closed"
    equal = all_same(joined, scope, emitted_name, str)
    complete = all_same(joined, scope, str, complete_name)
    not_final = F.col(END) >= F.lit(scope.not_final_from)
    is_open = (F.col(replayed.STATE) == "open") | (
        F.col(replayed.STATE).isNull() & (F.col(END) >= F.lit(scope.open_from))
    )
    is_doubtful = is_open & ~has_emitted & (F.col(END) <= F.lit(scope.may_be_out_until))
    is_doubtful = is_doubtful | (is_touched & ~(has_emitted & has_faithful & equal))
    verdict = (
        F.when(is_doubtful, Verdict.UNDECIDED)
        .when(is_open, Verdict.NOT_CLOSED)
        .when(has_emitted & F.col(AMBIGUOUS), Verdict.MISMATCH)
        .when(has_emitted & has_faithful & equal, F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS))
        .when(has_emitted & has_faithful, F.when(not_final, Verdict.NOT_CLOSED).otherwise(Verdict.MISMATCH))
        .when(has_faithful, Verdict.MISSING)
        .when(has_emitted, F.when(not_final, Verdict.NOT_CLOSED).otherwise(Verdict.EXTRA))
        .when(F.col(replayed.STATE) == "all_late", Verdict.ALL_LATE)
        .otherwise(Verdict.LATE_ARRIVALS)
    )
    label = (
        F.when(is_doubtful, Label.BATCH_NOT_COMMITTED)
        .when(has_emitted & F.col(AMBIGUOUS), Label.SEVERAL_ROWS)
        .when(F.col(replayed.STATE) == "not_emitted", Label.IN_OTHER_PIECES)
        .when(has_emitted & F.col(replayed.STATE).isNull(), Label.NO_RECORDS)
    )
    basis = F.when(F.col(UNDECIDED) > 0, EvidenceKind.LOG_UNDECIDED).otherwise(EvidenceKind.LOG)
    both = has_emitted & has_faithful
    classified = joined.withColumns({VERDICT: verdict, LABEL: label, BASIS: basis})
    differs = F.when(both & ~equal, differing(classified, scope, emitted_name, str))
    return classified.withColumn(DIFFERS, differs).drop("rw_touched")


def _joined(windows: DataFrame, emitted: Emitted, scope: ComparisonScope) -> DataFrame:
    """The full outer join of both sides, with the keys and bounds of the side that has them."""
    keys = scope.keys
    if UNDECIDED not in windows.columns:
        windows = windows.withColumn(UNDECIDED, F.lit(0).cast("bigint"))
    arrival = f"{replayed.FIRED}_arrival"
    ours = with_window_hash(windows, keys).select(
        *hashed_columns(keys),
        *(F.col(f"`{k}`").alias(f"rw_ours_{i}") for i, k in enumerate(keys)),
        *(c for v in scope.computed for c in (v, complete_name(v))),
        replayed.STATE,
        replayed.ON_TIME,
        replayed.LATE,
        replayed.DROPPED,
        UNDECIDED,
        replayed.PANE,
        F.col(arrival).alias(CLOSED_AT),
    )
    theirs = emitted.rows.select(
        *hashed_columns(keys),
        *(F.col(f"`{k}`").alias(f"rw_theirs_{i}") for i, k in enumerate(keys)),
        *(emitted_name(v) for v in scope.values),
        ROWS,
        F.col(PANE),
        AT,
        FIRST_AT,
        OFFSETS,
        AMBIGUOUS,
        AGAIN,
    )
    joined = ours.join(theirs, hashed_columns(keys), "full")
    return joined.select(
        *hashed_columns(keys),
        *(F.coalesce(f"rw_ours_{i}", f"rw_theirs_{i}").alias(k) for i, k in enumerate(keys)),
        *(c for v in scope.values for c in (emitted_name(v), v, complete_name(v))),
        *(c for v in scope.rounded for c in (rounding_name(v), complete_name(rounding_name(v)))),
        F.coalesce(ROWS, F.lit(0)).alias(ROWS),
        PANE,
        AT,
        FIRST_AT,
        OFFSETS,
        F.coalesce(AMBIGUOUS, F.lit(False)).alias(AMBIGUOUS),
        F.coalesce(AGAIN, F.lit(False)).alias(AGAIN),
        replayed.STATE,
        replayed.ON_TIME,
        replayed.LATE,
        replayed.DROPPED,
        F.coalesce(UNDECIDED, F.lit(0)).alias(UNDECIDED),
        replayed.PANE,
        CLOSED_AT,
    )
