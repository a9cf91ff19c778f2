"""One verdict for each key and window, from one full outer join of emitted and replayed windows.

| emitted against faithful | faithful against complete | verdict |
| --- | --- | --- |
| equal | equal | `match` |
| equal | differs | `late_arrivals` |
| differs | any | `drift`, or `timing` where one admissible cut explains it (`spark_jobs.comparison.cut_search`) |
| no row | row | `missing` |
| row | no row | `unexpected` |
| no row | no row, complete has one | `all_late` |
| any | still open at the as-of vector | `not_closed`: not counted |

This is the first pass, from the log alone; `spark_jobs.comparison.comparer` looks closer where the log cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, IntegralType, NumericType

from spark_jobs.comparison.emitted import AGAIN, AMBIGUOUS, AT, OFFSETS, PANE, ROWS, Emitted, emitted_name
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.definition.live import Tolerance
from spark_jobs.replay import windows as replayed
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.spec import complete_name

VERDICT, LABEL, BASIS, DIFFERS = "verdict", "label", "basis", "differs"
CLOSED_AT = "closed_at"
_EXACT = (IntegralType, DecimalType)


class Verdict(StrEnum):
    """What became of one window."""

    MATCH = "match"
    LATE_ARRIVALS = "late_arrivals"
    TIMING = "timing"
    DRIFT = "drift"
    MISSING = "missing"
    UNEXPECTED = "unexpected"
    ALL_LATE = "all_late"
    UNDECIDED = "undecided"
    NOT_CLOSED = "not_closed"


class EvidenceKind(StrEnum):
    """What a verdict rests on.

    `log`: no record is undecided, the log is certain. `log_undecided`: as the log predicts, but it could not
    have told otherwise. `fit`: one cut of the log for all keys of a window end. `recorded`: the live job's own
    evidence.
    """

    LOG = "log"
    LOG_UNDECIDED = "log_undecided"
    FIT = "fit"
    RECORDED = "recorded"


@dataclass(frozen=True)
class Comparing:
    """What is compared: the keys, the aggregates that the job emitted, and how far each may be apart.

    Windows that end at `open_from` or later (epoch ms) have not closed, from `not_final_from` on they can still
    be refined.
    """

    keys: tuple[str, ...]
    values: tuple[str, ...]
    open_from: int
    not_final_from: int
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)


def same(left: Column, right: Column, left_type: DataType, right_type: DataType, tolerance: Tolerance | None) -> Column:
    """Whether two values are equal: null equals null, NaN equals NaN, numbers within the tolerance, its edge included.

    Whole numbers and decimals are compared exactly, floating point up to its own rounding. No tolerance bridges null,
    NaN or infinity and a number.
    """
    numbers = isinstance(left_type, NumericType) and isinstance(right_type, NumericType)
    if not numbers and left_type != right_type:
        left = left.try_cast(right_type)
    equal = left.eqNullSafe(right)
    if not numbers or tolerance is None or not (tolerance.absolute or tolerance.relative):
        return equal
    near = _near(left.cast("double"), right.cast("double"), tolerance)
    if isinstance(left_type, _EXACT) and isinstance(right_type, _EXACT):
        exact = _near_exactly(_as_decimal(left, left_type), _as_decimal(right, right_type), tolerance)
        near = F.coalesce(exact, near)  # null where 38 digits do not hold the difference
    return equal | F.coalesce(near, F.lit(False))


def _near(a: Column, b: Column, tolerance: Tolerance) -> Column:
    largest = F.greatest(F.abs(a), F.abs(b))
    allowed = F.greatest(F.lit(tolerance.absolute), largest * F.lit(tolerance.relative))
    # 1.01 and 1.00 are not exactly 0.01 apart once they are doubles: each may be off by half a unit in the last place.
    rounding = largest * F.lit(2**-52)
    # NaN is larger than infinity to Spark, and equal to itself.
    return (largest < F.lit(float("inf"))) & (F.abs(a - b) <= allowed + rounding)


def _near_exactly(a: Column, b: Column, tolerance: Tolerance) -> Column:
    apart, largest = F.abs(F.try_subtract(a, b)), F.greatest(F.abs(a), F.abs(b))
    absolute, relative = (F.lit(Decimal(repr(bound))) for bound in (tolerance.absolute, tolerance.relative))
    return (apart <= absolute) | (apart <= F.try_multiply(largest, relative))


def _as_decimal(value: Column, kind: DataType) -> Column:
    return value.cast("decimal(20,0)") if isinstance(kind, IntegralType) else value


def differing(frame: DataFrame, comparing: Comparing, left, right) -> Column:
    """The names of the aggregates whose two columns differ; `left` and `right` make column names of them."""
    types = {f.name: f.dataType for f in frame.schema}
    names = [
        F.when(
            ~same(
                F.col(f"`{left(v)}`"),
                F.col(f"`{right(v)}`"),
                types[left(v)],
                types[right(v)],
                comparing.tolerance.get(v),
            ),
            F.lit(v),
        )
        for v in comparing.values
    ]
    return F.array_compact(F.array(*names))


def all_same(frame: DataFrame, comparing: Comparing, left, right) -> Column:
    """Whether all compared aggregates agree."""
    types = {f.name: f.dataType for f in frame.schema}
    return reduce(
        and_,
        (
            same(
                F.col(f"`{left(v)}`"),
                F.col(f"`{right(v)}`"),
                types[left(v)],
                types[right(v)],
                comparing.tolerance.get(v),
            )
            for v in comparing.values
        ),
    )


def judge(windows: DataFrame, emitted: Emitted, comparing: Comparing) -> DataFrame:
    """One row for each key and window of either side; `windows` as `replay_windows` gives them, in mode BOTH.

    Columns: the keys, `window_start`, `window_end` (BIGINT), for each compared aggregate `<a>__emitted`, `<a>`
    (faithful), `<a>__complete`; `verdict`, `label`, `basis`, `differs` (emitted against faithful);
    `emitted_rows`, `emitted_pane`, `emitted_at`, `last_offsets`; `state`, `records_on_time/_late/_dropped/
    _undecided`, `pane`, `closed_at`; and the join columns of `spark_jobs.comparison.join_keys`.
    """
    joined = _joined(windows, emitted, comparing)
    has_emitted, has_faithful = F.col(ROWS) > 0, F.col(replayed.STATE) == "closed"
    equal = all_same(joined, comparing, emitted_name, str)
    complete = all_same(joined, comparing, str, complete_name)
    not_final = F.col(END) >= F.lit(comparing.not_final_from)
    is_open = (F.col(replayed.STATE) == "open") | (
        F.col(replayed.STATE).isNull() & (F.col(END) >= F.lit(comparing.open_from))
    )
    verdict = (
        F.when(is_open, Verdict.NOT_CLOSED)
        .when(has_emitted & F.col(AMBIGUOUS), Verdict.DRIFT)
        .when(has_emitted & has_faithful & equal, F.when(complete, Verdict.MATCH).otherwise(Verdict.LATE_ARRIVALS))
        .when(has_emitted & has_faithful, F.when(not_final, Verdict.NOT_CLOSED).otherwise(Verdict.DRIFT))
        .when(has_faithful, Verdict.MISSING)
        .when(has_emitted, F.when(not_final, Verdict.NOT_CLOSED).otherwise(Verdict.UNEXPECTED))
        .when(F.col(replayed.STATE) == "all_late", Verdict.ALL_LATE)
        .otherwise(Verdict.LATE_ARRIVALS)
    )
    label = (
        F.when(has_emitted & F.col(AMBIGUOUS), "several_rows")
        .when(F.col(replayed.STATE) == "not_emitted", "in_other_pieces")
        .when(has_emitted & F.col(replayed.STATE).isNull(), "no_records")
    )
    basis = F.when(F.col(UNDECIDED) > 0, EvidenceKind.LOG_UNDECIDED).otherwise(EvidenceKind.LOG)
    both = has_emitted & has_faithful
    judged = joined.withColumns({VERDICT: verdict, LABEL: label, BASIS: basis})
    return judged.withColumn(DIFFERS, F.when(both & ~equal, differing(judged, comparing, emitted_name, str)))


def _joined(windows: DataFrame, emitted: Emitted, comparing: Comparing) -> DataFrame:
    """The full outer join, with the keys and bounds of whichever side has them."""
    keys = comparing.keys
    if UNDECIDED not in windows.columns:
        windows = windows.withColumn(UNDECIDED, F.lit(0).cast("bigint"))
    arrival = f"{replayed.FIRED}_arrival"
    ours = with_join_keys(windows, keys).select(
        *join_columns(keys),
        *(F.col(f"`{k}`").alias(f"rw_ours_{i}") for i, k in enumerate(keys)),
        *(c for v in comparing.values for c in (v, complete_name(v))),
        replayed.STATE,
        replayed.ON_TIME,
        replayed.LATE,
        replayed.DROPPED,
        UNDECIDED,
        replayed.PANE,
        F.col(arrival).alias(CLOSED_AT),
    )
    theirs = emitted.rows.select(
        *join_columns(keys),
        *(F.col(f"`{k}`").alias(f"rw_theirs_{i}") for i, k in enumerate(keys)),
        *(emitted_name(v) for v in comparing.values),
        ROWS,
        F.col(PANE),
        AT,
        OFFSETS,
        AMBIGUOUS,
        AGAIN,
    )
    joined = ours.join(theirs, join_columns(keys), "full")
    return joined.select(
        *join_columns(keys),
        *(F.coalesce(f"rw_ours_{i}", f"rw_theirs_{i}").alias(k) for i, k in enumerate(keys)),
        *(c for v in comparing.values for c in (emitted_name(v), v, complete_name(v))),
        F.coalesce(ROWS, F.lit(0)).alias(ROWS),
        PANE,
        AT,
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


def one_of(column: str, verdicts: Sequence[Verdict]) -> Column:
    return reduce(or_, (F.col(column) == v for v in verdicts))
