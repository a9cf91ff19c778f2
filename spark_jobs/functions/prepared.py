"""The functions of a definition in a session: each is loaded, checked and made known to SQL under its name.

A row function is called as it is written. A call of an aggregate becomes a fold over the list of the window's records:

    median_fare(fare)  ->  rw_fold_median_fare(collect_list(struct(position, key, event time, arguments)))

The fold sorts the list by the records' positions. So no accumulator is merged or sent anywhere (many jobs have no
`merge`), each value is what a single task of the live job computes, and filters, firings and sessions need nothing of
their own: `collect_list` is an aggregate of Spark's.

`doubts` tries them on a few records: does their value depend on chance, or on the order of the records?
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.fields import Refusal
from spark_jobs.definition.functions import LiveFunction
from spark_jobs.errors import DefinitionError, Problem
from spark_jobs.functions import java, python
from spark_jobs.functions.calls import FOLD, calls_of
from spark_jobs.spark.gateway import JAVA_ERRORS, jvm

_TRIED = "rw_row_"


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The names (lower case) of a definition's functions that aggregate, and its aggregates as Spark computes them."""

    folds: frozenset[str]
    aggregates: Mapping[str, str]


_prepared: dict[str, _Prepared] = {}
"""What this process has prepared, by `_key`."""


def prepare(spark: SparkSession, pipeline: Pipeline) -> None:
    """Make the functions of a definition known to the session. Nothing happens where it has none.

    Raises DefinitionError, with file and line, for each that cannot be loaded or called.
    """
    if not pipeline.functions:
        return
    folds, problems = set[str](), list[Problem]()
    for name, function in pipeline.functions.items():
        try:
            _refuse_sparks_own(spark, name)
            if _made_known(spark, name, function, pipeline.project):
                folds.add(name.lower())
        except Refusal as error:
            problems.append(pipeline.problem(("functions", name), error.what, error.hint))
    if problems:
        raise DefinitionError.listing(problems)
    texts = {name: _with_folds(spark, text, folds, pipeline) for name, text in pipeline.aggregates.items()}
    _prepared[_key(pipeline)] = _Prepared(frozenset(folds), texts)


def aggregates_of(pipeline: Pipeline) -> Mapping[str, str]:
    """The aggregates of a definition as Spark computes them: calls of its own aggregates are folds."""
    return _of(pipeline).aggregates if pipeline.functions else pipeline.aggregates


def _of(pipeline: Pipeline) -> _Prepared:
    if _key(pipeline) not in _prepared:
        prepare(SparkSession.active(), pipeline)
    return _prepared[_key(pipeline)]


def _key(pipeline: Pipeline) -> str:
    """What decides how the aggregates are computed."""
    is_sequence = pipeline.history.position.sequence is not None
    return repr((pipeline.project, pipeline.functions, pipeline.aggregates, tuple(pipeline.keys), is_sequence))


def _refuse_sparks_own(spark: SparkSession, name: str) -> None:
    builtin = jvm(spark).org.apache.spark.sql.catalyst.analysis.FunctionRegistry.builtin()
    if builtin.functionExists(jvm(spark).org.apache.spark.sql.catalyst.FunctionIdentifier(name.lower())):
        raise Refusal(f"`{name}` is a function of Spark SQL", "give it another name")


def _made_known(spark: SparkSession, name: str, function: LiveFunction, project: Path) -> bool:
    """Register the function. Returns whether it aggregates."""
    if function.returns is not None:
        _refuse_no_type(function.returns)
    kind = None
    if function.jar is not None:
        told = java.described(spark, function, project)
        kind, is_row = told.kind, told.kind.is_row
        java.register(spark, name, f"{_TRIED if is_row else FOLD}{name}", function, told)
    else:
        loaded = python.load(function, project)
        is_row = not (isinstance(loaded, type) or function.aggregate)
        returns = F.udf(lambda: None, function.returns).returnType  # pyright: ignore[reportArgumentType]
        if is_row:
            tried = f"struct<value: {returns.simpleString()}, why: string>"
            spark.udf.register(f"{_TRIED}{name}", F.udf(python.row_function(loaded), tried, useArrow=True))
        else:
            spark.udf.register(f"{FOLD}{name}", F.udf(python.fold(name, loaded), returns, useArrow=True))
    if is_row:
        java.register_tried(spark, name, f"{_TRIED}{name}", kind)
    return not is_row


def _refuse_no_type(text: str) -> None:
    try:
        DataType.fromDDL(text)
    except ParseException as error:
        raise Refusal(f"{text} is no type of Spark SQL", "write it like STRING or ARRAY<DOUBLE>") from error


def in_other_order(spark: SparkSession, pipeline: Pipeline) -> dict[str, str]:
    """The aggregates with the records' order turned round, of those whose functions do not say that they need it."""
    folds = _of(pipeline).folds
    free = folds & {name.lower() for name, function in pipeline.functions.items() if not function.ordered}
    return {
        name: _with_folds(spark, text, folds, pipeline, turned=True)
        for name, text in pipeline.aggregates.items()
        if calls_of(spark, text, free)
    }


def _with_folds(
    spark: SparkSession, text: str, folds: Collection[str], pipeline: Pipeline, *, turned: bool = False
) -> str:
    """An expression with the calls of own aggregates as folds, the innermost first. `turned`: the last record first."""
    position = pipeline.history.position
    names = ("rw_sequence",) if position.sequence is not None else ("rw_arrival", "rw_partition", "rw_offset")
    at = f"struct({', '.join(f'-{name}' if turned else name for name in names)})"
    keys = ", ".join(f"`{name}`" for name in pipeline.keys)
    key = f"struct({keys})" if keys else "CAST(NULL AS STRUCT<k: INT>)"
    while found := calls_of(spark, text, folds):
        call = found[-1]
        given = f"struct({call.arguments})"
        record = f"named_struct('rw_at', {at}, 'rw_key', {key}, 'rw_time', rw_event_time, 'rw_in', {given})"
        text = f"{text[: call.start]}{FOLD}{call.name}(collect_list({record}){call.filter}){text[call.stop :]}"
    return text


SAMPLE = 1000
"""Records that are tried."""
_OTHER = "rw_other_order_"


def doubts(records: DataFrame, pipeline: Pipeline) -> tuple[str, ...]:
    """What is said of the functions in a plan: values that differ from one evaluation, or one order, to the next.

    `records`: good canonical ones, of which a few are tried. Nothing is read where the definition has no functions.
    """
    if not pipeline.functions:
        return ()
    others = in_other_order(records.sparkSession, pipeline)
    values = [F.expr(text).alias(name) for name, text in aggregates_of(pipeline).items()]
    values += [F.expr(text).alias(f"{_OTHER}{name}") for name, text in others.items()]
    sample = records.limit(SAMPLE).localCheckpoint()
    groups = sample.groupBy(*(f"`{key}`" for key in pipeline.keys)).agg(*values)
    try:
        first, second = groups.collect(), groups.collect()
    except JAVA_ERRORS:  # the trial mixes windows: where a function really fails, the run says so
        return ()
    said = []
    if sorted(map(repr, first)) != sorted(map(repr, second)):
        said.append(
            "the definition's own functions give other values when they are called again for the same records: no run "
            "can be repeated, and a night will find differences that are none"
        )
    said += [
        f"aggregate `{name}` depends on the order of the records, which is taken from their positions; where the live "
        "job depends on it too, write `ordered: true` for its function"
        for name in others
        if any(repr(row[name]) != repr(row[f"{_OTHER}{name}"]) for row in first)
    ]
    return tuple(said)
