"""Check a definition's SQL expressions with Spark's analyzer: their type, or why they are refused and a hint."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.yaml_tree import FieldPath, dotted
from spark_jobs.errors import DefinitionError, Problem, RewindowError, SourceError
from spark_jobs.replay import aggregates
from spark_jobs.spark.expression_tree import foreign_in_text, foreign_part, no_function
from spark_jobs.spark.failures import short
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, analyzed_plan, elements, session_state


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an expression is refused, and a hint. `is_missing`: it names a column that does not exist."""

    what: str
    hint: str = ""
    is_missing: bool = False


def analyse(frame: DataFrame, text: str) -> DataType | Refused:
    """The type of a scalar expression over the columns of `frame`, or why it is refused.

    Refused are text that is not SQL, unknown columns and functions, wrong types, aggregates, window functions,
    generators, subqueries, and whatever is no function of the record alone: see `foreign_part`.
    """
    try:
        foreign = foreign_in_text(frame.sparkSession, text)
        if foreign is not None:
            return Refused(foreign.what, foreign.hint)
        kind = frame.select(F.expr(text).alias("rw_value")).schema[0].dataType
        # WHERE is where aggregates, window functions and generators are refused.
        condition = frame.where(F.expr(text).isNotNull())
        analyzed_plan(condition)
    except ParseException as error:
        return Refused(
            f"not a Spark SQL expression: {short(str(error)).split('== SQL ==')[0].strip()}",
            "check brackets, quotes and commas",
        )
    except AnalysisException as error:
        return _refusal(frame, error)
    if (foreign := foreign_part(frame, condition, text)) is not None:
        return no_column(frame, foreign.column) if foreign.column else Refused(foreign.what, foreign.hint)
    return kind


_NO_COLUMN_OF_A_TABLE = re.compile(r"\b(void|variant|interval|collate)\b")


def refuse_unpublishable(kind: DataType) -> Refused | None:
    """Why a value of this type cannot be a column of the published table; None where it can."""
    name = kind.simpleString()
    if (found := _NO_COLUMN_OF_A_TABLE.search(name)) is None:
        return None
    how = {
        "void": "CAST(... AS STRING)",
        "variant": "to_json(...)",
        "interval": "unix_millis of both times and subtract",
    }
    hint = f"write {how.get(found[1], 'CAST(... AS STRING)')}"
    return Refused(f"is {name.upper()}, which a table cannot hold", hint)


def refuse_unequal(kind: DataType) -> Refused | None:
    """Why values of this type cannot be compared with each other; None where they can."""
    if not re.search(r"\b(map<|variant\b)", kind.simpleString()):
        return None
    return Refused(f"is {kind.simpleString().upper()}, which Spark cannot compare", "name one of its values")


def refuse_ungroupable(kind: DataType) -> Refused | None:
    """Why records cannot be grouped by values of this type, or of a part of it; None where they can."""
    if refuse_unequal(kind) is None:
        return None
    what = f"is {kind.simpleString().upper()}, and records cannot be grouped by that"
    return Refused(what, "write an expression for one of its fields")


def references(frame: DataFrame, texts: Iterable[str]) -> set[str]:
    """The columns of `frame` that the expressions use; they may be aggregates. Raises AnalysisException."""
    used: set[str] = set()
    for text in texts:
        used |= {one.name() for one in elements(analyzed_plan(frame.select(F.expr(text))).references())}
    return used


def expression_type(frame: DataFrame, text: str, pipeline: Pipeline, path: FieldPath) -> DataType:
    """The type of the expression at `path` of the definition.

    Raises SourceError where it names a column that does not exist, DefinitionError where it is wrong otherwise.
    """
    found = analyse(frame, text)
    if isinstance(found, Refused):
        raise refuse(pipeline, path, found)
    return found


def refuse(pipeline: Pipeline, path: FieldPath, refused: Refused) -> RewindowError:
    """The error for a refused expression, with the definition's file and line: see `expression_type`."""
    if not refused.is_missing:
        return DefinitionError.listing([problem(pipeline, path, refused)])
    where = pipeline.source_of(path)
    hint = _hint(pipeline, path, refused)
    hint = hint[:1].upper() + hint[1:]
    return SourceError(refused.what, f"{where}, {dotted(path)}" if where else f"{pipeline.name}, {dotted(path)}", hint)


def refuse_schema(pipeline: Pipeline, error: ValueError) -> DefinitionError:
    """The error for a `value.schema` that is not Spark DDL."""
    return DefinitionError.listing([problem(pipeline, ("value", "schema"), schema_refused(error))])


def schema_refused(error: ValueError) -> Refused:
    """The refusal of a schema that is not Spark DDL, where the caller knows the field."""
    return Refused(f"not a schema: {short(str(error))}", "write fields as `name TYPE, name TYPE`")


def problem(pipeline: Pipeline, path: FieldPath, refused: Refused) -> Problem:
    """A refused expression as a problem of the definition's file."""
    file, _, line = pipeline.source_of(path).rpartition(":")
    return Problem(file or pipeline.name, int(line or 1), dotted(path), refused.what, _hint(pipeline, path, refused))


def _hint(pipeline: Pipeline, path: FieldPath, refused: Refused) -> str:
    """What to do; where a schema says which fields of a record are read, a missing one can be added there."""
    decodes_rows = pipeline.value.column is None  # else the position has columns of its own beside the payload
    is_of_records = path[:1] not in _OF_OTHERS and (decodes_rows or path[:2] != ("history", "position"))
    if refused.is_missing and pipeline.value.ddl is not None and is_of_records:
        return f"{refused.hint}; if the records have it, add it to `value.schema`"
    return refused.hint


_OF_OTHERS = (("live",), ("corrections",), ("lookup",))
"""The sections of a definition whose expressions are not over the history's records."""


def conjuncts(frame: DataFrame, text: str) -> list[str]:
    """The parts of a condition that are joined by AND, as they are written; the whole text where it cannot be split."""
    parser = session_state(frame.sparkSession).sqlParser()

    def parts(node: JavaObject) -> Iterator[JavaObject]:
        if node.getClass().getSimpleName() == "And":
            yield from parts(node.left())
            yield from parts(node.right())
        else:
            yield node

    found = []
    try:
        for node in parts(parser.parseExpression(text)):
            origin = node.origin()
            part = text[origin.startIndex().get() : origin.stopIndex().get() + 1]
            if not parser.parseExpression(part).equals(node):
                return [text]
            found.append(part)
    except JAVA_ERRORS:
        return [text]
    return found


def no_column(frame: DataFrame, name: str) -> Refused:
    """The refusal of a name that no column of `frame` has."""
    known = [column for column in frame.columns if not column.startswith("rw_")]
    return Refused(*aggregates.no_column(name, known), is_missing=True)


def _refusal(frame: DataFrame, error: AnalysisException) -> Refused:
    condition, parameters = error.getCondition() or "", error.getMessageParameters() or {}
    if condition.startswith(("UNRESOLVED_COLUMN", "UNRESOLVED_FIELD", "FIELD_NOT_FOUND")):
        name = (parameters.get("objectName") or parameters.get("fieldName") or "").replace("`", "")
        return no_column(frame, name)
    is_many = "MISSING_GROUP_BY" in condition or "window functions inside WHERE" in str(error)
    if condition.startswith("INVALID_WHERE_CONDITION") or is_many:
        return Refused("must give one value for each record", "leave out aggregates, window functions and explode(...)")
    if condition.startswith("UNRESOLVED_ROUTINE"):
        name = parameters.get("routineName", "").replace("`", "")
        return Refused(*no_function(frame.sparkSession, name))
    if "GENERATOR" in condition:
        return Refused("must give one value for each record", "leave out explode(...) and similar functions")
    return Refused(short(str(error)))
