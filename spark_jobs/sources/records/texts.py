"""Text in columns of tables, files and topics. Spark takes any bytes for text, so two texts could become one.

Lines are checked as a whole when they are read (`lines`), and values of topics when they are decoded (`payload`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyspark.errors import ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from spark_jobs.definition import Pipeline
from spark_jobs.sources.records.attempts import FAILED
from spark_jobs.sources.records.decode import NOT_UTF8
from spark_jobs.spark.conditions import any_of
from spark_jobs.spark.expression_tree import paths_in


def expressions_over_records(pipeline: Pipeline) -> list[str]:
    """The definition's expressions over a record's columns, but for its position."""
    watermark, filters = pipeline.watermark, pipeline.filter
    alone = [pipeline.event_time.expression, filters.before_watermark, filters.after_watermark]
    alone += [watermark.marker, watermark.stream, getattr(pipeline.window, "gap_expression", None)]
    looked_up = {} if pipeline.lookup is None else pipeline.lookup.on
    ids = () if pipeline.deduplicate is None else pipeline.deduplicate.by
    named = (pipeline.input_columns, pipeline.keys, looked_up, pipeline.aggregates)
    return [*filter(None, alone), *ids, *(text for texts in named for text in texts.values())]


def with_text_checked(frame: DataFrame, texts: Iterable[str], columns: Collection[str]) -> DataFrame:
    """Complete FAILED: which column has bytes that are no UTF-8, where an expression uses the column as text.

    Of a struct the fields that are named count, of arrays and maps everything.

    Args:
        texts: The expressions.
        columns: Those of the frame's columns that are to be checked.
    """
    wanted = {name.lower() for name in columns}
    paths = {path: None for text in texts for path in _paths(frame, text) if path[0].lower() in wanted}
    wrong: dict[str, Column] = {}
    for path in paths:
        names, value, kind = _found(frame, path)
        if value is not None and (is_wrong := _is_no_text(value, kind)) is not None:
            name = ".".join(names)
            wrong.setdefault(name.lower(), F.when(is_wrong, f"column `{name}`: {NOT_UTF8}"))
    if not wrong:
        return frame
    before = [F.col(FAILED)] if FAILED in frame.columns else []
    return frame.withColumn(FAILED, F.coalesce(*before, *wrong.values()))


def _paths(frame: DataFrame, text: str) -> list[tuple[str, ...]]:
    try:
        return list(paths_in(frame.sparkSession, text))
    except ParseException:  # refused where the expression is used, with its place in the definition
        return []


def _found(frame: DataFrame, path: tuple[str, ...]) -> tuple[list[str], Column | None, DataType]:
    """The names, the value and the type of a column, or of the field in it that a path names; None: there is none."""
    names: list[str] = []
    value, kind = None, frame.schema
    for part in path:
        if not isinstance(kind, StructType):
            break
        field = next((one for one in kind if one.name.lower() == part.lower()), None)
        if field is None:
            break
        names.append(field.name)
        value = F.col(f"`{field.name}`") if value is None else value[field.name]
        kind = field.dataType
    return names, value, kind


def _is_no_text(value: Column, kind: DataType) -> Column | None:
    """Whether a part of the value is text with bytes that are no UTF-8; None where it has no text."""
    if isinstance(kind, StringType):
        return ~F.is_valid_utf8(value)
    if isinstance(kind, ArrayType):
        return _any_of(value, kind.elementType)
    if isinstance(kind, MapType):
        parts = [_any_of(F.map_keys(value), kind.keyType), _any_of(F.map_values(value), kind.valueType)]
    elif isinstance(kind, StructType):
        parts = [_is_no_text(value[field.name], field.dataType) for field in kind]
    else:
        return None
    found = [part for part in parts if part is not None]
    return any_of(found) if found else None


def _any_of(values: Column, kind: DataType) -> Column | None:
    def is_wrong(value: Column) -> Column:
        found = _is_no_text(value, kind)
        return F.lit(False) if found is None else F.coalesce(found, F.lit(False))

    return None if _is_no_text(F.lit(None), kind) is None else F.exists(values, is_wrong)
