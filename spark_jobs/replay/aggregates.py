"""The users' aggregate expressions: checked, and made conditional, with Spark's own parser.

`sum(x) / count(*)` becomes `sum(x) FILTER (WHERE c) / count(*) FILTER (WHERE c)`, so that faithful and
complete values come out of one aggregation. Any deterministic Spark SQL aggregate works.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition.fields import nearest
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import DefinitionError
from spark_jobs.functions.calls import FOLD
from spark_jobs.replay.assign import END, START, assign_windows
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, SEQUENCE
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.spark.calls import Call, calls_in
from spark_jobs.spark.conditions import any_of
from spark_jobs.spark.expression_tree import Foreign, foreign_in_text, foreign_part, no_function

_ORDER_DEPENDENT = {
    "first": "use min_by(x, struct(rw_arrival, rw_partition, rw_offset))",
    "first_value": "use min_by(x, struct(rw_arrival, rw_partition, rw_offset))",
    "any_value": "use min(x) or max(x)",
    "last": "use max_by(x, struct(rw_arrival, rw_partition, rw_offset))",
    "last_value": "use max_by(x, struct(rw_arrival, rw_partition, rw_offset))",
    "collect_list": "wrap it: sort_array(collect_list(x))",
    "collect_set": "wrap it: sort_array(collect_set(x))",
    "array_agg": "wrap it: sort_array(array_agg(x))",
    "mode": "give the order among ties: mode() WITHIN GROUP (ORDER BY x)",
    "listagg": "give the order: listagg(x, ',') WITHIN GROUP (ORDER BY x)",
    "string_agg": "give the order: string_agg(x, ',') WITHIN GROUP (ORDER BY x)",
    "percentile_approx": "use percentile(x, p), which is exact",
    "approx_percentile": "use percentile(x, p), which is exact",
    "histogram_numeric": "use percentile(x, array(...))",
}
_BY_ORDERING = ("max_by", "min_by")
_OWN_COLUMNS = frozenset({ARRIVAL, PARTITION, OFFSET, SEQUENCE, EVENT_TIME})
"""Rewindow's own columns that an aggregate may use: a record's position and its event time."""
_SHOWN_COLUMNS = 30
_SORTERS = ("sort_array", "array_sort")


def conditional(spark: SparkSession, text: str, condition: str) -> str:
    """The expression with every aggregate in it restricted to rows where `condition` (SQL) is true."""
    result = text
    for call in sorted((c for c in calls_in(spark, text) if c.is_aggregate), key=lambda c: -c.start):
        if call.filter_span is None:
            result = f"{result[: call.stop]} FILTER (WHERE {condition}){result[call.stop :]}"
        else:
            start, stop = call.filter_span
            result = f"{result[:start]}({result[start:stop]}) AND {condition}{result[stop:]}"
    return result


def sums_in(spark: SparkSession, text: str) -> list[str]:
    """The sums in an expression, each as it is written there, with its filter."""
    calls = (text[call.start : call.stop] for call in calls_in(spark, text) if call.name == "sum")
    return [call for call in calls if call.lower().startswith("sum")]


_FROM_HALVES = {
    "count": "{a} + {b}",
    "sum": "coalesce({a} + {b}, {a}, {b})",
    "min": "least({a}, {b})",
    "max": "greatest({a}, {b})",
}


def from_halves(spark: SparkSession, text: str, a: str, b: str) -> str | None:
    """The value over all rows from those over two halves of them (columns `a`, `b`); None where it does not follow.

    Exact for every type but floating point, whose sums depend on the order of additions.
    """
    calls = [call for call in calls_in(spark, text) if call.is_aggregate]
    if len(calls) != 1 or calls[0].name not in _FROM_HALVES or calls[0].is_distinct or calls[0].filter_span:
        return None
    if text[: calls[0].start].strip() or text[calls[0].stop :].strip():
        return None
    return _FROM_HALVES[calls[0].name].format(a=f"`{a}`", b=f"`{b}`")


def running(spark: SparkSession, text: str, over: str) -> str:
    """The expression with every aggregate in it computed over the SQL window `over`, for every refinement.

    Raises DefinitionError for DISTINCT and FILTER, which Spark does not compute over a window.
    """
    result = text
    for call in sorted((c for c in calls_in(spark, text) if c.is_aggregate), key=lambda c: -c.start):
        if call.is_distinct or call.filter_span is not None:
            raise DefinitionError(
                f"{text!r}: DISTINCT and FILTER cannot be computed for every pane",
                hint="use `panes: last`, or CASE WHEN inside the aggregate",
            )
        result = f"{result[: call.stop]} OVER ({over}){result[call.stop :]}"
    return result


def problems(spark: SparkSession, frame: DataFrame, text: str) -> Iterator[tuple[str, str]]:
    """What is wrong with an aggregate expression over `frame`'s columns: (problem, hint), empty if nothing."""
    try:
        calls = calls_in(spark, text)
    except DefinitionError as problem:
        yield problem.what, problem.hint
        return
    yield from of_chance(spark, text)
    try:
        found = foreign(frame, text)
    except AnalysisException as problem:
        is_unknown = "UNRESOLVED_ROUTINE" in (problem.getCondition() or "")
        if is_unknown or any(call.is_aggregate for call in calls):
            yield analyzer_message(frame, problem)
            return
        found = None
    if not any(call.is_aggregate for call in calls):
        yield f"{text!r} is no aggregate", "wrap it in one, such as sum(...), max(...) or count(...)"
        return
    if found is not None:
        yield found.what, found.hint


def of_chance(spark: SparkSession, text: str) -> Iterator[tuple[str, str]]:
    """The calls whose value depends on the order in which Spark sees the records: (problem, hint).

    Raises DefinitionError for text that is no expression.
    """
    for call in calls_in(spark, text):
        if call.name in _BY_ORDERING and not _is_total(call):
            yield (
                f"{call.name}() depends on the order of records among ties",
                f"end the ordering with the position: {call.name}(x, struct(y, rw_arrival, rw_partition, rw_offset))",
            )
        elif call.name in _ORDER_DEPENDENT and not (call.has_order or _is_sorted(call)):
            yield f"{call.name}() depends on the order in which Spark sees the records", _ORDER_DEPENDENT[call.name]


def foreign(frame: DataFrame, text: str) -> Foreign | None:
    """What in an aggregate expression is no function of the records of `frame` alone; None if there is nothing.

    Raises AnalysisException for what Spark does not accept at all.
    """
    found = foreign_in_text(frame.sparkSession, text)
    if found is None:
        found = foreign_part(frame, frame.agg(F.expr(text)), text, own=_OWN_COLUMNS)
    if found is None or found.column is None:
        return found
    known = [name for name in frame.columns if not name.startswith("rw_")]
    return Foreign(*no_column(found.column, known), found.column)


def _is_sorted(call: Call) -> bool:
    """Whether what a list goes to sorts it: Spark's functions, and the folds of own functions."""
    return call.parent in _SORTERS or call.parent.startswith(FOLD)


def _is_total(call: Call) -> bool:
    return {"rw_partition", "rw_offset"} <= call.references or "rw_sequence" in call.references


def analyzer_message(frame: DataFrame, problem: AnalysisException) -> tuple[str, str]:
    """Spark's message about an expression in one line; for an unknown column or function, which one is meant."""
    condition, parameters = problem.getCondition() or "", problem.getMessageParameters() or {}
    if "objectName" in parameters and "UNRESOLVED_COLUMN" in condition:
        columns = [name for name in frame.columns if not name.startswith("rw_")]
        return no_column(parameters["objectName"].replace("`", ""), columns)
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return no_function(frame.sparkSession, parameters.get("routineName", "").replace("`", ""))
    return str(problem).split("\n")[0].split("SQLSTATE")[0].strip(), ""


def no_column(name: str, columns: Sequence[str]) -> tuple[str, str]:
    """The problem of a name that none of `columns` has, and a hint."""
    near = _behind_alias(name, columns) or nearest(name.rpartition(".")[2], columns)
    listed = ", ".join(columns[:_SHOWN_COLUMNS]) + (", ..." if len(columns) > _SHOWN_COLUMNS else "")
    hint = f"did you mean `{near}`? " if near else ""
    return f"there is no column `{name}`", f"{hint}known columns: {listed or 'none'}"


def _behind_alias(name: str, columns: Sequence[str]) -> str:
    """The name without an alias before it, as `item.id` of `s.item.id`; empty where no column follows one."""
    known, parts = {column.lower() for column in columns}, name.split(".")
    found = (".".join(parts[place:]) for place in range(1, len(parts)) if parts[place].lower() in known)
    return next(found, "")


def is_additive(spark: SparkSession, text: str) -> bool:
    """Whether the expression is one count or sum: its value over two sets of records is the sum of both values."""
    whole = text.strip()
    calls = [call for call in calls_in(spark, whole) if call.is_aggregate]
    if len(calls) != 1 or calls[0].is_distinct or calls[0].name not in ("count", "sum", "count_if"):
        return False
    return calls[0].start == 0 and calls[0].stop == len(whole)


def overflow_in_words(records: DataFrame, spec: ReplaySpec) -> str | None:
    """The first sum over `records` that overflows, in words; None where none does over all records of a window.

    Windows are taken by their start, then by key. Of sessions, which lie where their records are, the key alone is
    named.
    """
    sums = [(name, text) for name, whole in spec.aggregates.items() for text in sums_in(records.sparkSession, whole)]
    if not sums:
        return None
    timed = records.where(F.col(EVENT_TIME).isNotNull())
    timed = timed.where(spec.after_watermark) if spec.after_watermark else timed
    bounds = () if spec.has_sessions else (START, END)
    placed = timed if spec.has_sessions else assign_windows(timed, spec.aligned_windows)
    counted = {f"rw_sum_{n}": F.expr(f"try_{text}") for n, (_, text) in enumerate(sums)}
    counted |= {f"rw_count_{n}": F.expr(f"count{text[len('sum') :]}") for n, (_, text) in enumerate(sums)}
    groups = [*bounds, *(f"`{key}`" for key in spec.keys)]
    windows = placed.groupBy(*groups).agg(*(value.alias(name) for name, value in counted.items()))
    overflows = [F.col(f"rw_sum_{n}").isNull() & (F.col(f"rw_count_{n}") > 0) for n in range(len(sums))]
    found = windows.where(any_of(overflows)).orderBy(*groups).limit(1).collect()
    if not found:
        return None
    row = found[0].asDict()
    name, text = next(s for n, s in enumerate(sums) if row[f"rw_sum_{n}"] is None and row[f"rw_count_{n}"])
    window = f" in the window {format_instant(row[START])} to {format_instant(row[END])}" if bounds else ""
    keys = "".join(f", {key} = {row[key]}" for key in spec.keys)
    return f"aggregate `{name}`: {text} overflows{window}{keys}"
